//! Errors of browsers: refused commands and infrastructure faults.

use fantoccini::error::{CmdError, ErrorStatus, NewSessionError};
use thiserror::Error;

use super::connection::ResponseTooLarge;
use crate::tool::ToolFault;

/// Maximum length of a reason, in bytes. Pages choose what drivers quote, and an error may quote a whole response.
const LONGEST_REASON: usize = 1 << 10;

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
        Self { doing, reason: shortened(reason.trim()) }
    }

    /// Creates the fault of a session that was not started.
    pub(super) fn not_started(doing: &'static str, error: &NewSessionError) -> Self {
        let too_large = match error {
            NewSessionError::Failed(error) => ResponseTooLarge::cause_of(error),
            NewSessionError::FailedC(error) => ResponseTooLarge::cause_of(error),
            NewSessionError::Lost(error) => ResponseTooLarge::cause_of(error),
            NewSessionError::UnexpectedError(error) => too_large(error),
            _ => None,
        };
        too_large.map_or_else(|| Self::new(doing, error), |cause| Self::new(doing, cause))
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
    let CmdError::Standard(said) = error else {
        let fault = too_large(error)
            .map_or_else(|| BrowserFault::new(doing, error), |cause| BrowserFault::new(doing, cause));
        return fault.into();
    };
    let reason = shortened(said.message.lines().next().unwrap_or_default().trim());
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

/// Returns the cause of a failed command, if it is a response that was too large.
fn too_large(error: &CmdError) -> Option<&ResponseTooLarge> {
    match error {
        CmdError::Failed(error) => ResponseTooLarge::cause_of(error),
        CmdError::FailedC(error) => ResponseTooLarge::cause_of(error),
        CmdError::Lost(error) => ResponseTooLarge::cause_of(error),
        _ => None,
    }
}

/// Truncates a long reason.
fn shortened(reason: &str) -> String {
    if reason.len() <= LONGEST_REASON {
        return reason.to_owned();
    }
    format!("{}…", &reason[..reason.floor_char_boundary(LONGEST_REASON)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short() {
        let quoted = CmdError::NotJson("é".repeat(1 << 20));
        let BrowserError::Fault(fault) = read("loading a page", &quoted) else { panic!() };
        assert!(fault.reason.starts_with("webdriver returned invalid response: é"), "{fault}");
        assert!(fault.reason.ends_with("é…") && fault.reason.len() <= LONGEST_REASON + '…'.len_utf8());
        let traced = BrowserFault::new("loading a page", " gone \nStacktrace:\n#0 0x1");
        assert_eq!(traced.reason, "gone");
    }
}
