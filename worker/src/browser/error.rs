//! Errors of browsers: refusals by a page, and faults of the infrastructure.

use fantoccini::error::{CmdError, ErrorStatus};
use thiserror::Error;

use crate::tools::ToolFault;

/// Errors of a browser command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BrowserError {
    /// Caused by the infrastructure; the session has ended.
    #[error(transparent)]
    Fault(#[from] BrowserFault),
    /// Caused by the page or the caller; the session remains usable.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A failure of the browser, its driver or the page's server; not caused by the agent.
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

/// A command that the page or an address does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No visible element matches.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The element no longer exists: the page has changed.
    #[error("the element is no longer on the page")]
    Gone,
    /// The element exists, but cannot be used: hidden, covered or disabled.
    #[error("element not usable: {reason}")]
    NotUsable {
        /// The message of the driver.
        reason: String,
    },
    /// The address may not be visited, or the page led to such an address.
    #[error("address `{address}` is not allowed")]
    NotAllowed {
        /// The address.
        address: String,
    },
    /// The page, or the text to be typed, exceeds the size limit.
    #[error("{bytes} bytes exceed the limit of {most} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
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
