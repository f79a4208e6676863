//! What can be wrong with a page, or with what is asked of it.

use thiserror::Error;

/// Why a page cannot be read. The limits keep hostile pages from taking time and memory without bound.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PageError {
    /// The page is longer than [`MAX_BYTES`](super::MAX_BYTES).
    #[error("the page has {bytes} bytes, more than {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most that is read.
        most: usize,
    },
    /// Elements stand in one another deeper than [`MAX_DEPTH`](super::MAX_DEPTH), the limit of the original's parser.
    #[error("elements are nested deeper than {most} (byte {byte})")]
    TooDeep {
        /// The most levels that are read.
        most: usize,
        /// Where the first element beyond it starts.
        byte: u64,
    },
    /// The page has more elements than [`MAX_ELEMENTS`](super::MAX_ELEMENTS), or an element more attributes than
    /// [`MAX_ATTRIBUTES`](super::MAX_ATTRIBUTES).
    #[error("more than {most} {what} (byte {byte})")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The most that are read.
        most: usize,
        /// Where the first one beyond it starts.
        byte: u64,
    },
    /// The page is no well-formed XML.
    #[error("not well-formed XML: {reason} (byte {byte})")]
    Malformed {
        /// What is wrong.
        reason: String,
        /// Where.
        byte: u64,
    },
}

/// Why a page's text cannot be written. The original raises the named exception.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// No element has the candidate's id, or the candidate has lost it while the page was pruned.
    #[error("no element of the page has the id `{0}`")]
    NoSuchElement(String),
    /// The candidate is a `text` element, which is none of its own siblings.
    #[error("the element with the id `{0}` is text")]
    CandidateIsText(String),
    /// A `text` element holds nothing.
    #[error("a `text` element holds nothing")]
    EmptyText,
    /// The page's root is a `text` element.
    #[error("the root of the page is a `text` element")]
    RootIsText,
    /// The candidates' texts together are longer than [`MAX_TEXT`](super::MAX_TEXT).
    #[error("the texts of the page's candidates are longer than {most} bytes in all")]
    TooMuchText {
        /// The most that is written.
        most: usize,
    },
}

impl TextError {
    /// The exception the original raises; `None` where it would go on.
    pub fn exception(&self) -> Option<&'static str> {
        match self {
            Self::NoSuchElement(_) => Some("IndexError"),
            Self::CandidateIsText(_) => Some("ValueError"),
            Self::EmptyText | Self::RootIsText => Some("AttributeError"),
            Self::TooMuchText { .. } => None,
        }
    }
}
