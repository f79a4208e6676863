//! Packed identities of the stored items.
//!
//! They let the coordinator find outstanding units without reading the items themselves.

use lumos_tasks::{ContentHash, ItemId};

/// Number of entries in one value.
const TOGETHER: usize = 256;
/// Length of an entry in bytes: position, content hash, occurrence.
const ENTRY: usize = 8 + 32 + 4;

/// Collects the identities of one benchmark's items.
#[derive(Debug, Default)]
pub(super) struct Identities(Vec<(u64, [u8; 32], u32)>);

impl Identities {
    /// Adds an item. Returns `None` if its hash is invalid.
    pub(super) fn add(&mut self, index: u64, id: &ItemId) -> Option<()> {
        let mut content = [0; 32];
        hex::decode_to_slice(id.content.as_str(), &mut content).ok()?;
        self.0.push((index, content, id.occurrence));
        Some(())
    }

    /// Returns the packed values, to be stored under ascending numbers.
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

/// Unpacks positions and identities from a value. Returns `None` if the value is malformed.
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
