//! Integration tests of the queues.

#[path = "../support/nats_server.rs"]
mod nats_server;
#[path = "../support/proxy.rs"]
mod proxy;

mod contract;
mod nats;
