//! How the process ends, decided in one place.

use std::io;
use std::process::ExitCode;

use lumos_engine::LoadError;
use lumos_worker::model::LoadModelError;
use lumos_worker::tools::ToolSetError;

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
const DISK_FULL: &str = "recorded outcomes are safe; free disk space and run the same command again";

/// What to do about a lack of memory or threads.
const EXHAUSTED: &str = "recorded outcomes are safe; raise the memory limit (`ulimit -v unlimited`, or the container's) and \
                         run the same command again";

/// An error with the exit code it ends the process with and, where there is one, a way out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// Wrong usage or bad input; a fault where the machine lacked memory or threads for it.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let exit = if is_exhaustion(&error) { Exit::Fault } else { Exit::Usage };
        Self { exit, error, hint: None }
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
        let usual = || match () {
            () if self.is_disk_full() => Some(DISK_FULL),
            () if is_exhaustion(&self.error) => Some(EXHAUSTED),
            () => None,
        };
        if let Some(hint) = self.hint.as_deref().or_else(usual) {
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

/// Whether an error comes of a lack of memory or threads.
fn is_exhaustion(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let model = cause.downcast_ref::<LoadModelError>().is_some_and(|error| error.is_exhaustion);
        let engine = cause.downcast_ref::<LoadError>().is_some_and(LoadError::is_exhaustion);
        let tool = matches!(
            cause.downcast_ref::<ToolSetError>(),
            Some(ToolSetError::Model { source, .. }) if source.is_exhaustion()
        );
        let system = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            // The second is what starting a thread fails with.
            matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock)
        });
        model || engine || tool || system
    })
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
    fn a_lack_of_threads_is_a_fault_of_the_machine_and_no_wrong_usage() {
        let lack = || LoadError::Thread { reason: "resource temporarily unavailable".to_owned() };
        let tool = ToolSetError::Model {
            tool: "rank".to_owned(),
            backend: "dpr:reader".to_owned(),
            source: Box::new(lack()),
        };
        for failure in [Failure::usage(lack()), Failure::usage(tool)] {
            assert_eq!(failure.exit, Exit::Fault);
            assert!(is_exhaustion(&failure.error));
        }
        assert_eq!(Failure::input("missing field").exit, Exit::Usage);
    }

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
