//! Errors of browsers: refusals by a page, and faults of the infrastructure.

use fantoccini::error::{CmdError, ErrorStatus};
use thiserror::Error;

use crate::tools::ToolFault;

/// A command that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BrowserError {
    /// The infrastructure's doing; the session has ended.
    #[error(transparent)]
    Fault(#[from] BrowserFault),
    /// The page's or the caller's doing; the session goes on.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The browser, its driver or the page's server did not do what they are there for. Says nothing about the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{doing}: {reason}")]
pub struct BrowserFault {
    /// What was being done.
    pub doing: &'static str,
    /// What happened.
    pub reason: String,
}

impl BrowserFault {
    #[expect(clippy::needless_pass_by_value, reason = "errors and strings are passed")]
    pub(super) fn new(doing: &'static str, reason: impl ToString) -> Self {
        let mut reason = reason.to_string();
        // Drivers append their own stack.
        if let Some(end) = reason.find("\nStacktrace:").or_else(|| reason.find("\n#0 ")) {
            reason.truncate(end);
        }
        Self { doing, reason: reason.trim().to_owned() }
    }
}

impl From<BrowserFault> for ToolFault {
    fn from(fault: BrowserFault) -> Self {
        Self { tool: "browser", message: fault.to_string() }
    }
}

/// What a page or an address does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No visible element is like that.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The element is there no longer: the page has changed.
    #[error("the element is no longer on the page")]
    Gone,
    /// The element is there, but a person could not use it so: hidden, covered, disabled.
    #[error("element not usable: {reason}")]
    NotUsable {
        /// What the driver says.
        reason: String,
    },
    /// The address is none that may be visited, or the page led to such a one.
    #[error("address `{address}` is not allowed")]
    NotAllowed {
        /// The address.
        address: String,
    },
    /// The page, or the text to be typed, is larger than what is taken.
    #[error("{bytes} bytes exceed the limit of {most} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// What is taken.
        most: usize,
    },
}

/// Reads what a driver says of a command.
pub(super) fn read(doing: &'static str, error: &CmdError) -> BrowserError {
    if let CmdError::Standard(said) = error {
        let not_usable = || Refusal::NotUsable { reason: first_line(&said.message) };
        match said.error {
            ErrorStatus::NoSuchElement => {
                return Refusal::NotFound { what: first_line(&said.message) }.into();
            }
            ErrorStatus::StaleElementReference | ErrorStatus::DetachedShadowRoot => {
                return Refusal::Gone.into();
            }
            ErrorStatus::ElementClickIntercepted
            | ErrorStatus::ElementNotInteractable
            | ErrorStatus::ElementNotSelectable
            | ErrorStatus::InvalidElementState
            | ErrorStatus::MoveTargetOutOfBounds => return not_usable().into(),
            _ => {}
        }
    }
    BrowserFault::new(doing, error).into()
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim().to_owned()
}
