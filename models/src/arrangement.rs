//! Decides whether models fit into a memory, together or one at a time. Pure: `lumos estimate` and runs use
//! the same function.

use bytesize::ByteSize;
use lumos_tasks::Swap;
use thiserror::Error;

/// Memory needs of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Name of the model in messages.
    pub name: String,
    /// Size of its weights in memory, and of its buffers, in bytes.
    pub weight_bytes: u64,
    /// Minimum size of its KV cache in bytes: that of one sequence of full length.
    pub cache_bytes: u64,
}

impl Need {
    /// Total bytes.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes.saturating_add(self.cache_bytes)
    }
}

/// How models share a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// All models are loaded and stay loaded.
    Together,
    /// One model is loaded at a time. All requests that wait for it run, then the next model is loaded.
    InPhases,
}

/// Models do not fit into a memory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DoesNotFit {
    /// One model does not fit even alone.
    #[error(
        "model {} needs {} for weights and at least {} for the KV cache, {} in total, but the memory limit \
         is {}; hint: raise --memory, or use a smaller or quantized model, or a smaller --dtype",
        model.name, ByteSize(model.weight_bytes), ByteSize(model.cache_bytes), ByteSize(model.bytes()), ByteSize(*memory)
    )]
    Alone {
        /// The model.
        model: Need,
        /// The limit in bytes.
        memory: u64,
    },
    /// Each model fits alone, but not all together, and swapping is disabled.
    #[error(
        "the models need {} together ({}), but the memory limit is {}; hint: omit `--swap never` (each model \
         fits alone), raise --memory, or use smaller or quantized models",
        ByteSize(models.iter().map(Need::bytes).sum()), listed(models), ByteSize(*memory)
    )]
    Together {
        /// The models.
        models: Vec<Need>,
        /// The limit in bytes.
        memory: u64,
    },
}

/// Lists models with their sizes.
pub(super) fn listed(models: &[Need]) -> String {
    let one = |model: &Need| format!("{} {}", model.name, ByteSize(model.bytes()));
    models.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Decides how models share `memory` bytes.
///
/// # Errors
/// If one model does not fit alone, or all together do not fit and swapping is disabled.
pub fn arrange(models: &[Need], memory: Option<u64>, swap: Swap) -> Result<Arrangement, DoesNotFit> {
    let needed = models.iter().map(Need::bytes).fold(0, u64::saturating_add);
    if let Some(memory) = memory
        && let Some(model) = models.iter().find(|model| model.bytes() > memory)
    {
        return Err(DoesNotFit::Alone { model: model.clone(), memory });
    }
    match (memory, swap) {
        (_, Swap::Always) if models.len() > 1 => Ok(Arrangement::InPhases),
        (Some(memory), Swap::Auto) if needed > memory => Ok(Arrangement::InPhases),
        (Some(memory), Swap::Never) if needed > memory => {
            Err(DoesNotFit::Together { models: models.to_vec(), memory })
        }
        _ => Ok(Arrangement::Together),
    }
}

/// Returns each model's share of a limited memory: all of it in phases, otherwise its own needs and an equal
/// part of the remaining memory.
pub(super) fn shares(models: &[Need], memory: u64, arrangement: Arrangement) -> Vec<u64> {
    let needed = models.iter().map(Need::bytes).fold(0, u64::saturating_add);
    let spare = memory.saturating_sub(needed) / (models.len() as u64).max(1);
    let share = |model: &Need| match arrangement {
        Arrangement::Together => model.bytes() + spare,
        Arrangement::InPhases => memory,
    };
    models.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn need(weight_bytes: u64, cache_bytes: u64) -> Need {
        Need { name: format!("m{weight_bytes}"), weight_bytes, cache_bytes }
    }

    #[test]
    fn a_limit_that_holds_each_and_not_both_makes_phases() {
        let pair = [need(10, 2), need(9, 1)];
        assert_eq!(arrange(&pair, None, Swap::Auto), Ok(Arrangement::Together));
        assert_eq!(arrange(&pair, Some(22), Swap::Auto), Ok(Arrangement::Together));
        assert_eq!(arrange(&pair, Some(21), Swap::Auto), Ok(Arrangement::InPhases));
        assert_eq!(arrange(&pair, Some(12), Swap::Auto), Ok(Arrangement::InPhases));
        assert_eq!(arrange(&pair, None, Swap::Always), Ok(Arrangement::InPhases));
        assert_eq!(arrange(&pair[..1], None, Swap::Always), Ok(Arrangement::Together));
        assert_eq!(arrange(&pair, Some(22), Swap::Never), Ok(Arrangement::Together));
        let refused = arrange(&pair, Some(21), Swap::Never).unwrap_err().to_string();
        assert!(
            refused.contains("22 B together (m10 12 B, m9 10 B)") && refused.contains("--swap"),
            "{refused}"
        );
        for swap in [Swap::Auto, Swap::Always, Swap::Never] {
            let refused = arrange(&pair, Some(11), swap).unwrap_err().to_string();
            assert!(refused.contains("model m10 needs 10 B for weights and at least 2 B"), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn shares_suffice_and_do_not_exceed_the_memory(
            models in proptest::collection::vec((1u64..1000, 1u64..1000), 1..5),
            memory in 1u64..5000,
        ) {
            let models: Vec<Need> = models.into_iter().map(|(weights, cache)| need(weights, cache)).collect();
            match arrange(&models, Some(memory), Swap::Auto) {
                Ok(arrangement) => {
                    let shares = shares(&models, memory, arrangement);
                    prop_assert!(shares.iter().zip(&models).all(|(share, model)| *share >= model.bytes()));
                    prop_assert!(shares.iter().all(|share| *share <= memory));
                    if arrangement == Arrangement::Together {
                        prop_assert!(shares.iter().sum::<u64>() <= memory);
                    }
                }
                Err(_) => prop_assert!(models.iter().any(|model| model.bytes() > memory)),
            }
        }
    }
}
