//! Errors of browsers: refused commands and infrastructure faults.

use fantoccini::error::{CmdError, ErrorStatus};
use thiserror::Error;

use crate::tool::ToolFault;

/// Errors of a browser command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BrowserError {
    /// Caused by the infrastructure; the session has ended.
    #[error(transparent)]
    Fault(#[from] BrowserFault),
    /// Caused by the page or the caller; the session remains usable.
    #[error(transparent)]
    Refused(#[from] BrowserRefusal),
}

/// A failure of the browser, its driver or the page's server. Not caused by the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{doing}: {reason}")]
pub(crate) struct BrowserFault {
    /// The operation that failed.
    pub(crate) doing: &'static str,
    /// The cause.
    pub(crate) reason: String,
}

impl BrowserFault {
    #[expect(clippy::needless_pass_by_value, reason = "errors and strings are passed")]
    pub(super) fn new(doing: &'static str, reason: impl ToString) -> Self {
        let mut reason = reason.to_string();
        // Drivers append a stack trace.
        if let Some(end) = reason.find("\nStacktrace:").or_else(|| reason.find("\n#0 ")) {
            reason.truncate(end);
        }
        Self { doing, reason: reason.trim().to_owned() }
    }
}

impl From<BrowserFault> for ToolFault {
    fn from(fault: BrowserFault) -> Self {
        Self { tool: "browser".into(), message: fault.to_string() }
    }
}

/// A command that the page or the list of allowed hosts rejects.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BrowserRefusal {
    /// No visible element matches.
    #[error("{0} not found")]
    NotFound(String),
    /// The element no longer exists: the page has changed.
    #[error("the element is no longer on the page")]
    Gone,
    /// The element exists, but cannot be used: hidden, covered or disabled. Contains the message of the driver.
    #[error("element not usable: {0}")]
    NotUsable(String),
    /// The address is not allowed, or the page redirected to an address that is not allowed.
    #[error("address `{0}` is not allowed")]
    NotAllowed(String),
    /// The page, or the text to type, exceeds the size limit.
    #[error("{bytes} bytes exceed the limit of {most} bytes")]
    TooLarge {
        /// Size in bytes.
        bytes: usize,
        /// Limit in bytes.
        most: usize,
    },
}

/// Classifies a driver error as a refusal or a fault.
pub(super) fn read(doing: &'static str, error: &CmdError) -> BrowserError {
    let CmdError::Standard(said) = error else { return BrowserFault::new(doing, error).into() };
    let reason = said.message.lines().next().unwrap_or_default().trim().to_owned();
    match said.error {
        ErrorStatus::NoSuchElement => BrowserRefusal::NotFound(reason).into(),
        ErrorStatus::StaleElementReference | ErrorStatus::DetachedShadowRoot => BrowserRefusal::Gone.into(),
        ErrorStatus::ElementClickIntercepted
        | ErrorStatus::ElementNotInteractable
        | ErrorStatus::ElementNotSelectable
        | ErrorStatus::InvalidElementState
        | ErrorStatus::MoveTargetOutOfBounds => BrowserRefusal::NotUsable(reason).into(),
        _ => BrowserFault::new(doing, error).into(),
    }
}
