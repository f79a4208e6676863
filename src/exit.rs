//! Exit codes and error output of the process.
//!
//! Every command returns an [`CommandResult`]: an [`Exit`] code, or a [`Failure`] with an error, an exit code and
//! an optional hint.

use std::io;
use std::process::ExitCode;

use lumos_engine::LoadError;
use lumos_models::LoadModelError;
use lumos_tools::ToolSetError;

use crate::progress::write_line;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything requested is done.
    Complete = 0,
    /// An error of lumos or of the machine.
    Fault = 1,
    /// The command line or an input is invalid.
    Usage = 2,
    /// No items are selected.
    NothingSelected = 4,
    /// Items are outstanding or faulted; the same command resumes the run. Or a gate cannot tell.
    Outstanding = 5,
    /// A check failed: a replay differs, a threshold was missed, or a gate failed.
    CheckFailed = 100,
    /// Interrupted; recorded outcomes are safe.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Hint for a full disk.
const DISK_FULL: &str = "recorded outcomes are safe; free disk space and run the same command again";

/// Hint for a lack of memory or threads.
const EXHAUSTED: &str = "recorded outcomes are safe; raise the memory limit (`ulimit -v unlimited`, or the container's) and \
                         run the same command again";

/// An error with its exit code and an optional hint.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// Creates an error for invalid usage or input; a fault if the cause is a lack of memory or threads.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let exit = if is_exhaustion(&error) { Exit::Fault } else { Exit::Usage };
        Self { exit, error, hint: None }
    }

    /// Creates an error for invalid usage or input from a message.
    pub(crate) fn input(message: impl std::fmt::Display) -> Self {
        Self::usage(anyhow::anyhow!("{message}"))
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the error to standard error.
    pub(crate) fn report(&self) {
        // The reader of the output has closed the pipe (`lumos ls | head`).
        if self.is_io(io::ErrorKind::BrokenPipe) {
            return;
        }
        let (message, mut hints) = self.told();
        let disk_full = || self.is_disk_full().then_some(DISK_FULL);
        let exhausted = || is_exhaustion(&self.error).then_some(EXHAUSTED);
        hints.extend(self.hint.as_deref().or_else(disk_full).or_else(exhausted).map(str::to_owned));
        write_line(format_args!("error: {message}"));
        for hint in hints {
            write_line(format_args!("hint: {hint}"));
        }
    }

    /// The error and its causes, and the hints in their messages. A cause or a hint that was told already is not repeated.
    fn told(&self) -> (String, Vec<String>) {
        let (mut message, mut hints) = (String::new(), Vec::new());
        for cause in self.error.chain().map(ToString::to_string) {
            let mut lines = Vec::new();
            for line in cause.lines() {
                let mut parts = line.split("; hint: ");
                lines.extend(parts.next());
                for hint in parts {
                    if !hints.iter().any(|told| told == hint) {
                        hints.push(hint.to_owned());
                    }
                }
            }
            let cause = lines.join("\n");
            if message.is_empty() {
                message = cause;
            } else if !message.contains(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        (message, hints)
    }

    /// Whether the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.is_io(io::ErrorKind::StorageFull)
    }

    fn is_io(&self, kind: io::ErrorKind) -> bool {
        let mut io = self.error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        io.any(|error| error.kind() == kind)
    }
}

/// Whether an error is caused by a lack of memory or threads.
fn is_exhaustion(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let model = cause.downcast_ref::<LoadModelError>().is_some_and(|error| error.is_exhaustion);
        let engine = cause.downcast_ref::<LoadError>().is_some_and(LoadError::is_exhaustion);
        let tool = matches!(
            cause.downcast_ref::<ToolSetError>(),
            Some(ToolSetError::Model { source, .. }) if source.is_exhaustion()
        );
        let system = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            // The second kind is the error of starting a thread.
            matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock)
        });
        model || engine || tool || system
    })
}

/// All other errors are faults.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Fault, error: error.into(), hint: None }
    }
}

/// Result of a command.
pub(crate) type CommandResult = Result<Exit, Failure>;

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
        assert_eq!(failure.told().0, format!("results.json: {text}"));
        assert!(failure.is_disk_full());
        let failure = Failure::from(anyhow::anyhow!("cause").context("what was tried"));
        assert_eq!(failure.told(), ("what was tried: cause".to_owned(), Vec::new()));
        assert!(!failure.is_disk_full());
    }

    #[test]
    fn hints_in_messages_are_told_once_and_after_the_message() {
        let cause = "model.gguf is not valid: too short; hint: copy the file again";
        let failure = Failure::from(anyhow::anyhow!(cause).context(format!("planner x: {cause}")));
        let hints = vec!["copy the file again".to_owned()];
        assert_eq!(failure.told(), ("planner x: model.gguf is not valid: too short".to_owned(), hints));
    }
}
