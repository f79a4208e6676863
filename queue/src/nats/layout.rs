//! What everything is called on the server, and how large it may grow.

use std::time::Duration;

/// Names, limits and terms on the server. Everyone who shares a server's queues must agree on prefix and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What every name begins with.
    pub prefix: String,
    /// Part of every name, so that parties of different protocols never take each other's messages.
    pub protocol: u32,
    /// Copies that a cluster keeps.
    pub replicas: usize,
    /// Bytes the results stream may hold; -1 for no limit. Results are refused beyond it, never dropped.
    pub results_max_bytes: i64,
    /// Messages the results stream may hold; -1 for no limit.
    pub results_max_messages: i64,
    /// Bytes the work stream may hold; -1 for no limit.
    pub work_max_bytes: i64,
    /// How long a lease holds without being extended.
    pub lease: Duration,
    /// Bytes a message may have once it is decompressed.
    pub body_limit: usize,
    /// How long a worker's notice stays when it is not written again.
    pub workers_max_age: Duration,
    /// How long an owner's claim stays when it is not written again.
    pub owners_max_age: Duration,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            prefix: "lumos".to_owned(),
            protocol: 1,
            replicas: 1,
            results_max_bytes: 16 << 30,
            results_max_messages: 1_000_000,
            work_max_bytes: 64 << 30,
            lease: Duration::from_secs(30),
            body_limit: 64 << 20,
            workers_max_age: Duration::from_secs(15),
            owners_max_age: Duration::from_secs(15),
        }
    }
}
