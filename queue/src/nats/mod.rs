//! Queues on NATS JetStream, for coordinators and workers on many machines.
//!
//! # Guarantees
//!
//! - A message whose publishing was confirmed is delivered at least once, until it is acknowledged or removed, even if
//!   claimers, publishers or the server are killed meanwhile (as long as the server's store survives).
//! - Publishing an id that is queued or leased has no effect, no matter how much later it happens.
//! - A claim returns at most the requested number of messages, and no more are fetched from the server than claimers
//!   request.
//! - When a lease is dropped, its message is redelivered immediately. If the holder disappears, the message
//!   is redelivered when the lease expires or when it is [reassigned](Server::reassign).
//! - Messages of other programs in the streams are untrusted data: they are checked, limited in size, and
//!   discarded if they are invalid.
//! - A message is delivered as it was published or not at all: `Lumos-Checksum` is verified before anything is decoded.
//! - Streams, buckets and consumers that were deleted are recreated by [`Server::restore`]. Their content is
//!   lost, and its publisher must detect that.
//! - Order is not guaranteed. Acknowledgements that the server received and lost are not covered either: nats-server
//!   2.9 loses some when it is killed, and then redelivers finished work. Consumers of results must accept a result
//!   twice.
//!
//! # Names on the server
//!
//! With prefix `lumos` and protocol 2: the streams `lumos-2-work` and `lumos-2-results`, key-value buckets
//! `lumos-2-runs`, `-workers`, `-owners` and `-status`, object buckets `lumos-2-payloads` and `lumos-2-shared`. Work is
//! published to `lumos.2.work.<needs>.<priority>.<run>.<id>`, and each shard `<needs>.<priority>` has one durable
//! consumer that all workers pull from. Results are published to `lumos.2.results.<run>.<id>` and consumed by one
//! consumer per run. Consumers of shards remain after runs end; they need no resources.
//!
//! The body of a message is JSON, compressed with zstd above 4 KiB (`Lumos-Encoding: zstd`). `Lumos-Protocol` is the
//! protocol number, `Lumos-Checksum` is the SHA-256 of id, encoding and body. A body above the server's message limit
//! is stored in `lumos-2-payloads` under the name in `Lumos-Object`, and is removed when the message is acknowledged.
//!
//! # Design decisions
//!
//! - **Ids are subjects.** A message is stored only if its subject is empty (`Nats-Expected-Last-Subject-Sequence: 0`).
//!   The server's own window for duplicates expires after two minutes.
//! - **Pull requests are sent by this crate** instead of the client's streams: those fetch in advance, and a message
//!   that waits in a worker's buffer uses up its lease. Requests expire after seconds and are discarded after a
//!   reconnection, since a restarted server has lost them. A request to a deleted consumer never gets a response, so
//!   the consumer is checked after a request that ended without one.
//! - **Buckets are created with plain requests**, since creating them with the client fails with nats-server 2.9.
//!   Objects are read with plain requests too, which need no consumer and survive reconnections.
//! - **Values that are written every few seconds are stored in memory** (workers, owners, status) and are lost when the
//!   server restarts, until [`Server::restore`] and the next write. Disk is not safe for them: when its disk is full,
//!   nats-server 2.9.10 leaves buckets that were being written locked forever, and blocks every connection that
//!   requests them.
//! - **Requests that can be lost are repeated if repeating is safe**: a publish without a response may have been
//!   stored. Compare-and-swap is not repeated; its error states that the result is unknown.
//! - **Leases expire by the clock of this machine.** The server accepts replies from holders whose lease
//!   expired, even when the message has another holder. After a lease expired, replies that would affect the
//!   other holder (return, termination) are not sent; an acknowledgement is sent, since the work was done.
//! - **The results stream rejects messages when it is full.** Dropping old messages would drop results.
//! - **Size limits are adapted.** A stream's limit is reserved on the server; a server with little disk space gets a
//!   smaller stream, and an existing stream keeps the limits that its operator set.

mod access;
mod blobs;
mod codec;
mod connect;
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

pub use access::{Access, Credential};
pub use blobs::Blobs;
#[doc(hidden)]
pub use codec::fuzz_decoded;
pub use key_value::{Change, KeyValue, KeyValueError};
pub use layout::Layout;
pub use link::NatsError;
pub use pulling::Rejected;
pub use queue::NatsQueue;
pub use server::{Connecting, ConnectionState, Server};
pub use setup::ShardState;
