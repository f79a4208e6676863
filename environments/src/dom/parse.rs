//! Parses a page's XML into a [`Tree`](super::Tree) within size limits.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use thiserror::Error;

use super::tree::{Builder, Tree};

/// Maximum size of a page in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum nesting depth of elements, which is the limit of the original's parser (libxml2).
const MAX_DEPTH: usize = 256;
/// Maximum number of elements in a page.
const MAX_ELEMENTS: usize = 2_000_000;
/// Maximum number of attributes of an element.
const MAX_ATTRIBUTES: usize = 1_000;

/// Errors of parsing a page. The limits bound time and memory for hostile pages.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PageError {
    /// The page is longer than 64 MiB.
    #[error("the page has {bytes} bytes, more than {most}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// Elements are nested deeper than 256, the limit of the original's parser.
    #[error("elements are nested deeper than {most} (byte {byte})")]
    TooDeep {
        /// The limit.
        most: usize,
        /// Offset of the first element beyond it.
        byte: u64,
    },
    /// The page has more than two million elements, or an element has more than 1,000 attributes.
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

impl Tree {
    /// Parses a page. Skips comments and processing instructions.
    ///
    /// # Errors
    /// Fails if the page is not well-formed XML or exceeds the limits.
    pub fn parse(page: &str) -> Result<Self, PageError> {
        if page.len() > MAX_BYTES {
            return Err(PageError::TooLong { bytes: page.len(), most: MAX_BYTES });
        }
        let mut reader = Reader::from_str(page);
        let mut builder = Builder::new();
        loop {
            let event = reader.read_event();
            let byte = reader.buffer_position();
            let malformed = |reason: String| PageError::Malformed { reason, byte };
            match event.map_err(|error| malformed(error.to_string()))? {
                Event::Start(start) => open(&mut builder, &start, byte)?,
                Event::Empty(start) => {
                    open(&mut builder, &start, byte)?;
                    builder.close();
                }
                Event::End(_) => builder.close(),
                Event::Text(text) => characters(&mut builder, &text.xml10_content(), byte)?,
                Event::CData(text) => characters(&mut builder, &text.xml10_content(), byte)?,
                Event::GeneralRef(reference) => {
                    let resolved =
                        reference.resolve_char_ref().map_err(|error| malformed(error.to_string()))?;
                    match resolved {
                        Some(character) => {
                            characters(&mut builder, character.encode_utf8(&mut [0; 4]), byte)?;
                        }
                        None => {
                            let name = reference.xml10_content();
                            let text = quick_xml::escape::resolve_predefined_entity(&name);
                            let text = text.ok_or_else(|| malformed(format!("no entity `&{name};`")))?;
                            characters(&mut builder, text, byte)?;
                        }
                    }
                }
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::DocType(_) => {}
                Event::Eof => {
                    if builder.depth() > 0 {
                        return Err(malformed("the page ends within an element".to_owned()));
                    }
                    if builder.elements() == 0 {
                        return Err(malformed("there is no element".to_owned()));
                    }
                    return Ok(builder.finish());
                }
            }
        }
    }
}

fn open(builder: &mut Builder, start: &BytesStart<'_>, byte: u64) -> Result<(), PageError> {
    if builder.depth() == 0 && builder.elements() > 0 {
        return Err(PageError::Malformed { reason: "a second root element".to_owned(), byte });
    }
    if builder.depth() >= MAX_DEPTH {
        return Err(PageError::TooDeep { most: MAX_DEPTH, byte });
    }
    if builder.elements() >= MAX_ELEMENTS {
        return Err(PageError::TooMany { what: "elements", most: MAX_ELEMENTS, byte });
    }
    builder.open(start.name().as_ref());
    for (count, attribute) in start.attributes().enumerate() {
        if count == MAX_ATTRIBUTES {
            return Err(PageError::TooMany { what: "attributes of an element", most: MAX_ATTRIBUTES, byte });
        }
        let malformed = |reason: String| PageError::Malformed { reason, byte };
        let attribute = attribute.map_err(|error| malformed(error.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| malformed(error.to_string()))?;
        builder.attribute(attribute.key.as_ref(), &value);
    }
    builder.opened();
    Ok(())
}

fn characters(builder: &mut Builder, text: &str, byte: u64) -> Result<(), PageError> {
    if builder.depth() > 0 {
        builder.characters(text);
        return Ok(());
    }
    let blank = text.chars().all(|character| character.is_whitespace() || character == '\u{feff}');
    let reason = || "characters outside the root element".to_owned();
    if blank { Ok(()) } else { Err(PageError::Malformed { reason: reason(), byte }) }
}
