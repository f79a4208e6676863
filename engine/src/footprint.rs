//! Estimates the memory of a model before it is loaded.

use crate::error::LoadError;
use crate::load;
use crate::options::{DType, ModelSource};

/// Memory requirements of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Size of the weights in their type, in bytes.
    pub weight_bytes: u64,
    /// KV cache size of one position of a sequence, in bytes.
    pub cache_bytes_per_token: u64,
    /// Maximum sequence length in tokens.
    pub context_length: usize,
}

impl Footprint {
    /// Estimates a model loaded with weights of type `dtype`. Reads its configuration and the headers of its
    /// weight files.
    ///
    /// # Errors
    /// The same as [`Engine::load`](crate::Engine::load), except errors of reading weights.
    pub fn of(source: &ModelSource, dtype: DType) -> Result<Self, LoadError> {
        load::open(source)?.footprint(dtype)
    }

    /// KV cache size of `sequences` sequences of full length, in bytes. With less than the size for one
    /// sequence, the engine would reject the longest requests.
    pub fn cache_bytes(&self, sequences: usize) -> u64 {
        let positions = self.context_length.saturating_mul(sequences);
        self.cache_bytes_per_token.saturating_mul(positions as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::memory::MemoryBudget;
    use crate::options::LoadOptions;
    use crate::random::RandomShape;

    #[test]
    fn what_is_foreseen_is_what_is_taken() {
        for dtype in [DType::F32, DType::F16] {
            let source = ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
            let footprint = Footprint::of(&source, dtype).unwrap();
            let cache = footprint.cache_bytes(2);
            let budget = MemoryBudget::new(footprint.weight_bytes + cache);
            let options = LoadOptions {
                dtype,
                memory: Some(budget.clone()),
                kv_cache_bytes: Some(usize::try_from(cache).unwrap()),
                ..LoadOptions::default()
            };
            let engine = Engine::load(source, options).unwrap();
            assert_eq!(engine.weight_bytes(), footprint.weight_bytes);
            assert_eq!(budget.free(), 0);
            drop(engine);
            assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn seven_billion_parameters_in_half_precision() {
        let source = ModelSource::Random { shape: RandomShape::Llama2With7B, seed: 1 };
        let footprint = Footprint::of(&source, DType::F16).unwrap();
        // The file has 13.5 GB; embeddings and norms are float32 in memory.
        assert_eq!(footprint.weight_bytes / 100_000_000, 137);
        assert_eq!(footprint.cache_bytes_per_token, 2 * 32 * 4096 * 4);
        assert_eq!(footprint.context_length, 4096);
    }
}
