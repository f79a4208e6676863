//! When a request is retried: growing pauses with jitter, and the time that a service asks for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::sleep;
use url::Url;

use crate::hosts::host_and_port;
use crate::{HttpClient, HttpError};

/// Pauses from this length on are logged as information, shorter ones for debugging.
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// The retries of a request.
pub(crate) struct Retries<'a> {
    client: &'a HttpClient,
    url: &'a str,
    pauses: ExponentialBackoff,
    made: usize,
}

impl<'a> Retries<'a> {
    /// Prepares the retries of a request to a URL, none if it is sent `once`.
    pub(crate) fn new(client: &'a HttpClient, url: &'a str, once: bool) -> Self {
        let settings = &client.settings;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(settings.first_pause.max(Duration::from_millis(1)))
            .with_max_delay(settings.longest_pause)
            .with_max_times(if once { 0 } else { settings.retries })
            .with_jitter()
            .build();
        Self { client, url, pauses, made: 0 }
    }

    /// Waits before the next attempt. If the service asks for a pause, all requests of the client wait for it.
    ///
    /// # Errors
    /// The error of the last attempt, if no retry is left or another attempt would not help.
    pub(crate) async fn pause(&mut self, mut error: HttpError) -> Result<(), HttpError> {
        let HttpClient { settings, pace, has_responded, .. } = self.client;
        let asked = error.response.as_ref().and_then(|response| retry_after(response.header("retry-after")?));
        let after = asked.filter(|_| error.again).unwrap_or_default();
        let is_too_long = after > settings.longest_pause;
        if is_too_long {
            error.message = format!("{error} (Retry-After: {} s)", after.as_secs());
        }
        if let Some(key) = &settings.key {
            error.message = key.redact(&error.message);
        }
        let is_unreachable = self.made >= settings.first_retries && !has_responded.load(Ordering::Relaxed);
        // Also if this request has no retry left.
        if !after.is_zero() && !is_too_long {
            pace.rest(after);
        }
        let pause = self.pauses.next().filter(|_| error.again && !is_too_long && !is_unreachable);
        let Some(pause) = pause else { return Err(error) };
        self.made += 1;
        // The jittered pause is added to Retry-After, so that clients do not all retry at the same moment.
        let pause = after + pause;
        let host = Url::parse(self.url).map(|url| host_and_port(&url)).unwrap_or_default();
        if pause >= LONG_PAUSE {
            tracing::info!(host, %error, ?pause, "retrying a request");
        } else {
            tracing::debug!(host, %error, ?pause, "retrying a request");
        }
        sleep(pause).await;
        Ok(())
    }
}

/// Parses a `Retry-After` value: seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
    let left = date.duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_seconds_or_dates() {
        assert_eq!(retry_after("2"), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let soon = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_secs(90)).unwrap();
        let soon = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon).unwrap();
        let pause = retry_after(&soon).unwrap();
        assert!((80..=90).contains(&pause.as_secs()), "{soon}: {pause:?}");
        for nonsense in ["-1", "soon", "", "NaN", "1e300"] {
            assert_eq!(retry_after(nonsense), None, "{nonsense}");
        }
    }
}
