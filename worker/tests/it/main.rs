//! Integration tests of the worker.

#[path = "../../../queue/tests/support/nats_server.rs"]
mod nats_server;

mod browser;
mod fleet;
mod hub;
mod live;
mod openai;
mod pages_browser;
mod serve;
mod serve_model;
mod session;
mod shopping_browser;
mod site;
mod sql;
mod wolfram;
