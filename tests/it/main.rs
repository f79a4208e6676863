//! What the program promises, seen from outside.

mod architecture;
mod bad_input;
mod commands;
mod crash;
mod judge;
mod openai;
mod rank;
mod run;
mod support;
