//! How the process ends, decided in one place.

use std::io;
use std::process::ExitCode;

/// What the process's exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for is done.
    Complete = 0,
    /// Lumos itself, or the machine below it, failed.
    Fault = 1,
    /// The command line or an input is wrong.
    Usage = 2,
    /// The selection holds no item.
    NothingSelected = 4,
    /// Items are outstanding or faulted; the same command goes on with them.
    Outstanding = 5,
    /// A check failed: a replay differs, a threshold was missed.
    CheckFailed = 100,
    /// Interrupted; what was recorded is safe.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What to do about a full disk.
const DISK_FULL: &str = "what was recorded so far is safe; free some space and start the same command again";

/// An error with the exit code it ends the process with and, where there is one, a way out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// Wrong usage or bad input.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into(), hint: None }
    }

    /// Wrong usage or bad input, in words.
    pub(crate) fn input(message: impl std::fmt::Display) -> Self {
        Self::usage(anyhow::anyhow!("{message}"))
    }

    /// The same failure with a way out.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells a person, on standard error.
    pub(crate) fn report(&self) {
        // Whoever read the output has seen enough (`lumos ls | head`).
        if self.is_io(io::ErrorKind::BrokenPipe) {
            return;
        }
        eprintln!("error: {}", self.message());
        if let Some(hint) = self.hint.as_deref().or_else(|| self.is_disk_full().then_some(DISK_FULL)) {
            eprintln!("hint: {hint}");
        }
    }

    /// The error with its causes; a cause that the error names already is not told twice.
    fn message(&self) -> String {
        self.error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
            "" => cause,
            _ if told.contains(&cause) => told,
            _ => format!("{told}: {cause}"),
        })
    }

    fn is_disk_full(&self) -> bool {
        self.is_io(io::ErrorKind::StorageFull)
    }

    fn is_io(&self, kind: io::ErrorKind) -> bool {
        let mut io = self.error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        io.any(|error| error.kind() == kind)
    }
}

/// Whatever else goes wrong is a fault of the harness.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Fault, error: error.into(), hint: None }
    }
}

/// What a command gives.
pub(crate) type Outcome = Result<Exit, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_a_full_disk_has_a_hint() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let text = full.to_string();
        let failure = Failure::from(anyhow::Error::new(full).context(format!("results.json: {text}")));
        assert_eq!(failure.message(), format!("results.json: {text}"));
        assert!(failure.is_disk_full());
        let failure = Failure::from(anyhow::anyhow!("cause").context("what was tried"));
        assert_eq!(failure.message(), "what was tried: cause");
        assert!(!failure.is_disk_full());
    }
}
