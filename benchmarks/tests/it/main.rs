//! Integration tests of the benchmarks.

#[path = "../../examples/support/mod.rs"]
mod support;

mod cases;
mod loading;
mod mind2web;
mod mutations;
mod official;
mod shared;
