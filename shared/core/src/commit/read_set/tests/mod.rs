mod files;
mod random;
mod texts;
