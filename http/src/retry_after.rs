//! Parses the `Retry-After` header.

use std::time::Duration;

/// Parses a `Retry-After` value: seconds, or a date (RFC 9110, 10.2.3).
pub fn retry_after(value: &str) -> Option<Duration> {
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
        assert_eq!(retry_after("0.5"), Some(Duration::from_millis(500)));
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
