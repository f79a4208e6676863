//! End-to-end tests of the program.

mod adapters;
mod architecture;
mod bad_input;
mod commands;
mod crash;
mod damage;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
mod disk;
mod engine;
mod followed;
mod interface;
mod judge;
mod model_server;
mod openai;
mod paced;
mod pages;
mod placement;
mod questions;
mod rank;
mod reports;
mod run;
mod served;
mod serving;
mod shopping;
mod shopping_browser;
mod sql;
mod stall;
mod support;
mod waits;
mod wording;
