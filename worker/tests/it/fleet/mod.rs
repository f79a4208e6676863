//! A worker in a fleet: policy, lanes, leases and spool separately, then the whole worker with a real
//! nats-server.

mod catalogue;
mod lanes;
mod leases;
mod policy;
mod server;
mod spool;
mod stall;
mod support;
