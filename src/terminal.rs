//! Logging to standard error, as text or JSON lines.

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Starts logging. `LUMOS_LOG` uses the filter syntax of tracing and takes precedence over `-v`.
pub(crate) fn start(verbosity: u8, quiet: bool, format: LogFormat) {
    let default = match (quiet, verbosity) {
        (true, _) => "error",
        // Downloads of models take long, so their progress is logged, and so are long pauses of requests.
        (false, 0) => "warn,lumos_models::hub=info,lumos_http=info",
        (false, 1) => "warn,lumos=info,lumos_worker=info,lumos_coordinator=info,lumos_engine=info",
        (false, 2) => "warn,lumos=debug,lumos_worker=debug,lumos_coordinator=debug,lumos_engine=debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("LUMOS_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LineWriter(Vec::new()))
        .with_ansi(crate::colour::colours(&std::io::stderr()));
    // A second call (tests in one process) keeps the first logger.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // sled still logs while the main thread's thread-local storage is being destroyed. Filters need that
    // storage and would abort the process.
    log::set_max_level(log::max_level().min(log::LevelFilter::Info));
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
