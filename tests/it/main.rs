//! What the program promises, seen from outside.

mod adapters;
mod architecture;
mod bad_input;
mod commands;
mod crash;
mod engine;
mod judge;
mod openai;
mod pages;
mod placement;
mod questions;
mod rank;
mod run;
mod served;
mod shopping;
mod shopping_browser;
mod sql;
mod support;
