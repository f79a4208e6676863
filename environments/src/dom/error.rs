//! Errors of parsing pages ([`PageError`]) and of writing their texts ([`TextError`]).

use thiserror::Error;

/// Errors of parsing a page. The limits bound time and memory for hostile pages.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PageError {
    /// The page is longer than [`MAX_BYTES`](super::MAX_BYTES).
    #[error("the page has {bytes} bytes, more than {most}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// Elements are nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH), the limit of the original's parser.
    #[error("elements are nested deeper than {most} (byte {byte})")]
    TooDeep {
        /// The limit.
        most: usize,
        /// Offset of the first element beyond it.
        byte: u64,
    },
    /// The page has more elements than [`MAX_ELEMENTS`](super::MAX_ELEMENTS), or an element has more
    /// attributes than [`MAX_ATTRIBUTES`](super::MAX_ATTRIBUTES).
    #[error("more than {most} {what} (byte {byte})")]
    TooMany {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        most: usize,
        /// Offset of the first one beyond it.
        byte: u64,
    },
    /// The page is not well-formed XML.
    #[error("not well-formed XML: {reason} (byte {byte})")]
    Malformed {
        /// The parser's error.
        reason: String,
        /// Offset of the error.
        byte: u64,
    },
}

/// Errors of writing a page's text. In these cases the original raises an exception.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// No element has the candidate's id, or the candidate lost its id while the page was pruned.
    #[error("no element of the page has the id `{0}`")]
    NoSuchElement(String),
    /// The candidate is a `text` element, which is not one of its own siblings.
    #[error("the element with the id `{0}` is text")]
    CandidateIsText(String),
    /// A `text` element is empty.
    #[error("a `text` element holds nothing")]
    EmptyText,
    /// The page's root is a `text` element.
    #[error("the root of the page is a `text` element")]
    RootIsText,
    /// The candidates' texts together are longer than [`MAX_TEXT`](super::MAX_TEXT).
    #[error("the texts of the page's candidates are longer than {most} bytes in all")]
    TooMuchText {
        /// The limit in bytes.
        most: usize,
    },
}

impl TextError {
    /// The exception that the original raises; `None` if it would continue.
    pub fn exception(&self) -> Option<&'static str> {
        match self {
            Self::NoSuchElement(_) => Some("IndexError"),
            Self::CandidateIsText(_) => Some("ValueError"),
            Self::EmptyText | Self::RootIsText => Some("AttributeError"),
            Self::TooMuchText { .. } => None,
        }
    }
}
