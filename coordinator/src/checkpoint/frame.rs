//! Binary format of the journal: numbered entries with checksums. Performs no I/O.
//!
//! ```text
//! header (64 bytes)   magic 7 │ version 1 │ entries u64 │ bytes u64 │ records u32 │ items u64 │ notes u32 │ zeros
//!                     │ CRC-32
//! entry               marker 4 │ kind 1 │ 0 │ key length u16 │ value length u32 │ sequence u64
//!                     │ CRC-32 of the value u32 │ CRC-32 of all before it and the key u32 │ key │ value
//! ```
//! Integers are big-endian. The key has a separate checksum, so that an entry with a damaged value can still
//! be identified. The marker lets a reader find the next entry after damaged bytes.

/// Length of the journal's header in bytes.
pub(super) const HEADER: u64 = 64;
/// Length of an entry before its key, in bytes.
pub(super) const PREFIX: usize = 28;
/// The first bytes of every entry.
pub(super) const MARKER: [u8; 4] = [0xAB, b'L', b'J', 0x0A];

const MAGIC: [u8; 7] = *b"LUMOSJN";
const VERSION: u8 = 1;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An item of a benchmark.
    Item = 1,
    /// A recorded attempt.
    Record = 2,
    /// A value of the database's `meta` tree.
    Note = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Item),
            2 => Some(Self::Record),
            3 => Some(Self::Note),
            _ => None,
        }
    }
}

/// The committed state in the header: everything before it is in both the journal and the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Number of entries.
    pub(super) entries: u64,
    /// Length of the file in bytes, including the header.
    pub(super) bytes: u64,
    /// Number of records among the entries.
    pub(super) records: u32,
    /// Number of distinct items. An item that was stored several times counts once.
    pub(super) items: u64,
    /// Number of distinct notes.
    pub(super) notes: u32,
}

/// Result of reading a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadRead {
    /// Valid.
    Intact(Head),
    /// Valid, but of another format version.
    Version(u8),
    /// The checksum does not match.
    Damaged,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = VERSION;
        bytes[8..16].copy_from_slice(&self.entries.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.records.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.items.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.notes.to_be_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> HeadRead {
        let Some(bytes) = bytes.first_chunk::<{ HEADER as usize }>() else { return HeadRead::Damaged };
        if u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) || bytes[..7] != MAGIC {
            return HeadRead::Damaged;
        }
        if bytes[7] != VERSION {
            return HeadRead::Version(bytes[7]);
        }
        HeadRead::Intact(Self {
            entries: u64_at(bytes, 8),
            bytes: u64_at(bytes, 16),
            records: u32_at(bytes, 24),
            items: u64_at(bytes, 28),
            notes: u32_at(bytes, 36),
        })
    }
}

/// Prefix and key of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    pub(super) key: &'a [u8],
    pub(super) value_length: u32,
    pub(super) value_checksum: u32,
}

impl<'a> Frame<'a> {
    /// Length of the whole entry in bytes.
    pub(super) fn length(&self) -> u64 {
        PREFIX as u64 + self.key.len() as u64 + u64::from(self.value_length)
    }

    /// Decodes the prefix and key of an entry. Returns `None` if no intact entry starts here or the key
    /// extends beyond `bytes`.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let prefix = bytes.first_chunk::<PREFIX>()?;
        if prefix[..4] != MARKER {
            return None;
        }
        let key_length = usize::from(u16::from_be_bytes([prefix[6], prefix[7]]));
        let key = bytes.get(PREFIX..PREFIX + key_length)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&prefix[..24]);
        checksum.update(key);
        if checksum.finalize() != u32_at(prefix, 24) {
            return None;
        }
        Some(Self {
            kind: Kind::of(prefix[4])?,
            sequence: u64_at(prefix, 12),
            key,
            value_length: u32_at(prefix, 8),
            value_checksum: u32_at(prefix, 20),
        })
    }
}

/// Maximum length of prefix and key in bytes.
pub(super) const LONGEST_START: usize = PREFIX + u16::MAX as usize;

/// Appends an entry to a buffer and returns the checksum of the value. Returns `None` if the key or the value
/// is too long.
pub(super) fn push(buffer: &mut Vec<u8>, kind: Kind, sequence: u64, key: &[u8], value: &[u8]) -> Option<u32> {
    let key_length = u16::try_from(key.len()).ok()?;
    let value_length = u32::try_from(value.len()).ok()?;
    let value_checksum = crc32fast::hash(value);
    let start = buffer.len();
    buffer.extend_from_slice(&MARKER);
    buffer.extend_from_slice(&[kind as u8, 0]);
    buffer.extend_from_slice(&key_length.to_be_bytes());
    buffer.extend_from_slice(&value_length.to_be_bytes());
    buffer.extend_from_slice(&sequence.to_be_bytes());
    buffer.extend_from_slice(&value_checksum.to_be_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&buffer[start..]);
    checksum.update(key);
    buffer.extend_from_slice(&checksum.finalize().to_be_bytes());
    buffer.extend_from_slice(key);
    buffer.extend_from_slice(value);
    Some(value_checksum)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().copied().map_or(0, u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().copied().map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::fuzzing::journal_checksums;

    #[test]
    fn checksums_are_made_to_fit() {
        let mut journal = Head { entries: 2, bytes: 0, records: 1, items: 1, notes: 0 }.encode().to_vec();
        for sequence in 0..2 {
            push(&mut journal, Kind::Record, sequence, b"key", b"some value").unwrap();
        }
        let intact = journal.clone();
        journal_checksums(&mut journal);
        assert_eq!(journal, intact);
        journal[60] ^= 1;
        *journal.last_mut().unwrap() ^= 1;
        journal_checksums(&mut journal);
        assert!(matches!(Head::decode(&journal), HeadRead::Intact(_)));
        let second = &journal[HEADER as usize + PREFIX + 13..];
        assert_eq!(Frame::decode(second).unwrap().value_checksum, crc32fast::hash(&second[PREFIX + 3..]));
    }

    proptest! {
        #[test]
        fn a_changed_bit_is_always_noticed(
            key in proptest::collection::vec(any::<u8>(), 0..60),
            value in proptest::collection::vec(any::<u8>(), 0..200),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            push(&mut bytes, Kind::Record, 7, &key, &value).unwrap();
            let whole = Frame::decode(&bytes).unwrap();
            prop_assert_eq!((whole.sequence, whole.key, whole.length()), (7, &key[..], bytes.len() as u64));
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let start = PREFIX + key.len();
            let intact = Frame::decode(&bytes)
                .is_some_and(|frame| frame.value_checksum == crc32fast::hash(&bytes[start..]));
            prop_assert!(!intact);
        }

        #[test]
        fn a_header_is_read_back_or_noticed(entries: u64, length: u64, records: u32, bit in 0usize..512) {
            let head = Head { entries, bytes: length, records, items: entries, notes: records };
            let mut bytes = head.encode();
            prop_assert_eq!(Head::decode(&bytes), HeadRead::Intact(head));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Head::decode(&bytes), HeadRead::Damaged);
        }
    }
}
