//! A small container format of byte sections for data that is built once and then read in place, from memory
//! or from a mapped file. All numbers are little-endian.

use std::cmp::Ordering;
use std::sync::Arc;

use thiserror::Error;

/// Shared bytes: a vector, a mapped file.
pub(super) type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Corrupt or truncated bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the index is damaged, or was made by another version: build it again")]
pub struct Damaged;

/// Size of a number in bytes.
const WIDE: usize = 8;
const NARROW: usize = 4;

/// Writes sections one after the other.
#[derive(Debug)]
pub(super) struct Writer {
    magic: [u8; 8],
    lengths: Vec<u64>,
    body: Vec<u8>,
}

impl Writer {
    pub(super) fn new(magic: [u8; 8]) -> Self {
        Self { magic, lengths: Vec::new(), body: Vec::new() }
    }

    /// Writes a section, part by part.
    pub(super) fn section<B: AsRef<[u8]>>(&mut self, parts: impl IntoIterator<Item = B>) {
        let start = self.body.len();
        parts.into_iter().for_each(|part| self.body.extend_from_slice(part.as_ref()));
        self.lengths.push((self.body.len() - start) as u64);
    }

    /// Writes the magic, the number of sections, their lengths, and the sections.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + WIDE * (self.lengths.len() + 2));
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&(self.lengths.len() as u64).to_le_bytes());
        self.lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The byte ranges of the sections.
#[derive(Debug, Clone)]
pub(super) struct Sections(Vec<std::ops::Range<usize>>);

impl Sections {
    /// Reads the table of sections; all of them must be complete.
    pub(super) fn read(bytes: &[u8], magic: [u8; 8], count: usize) -> Result<Self, Damaged> {
        if bytes.get(..WIDE) != Some(&magic[..]) || wide(bytes, 1) != Some(count as u64) {
            return Err(Damaged);
        }
        let mut start = WIDE * (count + 2);
        let mut ranges = Vec::with_capacity(count);
        for section in 0..count {
            let length = wide(bytes, 2 + section).and_then(|length| usize::try_from(length).ok());
            let end = length.and_then(|length| start.checked_add(length)).ok_or(Damaged)?;
            ranges.push(start..end);
            start = end;
        }
        if start != bytes.len() {
            return Err(Damaged);
        }
        Ok(Self(ranges))
    }

    pub(super) fn bytes<'a>(&self, bytes: &'a [u8], section: usize) -> &'a [u8] {
        self.0.get(section).and_then(|range| bytes.get(range.clone())).unwrap_or_default()
    }

    pub(super) fn numbers<'a>(&self, bytes: &'a [u8], section: usize) -> Numbers<'a> {
        Numbers(self.bytes(bytes, section))
    }

    pub(super) fn small_numbers<'a>(&self, bytes: &'a [u8], section: usize) -> SmallNumbers<'a> {
        SmallNumbers(self.bytes(bytes, section))
    }
}

/// A section of 64-bit numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    pub(super) fn len(&self) -> usize {
        self.0.len() / WIDE
    }

    pub(super) fn get(&self, position: usize) -> Option<u64> {
        wide(self.0, position)
    }

    /// The bytes between the end before a position and its own end, if these numbers are ends.
    pub(super) fn range<'b>(&self, position: usize, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let start = match position.checked_sub(1) {
            None => 0,
            Some(before) => usize::try_from(self.get(before)?).ok()?,
        };
        bytes.get(start..usize::try_from(self.get(position)?).ok()?)
    }
}

/// A section of 32-bit numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallNumbers<'a>(&'a [u8]);

impl SmallNumbers<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.len() / NARROW
    }

    pub(super) fn get(&self, position: usize) -> Option<u32> {
        let start = position.checked_mul(NARROW)?;
        let bytes = self.0.get(start..start.checked_add(NARROW)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The index of the entry that `compare` finds equal in a sorted list. `None` also if an entry cannot be read.
pub(super) fn find(len: usize, compare: impl Fn(usize) -> Option<Ordering>) -> Option<usize> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle)? {
            Ordering::Equal => return Some(middle),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    None
}

fn wide(bytes: &[u8], position: usize) -> Option<u64> {
    let start = position.checked_mul(WIDE)?;
    let bytes = bytes.get(start..start.checked_add(WIDE)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
