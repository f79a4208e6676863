//! The limits of a server.

use std::time::Duration;

use super::key::ApiKey;
use crate::http_server::HttpLimits;

/// Who is let in, and how much a client may ask for.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// The API key that clients must send; without one, all clients are accepted.
    pub key: Option<ApiKey>,
    /// Connections, and how long headers may take.
    pub http: HttpLimits,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// Bytes of bodies that are received or wait for their prompts to be encoded, of all requests together; further
    /// requests are refused.
    pub bodies: usize,
    /// The longest text of a prompt, in bytes, whatever the model's context has room for.
    pub max_prompt: usize,
    /// Bytes of long bodies and prompts that are read and encoded at the same time; further ones wait. Either takes about
    /// a hundred times as much memory for the moment.
    pub preparing: usize,
    /// The longest time that a body may take to arrive.
    pub body_time: Duration,
    /// Sequences that wait or are generated together; further requests are sent away.
    pub max_sequences: usize,
    /// How long answers may take to be told that the server stops, once it was asked to stop at once.
    pub farewell: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            key: None,
            http: HttpLimits::default(),
            max_body: 2 << 20,
            bodies: 32 << 20,
            max_prompt: 1 << 20,
            preparing: 2 << 20,
            body_time: Duration::from_secs(60),
            max_sequences: 1024,
            farewell: Duration::from_secs(2),
        }
    }
}
