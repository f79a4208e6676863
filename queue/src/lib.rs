//! Work queues: one trait, one contract.
