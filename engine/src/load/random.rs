//! Random weights from a seed; each tensor depends on the seed and its name only.

use std::borrow::Cow;
use std::path::Path;

use candle_core::{Device, Tensor};
use half::{bf16, f16};
use lumos_kernels::DType;
use rayon::prelude::*;
use safetensors::{Dtype, SafeTensorError, View};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::block::ModelConfig;
use crate::error::LoadError;
use crate::random::RandomShape;

/// Standard deviation, as in the initialisation of models.
const SCALE: f32 = 0.02;
/// Values generated at a time.
const CHUNK: usize = 1 << 16;

/// The random weights of a seed.
#[derive(Clone, Copy)]
pub(crate) struct RandomWeights {
    seed: u64,
    /// The weights of norms: 1, or 0 where the model adds 1.
    norm: bf16,
}

impl RandomWeights {
    pub(crate) fn new(seed: u64, config: &ModelConfig) -> Self {
        Self { seed, norm: bf16::from_f32(1.0 - config.block.norm_offset) }
    }

    /// A tensor; vectors are the weights of norms, except biases.
    pub(super) fn tensor(self, name: &str, shape: &[usize]) -> candle_core::Result<Tensor> {
        Tensor::from_vec(self.values(name, shape), shape, &Device::Cpu)
    }

    /// The values in order: approximately normal, and exact in bfloat16.
    fn values(self, name: &str, shape: &[usize]) -> Vec<bf16> {
        let count = shape.iter().product();
        if shape.len() == 1 && !name.ends_with(".bias") {
            return vec![self.norm; count];
        }
        let digest = Sha256::new().chain_update(self.seed.to_le_bytes()).chain_update(name).finalize();
        let key = digest.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte));
        let mut values = vec![bf16::ZERO; count];
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            for (value, index) in values.iter_mut().zip((chunk * CHUNK) as u64..) {
                *value = bf16::from_f32(
                    normal(mix(key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))) * SCALE,
                );
            }
        });
        values
    }
}

/// The finaliser of splitmix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// An approximately normal number with mean 0 and deviation 1: the sum of four uniform numbers of 16 bits.
fn normal(bits: u64) -> f32 {
    let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
    (sum as f32 - 131_070.0) / 37_837.2
}

impl RandomShape {
    /// The parsed configuration; errors name `file`.
    pub(super) fn parsed(self, file: &Path) -> Result<ModelConfig, LoadError> {
        ModelConfig::parse(self.config().to_string().as_bytes(), None, file)
    }

    /// Names and shapes of all tensors, in the order of the layers.
    fn tensors(self) -> Vec<(String, Vec<usize>)> {
        let config = self.parsed(Path::new(self.name())).expect("the configurations of all shapes are valid");
        config.tensors(self.vocabulary())
    }

    /// Number of parameters.
    pub fn parameters(self) -> u64 {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
    }

    /// Writes the model that [`ModelSource::Random`](crate::ModelSource::Random) generates in memory as
    /// config.json and model.safetensors, so that other programs can use the same weights. The weights are
    /// bfloat16 numbers, which `dtype` stores exactly, except that half precision rounds the smallest.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(self, seed: u64, dtype: DType, folder: &Path) -> Result<(), LoadError> {
        let unwritable = |file: &Path, source| LoadError::FileNotWritten { file: file.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(|source| unwritable(folder, source))?;
        let mut config = self.config();
        config["torch_dtype"] = json!(match dtype {
            DType::F32 => "float32",
            DType::Bf16 => "bfloat16",
            DType::F16 => "float16",
        });
        let file = folder.join("config.json");
        std::fs::write(&file, format!("{config:#}\n")).map_err(|source| unwritable(&file, source))?;
        let file = folder.join("model.safetensors");
        let weights = RandomWeights::new(seed, &self.parsed(&file)?);
        write(&self.tensors(), weights, dtype, &file)
            .map_err(|error| unwritable(&file, std::io::Error::other(error)))
    }
}

/// A tensor that is generated while it is written.
struct Lazy<'a> {
    name: &'a str,
    shape: &'a [usize],
    weights: RandomWeights,
    dtype: DType,
}

impl View for Lazy<'_> {
    fn dtype(&self) -> Dtype {
        match self.dtype {
            DType::F32 => Dtype::F32,
            DType::Bf16 => Dtype::BF16,
            DType::F16 => Dtype::F16,
        }
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = self.weights.values(self.name, self.shape);
        let bytes = match self.dtype {
            DType::F32 => values.par_iter().flat_map_iter(|value| value.to_f32().to_le_bytes()).collect(),
            DType::Bf16 => values.par_iter().flat_map_iter(|value| value.to_le_bytes()).collect(),
            DType::F16 => {
                values.par_iter().flat_map_iter(|value| f16::from_f32(value.to_f32()).to_le_bytes()).collect()
            }
        };
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.width()
    }
}

/// Writes tensors as safetensors, one after the other. Peak memory is the size of the largest tensor.
pub(crate) fn write(
    tensors: &[(String, Vec<usize>)],
    weights: RandomWeights,
    dtype: DType,
    file: &Path,
) -> Result<(), SafeTensorError> {
    let views = tensors.iter().map(|(name, shape)| (name, Lazy { name, shape, weights, dtype }));
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_normal_and_depend_on_name_and_seed() {
        let weights = |seed| RandomWeights { seed, norm: bf16::ONE };
        let shape = [300, 1000];
        let values: Vec<f32> = weights(1).values("a", &shape).iter().map(|value| value.to_f32()).collect();
        let mean = values.iter().sum::<f32>() / 3e5;
        let deviation = (values.iter().map(|value| value * value).sum::<f32>() / 3e5).sqrt();
        assert!(mean.abs() < 2e-4 && (deviation - SCALE).abs() < 2e-4, "{mean} {deviation}");
        let first = |name, seed| weights(seed).values(name, &[2, 2]);
        assert_eq!(first("a", 1), first("a", 1));
        assert_ne!(first("a", 1), first("a", 2));
        assert_ne!(first("a", 1), first("b", 1));
        assert_eq!(weights(1).values("norm", &[3]), [bf16::ONE; 3]);
        assert_ne!(weights(1).values("q_proj.bias", &[3]), [bf16::ONE; 3]);
    }

    #[test]
    fn norms_do_not_scale() {
        let norms =
            |shape: RandomShape| RandomWeights::new(1, &shape.parsed(Path::new("config.json")).unwrap()).norm;
        assert_eq!(norms(RandomShape::Qwen3With1M), bf16::ONE);
        assert_eq!(norms(RandomShape::Gemma3With1M), bf16::ZERO);
    }
}
