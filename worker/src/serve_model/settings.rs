//! The bounds of a server.

use std::time::Duration;

use super::key::ApiKey;

/// Who is let in, and how much a client may ask for.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// The key that clients must show; everybody is let in where there is none.
    pub key: Option<ApiKey>,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
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
            max_body: 8 << 20,
            body_time: Duration::from_secs(60),
            max_sequences: 1024,
            farewell: Duration::from_secs(2),
        }
    }
}
