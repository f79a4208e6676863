//! Reads and searches an index.
//!
//! [`ProductIndex`] opens the bytes that the builder wrote and ranks documents with BM25. Scores and document
//! lengths have the same precision as in Lucene.

use std::cmp::Ordering;

use thiserror::Error;

use super::super::sections::{Bytes, Damaged, Sections, find};
use super::analysis::terms;

/// The first bytes of an index.
pub(super) const MAGIC: [u8; 8] = *b"lumosix2";

/// Anserini's BM25 parameters.
const K1: f32 = 0.9;
const B: f32 = 0.4;

/// Maximum number of distinct terms per query in Lucene.
const MOST_TERMS: usize = 1024;

/// A query with more distinct terms than Lucene allows; the original raises `TooManyClauses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a query of more than {MOST_TERMS} different terms")]
pub(in crate::shop) struct TooManyTerms;

/// Documents by their terms.
pub(in crate::shop) struct ProductIndex {
    bytes: Bytes,
    sections: Sections,
    documents: usize,
    with_words: u64,
    /// By the code of a length: the factor for a term's count.
    by_length: Vec<f32>,
}

impl std::fmt::Debug for ProductIndex {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Index").field("documents", &self.documents).finish_non_exhaustive()
    }
}

impl ProductIndex {
    /// Opens an index; reads only the table of its sections.
    ///
    /// # Errors
    /// Fails if the bytes are not an index, or are truncated.
    pub(in crate::shop) fn open(bytes: Bytes) -> Result<Self, Damaged> {
        let sections = Sections::read((*bytes).as_ref(), MAGIC, 7)?;
        let held = (*bytes).as_ref();
        let totals = sections.numbers(held, 0);
        let (words, with_words) = (totals.get(0).ok_or(Damaged)?, totals.get(1).ok_or(Damaged)?);
        let documents = sections.bytes(held, 1).len();
        // Lucene computes the average in double precision and everything else in single precision.
        let average = (words as f64 / with_words.max(1) as f64) as f32;
        let norm = |code: u8| 1.0 / (K1 * ((1.0 - B) + B * decode(code) as f32 / average));
        let by_length = (0..=255).map(norm).collect();
        Ok(Self { sections, documents, with_words, by_length, bytes })
    }

    /// Number of documents.
    pub(in crate::shop) fn len(&self) -> usize {
        self.documents
    }

    /// The best documents for a query with their scores, best first. Equal scores are ordered by
    /// `among_equals`.
    ///
    /// # Errors
    /// Fails if the query has too many distinct terms.
    pub(in crate::shop) fn search(
        &self,
        query: &str,
        most: usize,
        among_equals: impl Fn(u32, u32) -> Ordering,
    ) -> Result<Vec<(u32, f32)>, TooManyTerms> {
        let mut wanted: Vec<(String, f32)> = Vec::new();
        let mut too_many = false;
        terms(query, |term| {
            if let Some((_, count)) = wanted.iter_mut().find(|(known, _)| known == term) {
                *count += 1.0;
            } else if wanted.len() < MOST_TERMS {
                wanted.push((term.to_owned(), 1.0));
            } else {
                too_many = true;
            }
        });
        if too_many {
            return Err(TooManyTerms);
        }
        let held = (*self.bytes).as_ref();
        let lengths = self.sections.bytes(held, 1);
        let mut scores = vec![0.0f64; self.documents];
        for (term, count) in &wanted {
            let Some((list, with_term)) = self.postings(held, term.as_bytes()) else { continue };
            let (all, with) = (self.with_words as f64, f64::from(with_term));
            let weight = count * (1.0 + (all - with + 0.5) / (with + 0.5)).ln() as f32;
            for (document, occurrences) in Postings::new(list) {
                let (Some(score), Some(code)) =
                    (scores.get_mut(document as usize), lengths.get(document as usize))
                else {
                    break;
                };
                let norm = self.by_length.get(usize::from(*code)).copied().unwrap_or(1.0);
                *score += f64::from(weight - weight / (1.0 + occurrences as f32 * norm));
            }
        }
        Ok(best(&scores, most, among_equals))
    }

    /// The occurrences of a term, and the number of documents that contain it.
    fn postings<'a>(&self, held: &'a [u8], term: &[u8]) -> Option<(&'a [u8], u32)> {
        let text = self.sections.bytes(held, 2);
        let text_ends = self.sections.numbers(held, 3);
        let position = find(text_ends.len(), |place| Some(text_ends.range(place, text)?.cmp(term)))?;
        let lists = self.sections.bytes(held, 4);
        let list = self.sections.numbers(held, 5).range(position, lists)?;
        Some((list, self.sections.small_numbers(held, 6).get(position)?))
    }
}

/// The `most` best documents with a score. Scores are compared in single precision, as in Lucene.
fn best(scores: &[f64], most: usize, among_equals: impl Fn(u32, u32) -> Ordering) -> Vec<(u32, f32)> {
    let found = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
    let mut hits: Vec<(u32, f32)> =
        found.map(|(document, score)| (u32::try_from(document).unwrap_or(u32::MAX), *score as f32)).collect();
    if most == 0 {
        return Vec::new();
    }
    if hits.len() > most {
        // First by score alone: breaking ties may require access to each document.
        let by_score = |left: &(u32, f32), right: &(u32, f32)| right.1.total_cmp(&left.1);
        let (_, last, _) = hits.select_nth_unstable_by(most - 1, by_score);
        let least = last.1;
        hits.retain(|(_, score)| *score >= least);
    }
    hits.sort_unstable_by(|left, right| {
        right.1.total_cmp(&left.1).then_with(|| among_equals(left.0, right.0))
    });
    hits.truncate(most);
    hits
}

/// Documents, each with the count of a term.
struct Postings<'a> {
    bytes: std::slice::Iter<'a, u8>,
    document: u32,
}

impl<'a> Postings<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), document: 0 }
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = *self.bytes.next()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for Postings<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.number()?;
        let occurrences = self.number()?;
        self.document = self.document.checked_add(step)?;
        Some((self.document, occurrences))
    }
}

/// Lengths below this value are their own code.
const EXACT: u32 = 24;

/// The code of a document's length: one byte, in Lucene's encoding (`SmallFloat.intToByte4`), which is exact below
/// 40 and then keeps four significant bits.
pub(super) fn encode(length: u32) -> u8 {
    match length.checked_sub(EXACT) {
        None => length as u8,
        Some(rest) => (EXACT + four_bits(rest)) as u8,
    }
}

/// The length of a code.
fn decode(code: u8) -> u32 {
    match u32::from(code).checked_sub(EXACT) {
        None => u32::from(code),
        Some(rest) => EXACT.saturating_add(of_four_bits(rest)),
    }
}

fn four_bits(number: u32) -> u32 {
    let bits = 32 - number.leading_zeros();
    if bits < 4 {
        return number;
    }
    let shift = bits - 4;
    ((number >> shift) & 7) | ((shift + 1) << 3)
}

fn of_four_bits(code: u32) -> u32 {
    let (bits, shift) = (code & 7, code >> 3);
    match shift.checked_sub(1) {
        None => bits,
        Some(shift) => (bits | 8).checked_shl(shift).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::ProductIndexBuilder;
    use super::*;

    fn index(texts: &[impl AsRef<str>]) -> ProductIndex {
        let mut builder = ProductIndexBuilder::default();
        texts.iter().for_each(|text| builder.add(text.as_ref()));
        ProductIndex::open(Arc::new(builder.build())).unwrap()
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let index = index(&["red lamp", "lamp lamp lamp shade", "table", ""]);
        let found = index.search("lamps", 5, |left, right| left.cmp(&right)).unwrap();
        assert_eq!(found.iter().map(|(document, _)| *document).collect::<Vec<_>>(), [1, 0]);
        let idf = (1.0f64 + (3.0 - 2.0 + 0.5) / (2.0 + 0.5)).ln();
        let k = 0.9 * (0.6 + 0.4 * 2.0 / (7.0 / 3.0));
        assert!((f64::from(found[1].1) - idf * (1.0 - 1.0 / (1.0 + 1.0 / k))).abs() < 1e-6);
        assert!(index.search("the of", 5, |_, _| Ordering::Equal).unwrap().is_empty());
    }

    #[test]
    fn queries_have_a_limit() {
        let words = |count: usize| (0..count).map(|number| format!("w{number} ")).collect::<String>();
        let index = index(&["w1"]);
        assert!(index.search(&words(1024), 1, |_, _| Ordering::Equal).is_ok());
        assert_eq!(index.search(&words(1025), 1, |_, _| Ordering::Equal), Err(TooManyTerms));
    }

    #[test]
    fn lengths_are_kept_roughly() {
        for (length, kept) in [(0, 0), (39, 39), (40, 40), (41, 40), (42, 42), (57, 56), (1000, 984)] {
            assert_eq!(decode(encode(length)), kept, "{length}");
        }
        assert!((0..5000).all(|length| decode(encode(length)) <= length));
        assert!((0..=254u8).all(|code| decode(code) < decode(code + 1) || decode(code) == u32::MAX));
    }

    proptest! {
        #[test]
        fn the_best_come_first(texts in proptest::collection::vec("([a-e]{1,2} ){0,8}", 0..20), query in "([a-e]{1,2} ){0,4}", most in 0usize..6) {
            let index = index(&texts);
            let all = index.search(&query, 100, |left, right| right.cmp(&left)).unwrap();
            prop_assert!(all.windows(2).all(|pair| pair[0].1 > pair[1].1 || pair[0].1 == pair[1].1 && pair[0].0 > pair[1].0));
            let some = index.search(&query, most, |left, right| right.cmp(&left)).unwrap();
            prop_assert_eq!(&some[..], &all[..most.min(all.len())]);
        }

        #[test]
        fn damaged_bytes_are_told_or_searched_without_a_panic(cut in 0usize..400, flip in 0usize..400, bits in 1u8..) {
            let mut builder = ProductIndexBuilder::default();
            ["red lamp", "blue lamp shade", "table"].iter().for_each(|text| builder.add(text));
            let mut bytes = builder.build();
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(byte) = bytes.get_mut(flip) {
                *byte ^= bits;
            }
            if let Ok(index) = ProductIndex::open(Arc::new(bytes)) {
                let _ = index.search("lamp table", 3, |left, right| left.cmp(&right));
            }
        }
    }
}
