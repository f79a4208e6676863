//! Integration tests of the worker.

mod serve;
mod session;
