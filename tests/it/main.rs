//! End-to-end tests of the program: its commands and files, fleets with workers as processes ([`fleet`]), and the
//! attacks in docs/security.md ([`attacks`]).

mod adapters;
mod architecture;
#[cfg(target_os = "linux")]
mod attacks;
mod bad_input;
mod bad_models;
mod builtin;
mod chat;
mod commands;
mod compare;
mod crash;
mod damage;
mod engine;
mod export;
mod fake_gpu;
mod families;
mod fleet;
mod guides;
mod interface;
mod judge;
mod openai;
mod own_data;
mod own_tool;
mod pages;
mod placement;
mod questions;
mod rank;
mod reports;
mod run;
mod serve;
mod shopping;
mod shopping_browser;
mod sql;
mod stall;
mod support;
mod sweep;
mod viewer;
mod waits;
mod wording;
