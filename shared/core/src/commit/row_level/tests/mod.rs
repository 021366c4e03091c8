mod cases;
mod figures;
mod moves;
mod serial;
