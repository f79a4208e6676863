//! Identities of the stored items, packed: what is outstanding is decided without reading any item.

use lumos_tasks::{ContentHash, ItemId};

/// Entries of one value.
const TOGETHER: usize = 256;
/// Bytes of an entry: position, content, occurrence.
const ENTRY: usize = 8 + 32 + 4;

/// The identities of one benchmark's items, as they are gathered.
#[derive(Debug, Default)]
pub(super) struct Identities(Vec<(u64, [u8; 32], u32)>);

impl Identities {
    /// Adds an item; `None` if its hash is none.
    pub(super) fn add(&mut self, index: u64, id: &ItemId) -> Option<()> {
        let mut content = [0; 32];
        hex::decode_to_slice(id.content.as_str(), &mut content).ok()?;
        self.0.push((index, content, id.occurrence));
        Some(())
    }

    /// Values to be stored under ascending numbers.
    pub(super) fn packed(mut self) -> impl Iterator<Item = Vec<u8>> {
        self.0.sort_unstable();
        let mut rest = self.0.into_iter();
        std::iter::from_fn(move || {
            let mut value = Vec::with_capacity(TOGETHER * ENTRY);
            for (index, content, occurrence) in rest.by_ref().take(TOGETHER) {
                value.extend_from_slice(&index.to_be_bytes());
                value.extend_from_slice(&content);
                value.extend_from_slice(&occurrence.to_be_bytes());
            }
            (!value.is_empty()).then_some(value)
        })
    }
}

/// Positions and identities of a packed value; `None` if it is none.
pub(super) fn unpack(value: &[u8]) -> Option<Vec<(u64, ItemId)>> {
    let (entries, rest) = value.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return None;
    }
    entries
        .iter()
        .map(|entry| {
            let index = u64::from_be_bytes(entry[..8].try_into().ok()?);
            let content = ContentHash::from_hex(hex::encode(&entry[8..40]));
            let occurrence = u32::from_be_bytes(entry[40..].try_into().ok()?);
            Some((index, ItemId { content, occurrence }))
        })
        .collect()
}
