//! HTTP for the crates that talk to servers: a client with retries and limits, which hosts may be used, API keys that
//! are never shown, and a server with limits.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod api_key;
mod client;
mod download;
mod hosts;
mod key;
mod limiter;
mod message;
mod pace;
mod retries;
mod server;

pub use access::{AccessPolicy, AccessRefusal};
pub use api_key::ApiKey;
pub use client::{HttpClient, HttpSettings, RedirectRule};
pub use download::{DownloadError, DownloadHash, HttpDownload, sha256_of_file};
pub use hosts::{AllowedHosts, host_and_port, is_loopback, is_loopback_host, is_private, requested_host};
pub use key::ServerKey;
pub use limiter::{ConcurrencyBounds, LimiterSummary, ServerLoad};
pub use message::{HttpError, HttpRequest, HttpResponse};
pub use pace::pace_of_rate;
pub use server::{HttpLimits, serve};
