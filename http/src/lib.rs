//! HTTP for the crates that talk to servers: which hosts may be used, API keys that are never shown, `Retry-After`,
//! and a server with limits.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod hosts;
mod retry_after;
mod server;
mod server_key;

pub use access::{AccessPolicy, AccessRefusal};
pub use hosts::{AllowedHosts, bypasses_proxy, is_loopback, is_private};
pub use retry_after::retry_after;
pub use server::{HttpLimits, serve};
pub use server_key::ServerKey;
