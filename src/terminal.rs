//! Output to a terminal: logging to standard error, as text or JSON lines, and whether output has colours: on a terminal,
//! unless `NO_COLOR` is set (<https://no-color.org>).

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::progress::write_line;

/// Starts logging. `LUMOS_LOG` uses the filter syntax of tracing and takes precedence over `-v`, unless it is empty or
/// invalid.
pub(crate) fn start_logging(verbosity: u8, quiet: bool, format: LogFormat) {
    let default = match (quiet, verbosity) {
        (true, _) => "error",
        // Downloads of models take long, so their progress is logged, and so are long pauses of requests.
        (false, 0) => "warn,lumos_models::hub=info,lumos_http=info",
        (false, 1) => "warn,lumos=info,lumos_worker=info,lumos_coordinator=info,lumos_engine=info",
        (false, 2) => "warn,lumos=debug,lumos_worker=debug,lumos_coordinator=debug,lumos_engine=debug",
        _ => "trace",
    };
    let filter = filter(std::env::var_os("LUMOS_LOG"), default).unwrap_or_else(|warning| {
        if !quiet {
            write_line(format_args!("warning: {warning}; using the default filter"));
        }
        EnvFilter::new(default)
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LineWriter(Vec::new()))
        .with_ansi(colours(&std::io::stderr()));
    // A second call (tests in one process) keeps the first logger.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // sled still logs while the main thread's thread-local storage is being destroyed. Filters need that
    // storage and would abort the process.
    log::set_max_level(log::max_level().min(log::LevelFilter::Info));
}

/// Returns the filter of a value of `LUMOS_LOG`, or the default filter if it is not set or empty.
///
/// # Errors
/// A message if the value is invalid.
fn filter(value: Option<OsString>, default: &str) -> Result<EnvFilter, String> {
    let value = value.unwrap_or_default();
    let invalid = |why: &str| format!("invalid value `{}` for LUMOS_LOG: {why}", value.display());
    let text = value.to_str().ok_or_else(|| invalid("expected UTF-8"))?.trim();
    let text = if text.is_empty() { default } else { text };
    EnvFilter::try_new(text).map_err(|error| invalid(&error.to_string()))
}

/// Collects the output of one log event, and writes it to standard error without disturbing the progress bar when
/// dropped.
struct LineWriter(Vec<u8>);

impl std::io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        crate::progress::suspended(|| {
            // The error cannot be reported if standard error is closed.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), &self.0);
        });
    }
}

/// Whether to write bold and coloured text to a stream. `NO_COLOR` turns it off everywhere, `CLICOLOR_FORCE` on for
/// streams that are not a terminal, and `TERM=dumb` off for terminals.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    decide(stream.is_terminal(), |name| std::env::var(name).unwrap_or_default())
}

fn decide(is_terminal: bool, variable: impl Fn(&str) -> String) -> bool {
    if !variable("NO_COLOR").is_empty() {
        return false;
    }
    let is_forced = !["", "0"].contains(&variable("CLICOLOR_FORCE").as_str());
    is_forced || (is_terminal && variable("TERM") != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_not_set_and_an_invalid_one_is_reported() {
        let parsed =
            |value: Option<&str>| filter(value.map(OsString::from), "warn").map(|filter| filter.to_string());
        for unset in [None, Some(""), Some(" ")] {
            assert_eq!(parsed(unset).as_deref(), Ok("warn"));
        }
        assert_eq!(parsed(Some("lumos=debug")).as_deref(), Ok("lumos=debug"));
        let message = parsed(Some("lumos=loud")).unwrap_err();
        assert!(message.starts_with("invalid value `lumos=loud` for LUMOS_LOG: "), "{message}");
    }

    #[test]
    fn no_color_takes_precedence_over_force_and_force_over_the_terminal() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|one| one.0 == name).map_or("", |one| one.1).to_owned()
        };
        assert!(decide(true, with(&[])) && !decide(false, with(&[])));
        assert!(
            decide(false, with(&[("CLICOLOR_FORCE", "1")]))
                && !decide(false, with(&[("CLICOLOR_FORCE", "0")]))
        );
        assert!(!decide(true, with(&[("TERM", "dumb")])) && decide(true, with(&[("TERM", "xterm")])));
        assert!(!decide(true, with(&[("NO_COLOR", "0"), ("CLICOLOR_FORCE", "1")])), "any value counts");
    }
}
