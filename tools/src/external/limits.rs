//! Limits of tools that are not part of the program, and their settings.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::backend::BackendError;

/// Maximum size of a reply in bytes.
pub(super) const LARGEST_REPLY: usize = 1 << 20;
/// A call that waits this long for others is reported.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// Time limit in seconds of a call to a program, and of an attempt of a request to a server.
const TIMEOUT: &str = "LUMOS_TOOL_TIMEOUT";
/// Address space of a program in GiB.
const MEMORY: &str = "LUMOS_TOOL_MEMORY";
/// Number of processes of a program, and of calls in progress.
const PROCESSES: &str = "LUMOS_TOOL_PROCESSES";

/// Requests per second to a server.
const RATE: &str = "LUMOS_TOOL_RATE";

/// Limits of one tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolLimits {
    /// Time limit of a call to a program, and of each attempt of a request to a server.
    pub(super) call: Duration,
    /// Address space of a process in bytes. `None`: no limit.
    pub(super) memory: Option<u64>,
    /// Maximum number of calls in progress, and of processes of a program that answers one call at a time.
    pub(super) concurrency: usize,
    /// Minimum time between two requests to a server.
    pub(super) pace: Duration,
}

impl Default for ToolLimits {
    /// 30 s, 4 GiB, 4 calls in progress, no pace.
    fn default() -> Self {
        Self { call: Duration::from_secs(30), memory: Some(4 << 30), concurrency: 4, pace: Duration::ZERO }
    }
}

impl ToolLimits {
    /// Reads the limits from `LUMOS_TOOL_TIMEOUT` (seconds), `LUMOS_TOOL_MEMORY` (GiB, 0 for no limit),
    /// `LUMOS_TOOL_PROCESSES` and `LUMOS_TOOL_RATE` (requests/s).
    pub(super) fn from_environment() -> Result<Self, BackendError> {
        Self::from_values(|name| std::env::var(name).ok())
    }

    fn from_values(value: impl Fn(&str) -> Option<String>) -> Result<Self, BackendError> {
        let number = |name: &str, range: std::ops::RangeInclusive<u64>| {
            let Some(text) = value(name).filter(|text| !text.is_empty()) else { return Ok(None) };
            let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
            number.map(Some).ok_or_else(|| {
                BackendError::Unusable(format!(
                    "invalid value `{text}` for {name}: expected a whole number from {} to {}",
                    range.start(),
                    range.end()
                ))
            })
        };
        let mut limits = Self::default();
        if let Some(seconds) = number(TIMEOUT, 1..=86_400)? {
            limits.call = Duration::from_secs(seconds);
        }
        if let Some(gibibytes) = number(MEMORY, 0..=65_536)? {
            limits.memory = (gibibytes > 0).then_some(gibibytes << 30);
        }
        if let Some(processes) = number(PROCESSES, 1..=256)? {
            limits.concurrency = usize::try_from(processes).unwrap_or(1);
        }
        if let Some(rate) = value(RATE).filter(|rate| !rate.is_empty()) {
            limits.pace = lumos_http::pace_of_rate(RATE, &rate).map_err(BackendError::Unusable)?;
        }
        Ok(limits)
    }
}

/// Waits until another call of a tool may start. Warns if that takes long: each call before it takes at most its time
/// limit, or as long as the attempts of its request and the pauses between them.
pub(super) async fn turn<'a>(tool: &str, calls: &'a Semaphore) -> Option<SemaphorePermit<'a>> {
    let permit = calls.acquire();
    tokio::pin!(permit);
    loop {
        match tokio::time::timeout(LONG_WAIT, &mut permit).await {
            Ok(permit) => return permit.ok(),
            Err(_) => tracing::warn!(
                tool,
                "a call has waited {} s for other calls of the tool; hint: set {PROCESSES} to allow more at a time",
                LONG_WAIT.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_in_a_range() {
        let read = |name: &'static str, text: &'static str| {
            ToolLimits::from_values(move |asked| (asked == name).then(|| text.to_owned()))
        };
        assert_eq!(read(TIMEOUT, "5").unwrap().call, Duration::from_secs(5));
        assert_eq!(read(TIMEOUT, "").unwrap().call, Duration::from_secs(30));
        assert_eq!(read(MEMORY, "8").unwrap().memory, Some(8 << 30));
        assert_eq!(read(MEMORY, "0").unwrap().memory, None);
        assert_eq!(read(PROCESSES, "16").unwrap().concurrency, 16);
        for (name, text) in [
            (TIMEOUT, "0"),
            (TIMEOUT, "a"),
            (MEMORY, "-1"),
            (PROCESSES, "0"),
            (PROCESSES, "1.5"),
            (RATE, "0"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(text), "{error}");
        }
    }
}
