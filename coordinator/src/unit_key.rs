//! A unit's identity in 32 bytes: what tables of a million units are kept by.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use lumos_tasks::UnitId;

/// The bytes of a unit's hash, or of the hash of its text where it is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitKey([u8; 32]);

impl UnitKey {
    pub(crate) fn of(unit: &UnitId) -> Self {
        let mut bytes = [0; 32];
        if hex::decode_to_slice(unit.as_str(), &mut bytes).is_err() {
            bytes = <sha2::Sha256 as sha2::Digest>::digest(unit.as_str().as_bytes()).into();
        }
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for UnitKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The key is a cryptographic hash: any eight bytes of it are as good as another hash of it.
impl Hash for UnitKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, .., last] = self.0.as_chunks::<8>().0 else { return };
        state.write_u64(u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last));
    }
}

/// A table by unit.
pub(crate) type UnitTable<T> = HashMap<UnitKey, T, BuildHasherDefault<KeyHasher>>;

/// Takes what [`UnitKey`] hands it as the hash.
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
