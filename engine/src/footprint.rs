//! What a model takes in memory, known before it is loaded.

use crate::error::LoadError;
use crate::load;
use crate::options::{DType, ModelSource};

/// What a model takes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of the weights in their type.
    pub weight_bytes: u64,
    /// Bytes of keys and values that one position of a sequence takes.
    pub cache_bytes_per_token: u64,
    /// Longest sequence in tokens.
    pub context_length: usize,
}

impl Footprint {
    /// Of a model that would be loaded with weights of this type. Reads its configuration and the headers of its weight
    /// files.
    ///
    /// # Errors
    /// As [`Engine::load`](crate::Engine::load), before weights are read.
    pub fn of(source: &ModelSource, dtype: DType) -> Result<Self, LoadError> {
        load::open(source)?.footprint(dtype)
    }

    /// Bytes of keys and values of so many sequences of full length: with fewer than for one, the engine would refuse
    /// the longest requests.
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
        // 13.5 GB in a file; embeddings and norms are float32 here.
        assert_eq!(footprint.weight_bytes / 100_000_000, 137);
        assert_eq!(footprint.cache_bytes_per_token, 2 * 32 * 4096 * 4);
        assert_eq!(footprint.context_length, 4096);
    }
}
