//! A unit's identity in 32 bytes, the key of in-memory tables with millions of units.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use lumos_tasks::UnitId;

/// The bytes of a unit's hash, or the hash of its text if it is not a valid hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitKey([u8; 32]);

impl UnitKey {
    /// Returns the key of a unit.
    pub(crate) fn of(unit: &UnitId) -> Self {
        let mut bytes = [0; 32];
        if hex::decode_to_slice(unit.as_str(), &mut bytes).is_err() {
            bytes = <sha2::Sha256 as sha2::Digest>::digest(unit.as_str().as_bytes()).into();
        }
        Self(bytes)
    }

    /// The bytes, for sorting and storing.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for UnitKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The key is a cryptographic hash, so any eight bytes of it serve as its hash.
impl Hash for UnitKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, .., last] = self.0.as_chunks::<8>().0 else { return };
        state.write_u64(u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last));
    }
}

/// A hash map with units as keys.
pub(crate) type UnitTable<T> = HashMap<UnitKey, T, BuildHasherDefault<KeyHasher>>;

/// Uses the bytes that [`UnitKey`] provides as the hash.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }
}
