//! Queues on NATS JetStream.

mod access;
mod blobs;
mod codec;
mod complaints;
mod connect;
mod error;
mod key_value;
mod layout;
mod lease;
mod link;
mod objects;
mod publishing;
mod pulling;
mod queue;
mod server;
mod setup;

pub use access::{Access, Secret};
pub use blobs::Blobs;
pub use error::{KeyValueError, NatsError};
pub use key_value::{Change, KeyValue};
pub use layout::Layout;
pub use queue::NatsQueue;
pub use server::{Connecting, ConnectionState, Server};
