//! What the program promises, seen from outside.

mod architecture;
mod bad_input;
mod commands;
mod crash;
mod engine;
mod openai;
mod questions;
mod run;
mod support;
