//! Identities are hashes of content; they never depend on a file's location or on a position in a file.
//!
//! [`ContentHash`] is a SHA-256. [`ItemId`] identifies a benchmark item, [`UnitId`] an item under one
//! configuration.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// SHA-256 of some content, 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// Hashes raw bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// Hashes a value's JSON text. Field order is the order of declaration and maps are sorted, so equal
    /// values have equal hashes.
    ///
    /// # Panics
    /// Panics if the value cannot be written as JSON (a map with keys that are not strings); the types of
    /// this workspace can.
    pub fn of_json(value: &impl Serialize) -> Self {
        let text = serde_json::to_vec(value).expect("vocabulary types serialise to JSON");
        Self::of_bytes(&text)
    }

    /// Wraps a hash that was computed elsewhere (a file's SHA-256).
    pub fn from_hex(hex: impl Into<String>) -> Self {
        Self(hex.into())
    }

    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for display.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Identity of a benchmark item: the hash of its record, and a counter for data sets that contain the same
/// record more than once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId {
    /// Hash of the item's record.
    pub content: ContentHash,
    /// 0 for the first item with this content, 1 for the second, and so on.
    pub occurrence: u32,
}

/// Identity of one unit of work: a benchmark item under one configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitId(ContentHash);

impl UnitId {
    /// Wraps the hash of everything that defines the unit.
    pub fn new(hash: ContentHash) -> Self {
        Self(hash)
    }

    /// The hexadecimal digits, 64 of them.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The first twelve digits, for display.
    pub fn short(&self) -> &str {
        self.0.short()
    }

    /// A seed for one request of this unit. Equal units use equal random numbers on every worker.
    pub fn seed(&self, turn: u32) -> u64 {
        let digest = Sha256::digest(format!("{}/{turn}", self.as_str()).as_bytes());
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(bytes)
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_has_equal_identity() {
        let left = ContentHash::of_json(&("gsm8k", 3));
        assert_eq!(left, ContentHash::of_json(&("gsm8k", 3)));
        assert_ne!(left, ContentHash::of_json(&("gsm8k", 4)));
        assert_eq!(left.as_str().len(), 64);
    }

    #[test]
    fn seeds_differ_by_turn_and_are_stable() {
        let unit = UnitId::new(ContentHash::of_bytes(b"unit"));
        assert_eq!(unit.seed(0), unit.seed(0));
        assert_ne!(unit.seed(0), unit.seed(1));
    }
}
