//! Builds a search index.
//!
//! [`ProductIndexBuilder`] tokenizes documents, counts their terms and writes the bytes that [`ProductIndex`](super::ProductIndex)
//! searches.

use std::collections::HashMap;

use super::super::sections::Writer;
use super::analysis::terms;
use super::index::{MAGIC, encode};

/// Adds documents in order and writes their index.
#[derive(Debug, Default)]
pub(in crate::shop) struct ProductIndexBuilder {
    numbers: HashMap<Box<str>, u32>,
    postings: Vec<Postings>,
    /// The length of each document in one byte.
    lengths: Vec<u8>,
    /// Total number of words.
    words: u64,
    /// Documents with at least one word.
    with_words: u64,
    /// Terms of the current document.
    terms: Vec<u32>,
}

/// The occurrences of a term, each as the distance from the previous document and a count.
#[derive(Debug, Default)]
struct Postings {
    bytes: Vec<u8>,
    last: u32,
    documents: u32,
}

impl ProductIndexBuilder {
    /// Adds the next document.
    pub(in crate::shop) fn add(&mut self, text: &str) {
        let document = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
        let Self { numbers, postings, terms: of_document, .. } = self;
        of_document.clear();
        terms(text, |term| {
            let number = numbers.get(term).copied().unwrap_or_else(|| {
                let number = u32::try_from(postings.len()).unwrap_or(u32::MAX);
                postings.push(Postings::default());
                numbers.insert(term.into(), number);
                number
            });
            of_document.push(number);
        });
        of_document.sort_unstable();
        for together in of_document.chunk_by(|left, right| left == right) {
            let postings = together.first().and_then(|term| postings.get_mut(*term as usize));
            if let Some(postings) = postings {
                write_number(document - postings.last, &mut postings.bytes);
                write_number(u32::try_from(together.len()).unwrap_or(u32::MAX), &mut postings.bytes);
                postings.last = document;
                postings.documents += 1;
            }
        }
        let length = of_document.len();
        self.lengths.push(encode(u32::try_from(length).unwrap_or(u32::MAX)));
        self.words += length as u64;
        self.with_words += u64::from(length > 0);
    }

    /// Number of documents.
    pub(in crate::shop) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Writes the index as bytes for [`ProductIndex::open`](super::ProductIndex::open).
    pub(in crate::shop) fn build(self) -> Vec<u8> {
        let mut terms: Vec<(&str, u32)> =
            self.numbers.iter().map(|(term, number)| (&**term, *number)).collect();
        terms.sort_unstable();
        let (mut text, mut text_ends) = (Vec::new(), Vec::with_capacity(terms.len()));
        let (mut lists, mut list_ends) = (Vec::new(), Vec::with_capacity(terms.len()));
        let mut documents = Vec::with_capacity(terms.len());
        for (term, number) in terms {
            text.extend_from_slice(term.as_bytes());
            text_ends.push(text.len() as u64);
            if let Some(postings) = self.postings.get(number as usize) {
                lists.extend_from_slice(&postings.bytes);
                documents.push(postings.documents);
            }
            list_ends.push(lists.len() as u64);
        }
        let mut writer = Writer::new(MAGIC);
        writer.section([self.words, self.with_words].map(u64::to_le_bytes));
        writer.section([&self.lengths]);
        writer.section([&text]);
        writer.section(text_ends.into_iter().map(u64::to_le_bytes));
        writer.section([&lists]);
        writer.section(list_ends.into_iter().map(u64::to_le_bytes));
        writer.section(documents.into_iter().map(u32::to_le_bytes));
        writer.finish()
    }
}

/// Variable-length encoding: seven bits per byte; the highest bit is clear in the last byte.
fn write_number(mut number: u32, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
