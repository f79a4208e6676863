//! HTTP for the crates that talk to servers: which hosts may be used, API keys that are never shown, `Retry-After`,
//! and a server with limits.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod client;
mod hosts;
mod server;

pub use access::{AccessPolicy, AccessRefusal};
pub use client::{ServerKey, retry_after};
pub use hosts::{AllowedHosts, bypasses_proxy, is_loopback, is_private};
pub use server::{HttpLimits, serve};
