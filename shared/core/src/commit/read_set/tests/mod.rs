mod files;
mod random;
mod rules;
mod texts;
