//! Queues on NATS JetStream.

mod access;
mod blobs;
mod error;
mod key_value;
mod layout;
mod queue;
mod server;

pub use access::{Access, Secret};
pub use blobs::Blobs;
pub use error::{KeyValueError, NatsError};
pub use key_value::{Change, KeyValue};
pub use layout::Layout;
pub use queue::NatsQueue;
pub use server::{Connecting, ConnectionState, Server};
