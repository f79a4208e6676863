//! A worker among many: policy, lanes, leases and spool each by itself, then the whole against a real nats-server.

mod catalogue;
mod lanes;
mod leases;
mod policy;
mod server;
mod spool;
mod stall;
mod support;
