//! Queues on NATS JetStream, for coordinators and workers on many machines.
//!
//! # What is promised
//!
//! - A message whose publishing was confirmed is delivered at least once, until someone acknowledges or buries it,
//!   whatever is killed meanwhile: claimers, publishers, the server (as long as its store stays).
//! - Publishing an id that is queued or leased does nothing, however much later it happens.
//! - A claim gives at most what is asked for, and no more is ever fetched from the server than claimers want.
//! - A lease that its holder drops comes back at once, one whose holder vanished when its term ends or when someone
//!   [recalls](Server::recall) it.
//! - What others write into the streams is data: it is checked, limited in size, and disposed of if it is not ours.
//! - A message is delivered as it was published or not at all: `Lumos-Checksum` is verified before anything is decoded.
//! - Streams, buckets and consumers that were deleted are made anew by [`Server::restore`]; what they held is lost, and
//!   whoever published it must find that out.
//! - No order is promised. Nothing is promised about acknowledgements that the server took and forgot: nats-server
//!   2.9 does forget some when it is killed, and finished work comes back. Whoever records results must be able to
//!   see one twice.
//!
//! # What is on the server
//!
//! With prefix `lumos` and protocol 2: the streams `lumos-2-work` and `lumos-2-results`, key-value buckets
//! `lumos-2-runs`, `-workers`, `-owners` and `-status`, object buckets `lumos-2-payloads` and `lumos-2-shared`. Work is
//! published to `lumos.2.work.<needs>.<priority>.<run>.<id>`, and each lane `<needs>.<priority>` has one durable
//! consumer that all workers pull from. Results are published to `lumos.2.results.<run>.<id>` and taken by one consumer
//! per run. Lanes' consumers stay when runs end; they cost nothing.
//!
//! A message's body is JSON, compressed with zstd above 4 KiB (`Lumos-Encoding: zstd`). `Lumos-Protocol` names the
//! protocol, `Lumos-Checksum` is the SHA-256 of id, encoding and body. A body above the server's message limit lies in
//! `lumos-2-payloads`, named by `Lumos-Object`, and is removed by whoever acknowledges the message.
//!
//! # Why it is done this way
//!
//! - **Ids are subjects.** A message is stored only if its subject is empty
//!   (`Nats-Expected-Last-Subject-Sequence: 0`). The server's own window for duplicates forgets after two minutes.
//! - **Requests for messages are written by hand** instead of with the client's streams: those fetch in advance, and a
//!   message that waits in a worker's buffer uses up its lease. Requests expire after seconds and are forgotten after a
//!   reconnection, since a restarted server does not know them; a request to a deleted consumer is never answered, so
//!   one that ends in silence is followed by a look at the consumer.
//! - **Buckets are made by hand**, since making them with the client fails with nats-server 2.9, and objects are
//!   read with plain requests, which need no consumer and survive reconnections.
//! - **What is written every few seconds lies in memory** (workers, owners, status) and is gone after a restart of the
//!   server, until [`Server::restore`] and the next writing. On disk it is not safe: when its disk runs full, nats-server
//!   2.9.10 leaves the buckets that were written to locked for good, and blocks every connection that asks for them.
//! - **Everything that can be lost is repeated**, and only what may happen twice: a publish that got no answer may
//!   have landed. Compare-and-swap is not repeated; it says that it does not know.
//! - **Leases end by this machine's clock.** The server accepts answers from holders whose lease ran out, even when
//!   the message has another holder. So what would harm that one (giving back, burying) is not sent any more; an
//!   acknowledgement is, since the work was done.
//! - **The results stream refuses when it is full.** Dropping old messages would drop results.
//! - **Limits are asked for, not insisted on.** A stream's limit is room set aside on the server; one with little disk
//!   gets a smaller stream, and a stream that is there keeps the limits that its operator gave it.

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
#[doc(hidden)]
pub use codec::fuzz_decoded;
pub use error::{KeyValueError, NatsError};
pub use key_value::{Change, KeyValue};
pub use layout::Layout;
pub use pulling::Rejected;
pub use queue::NatsQueue;
pub use server::{Connecting, ConnectionState, Server};
pub use setup::LaneStanding;
