//! Describes a loaded model for manifests and reports: architecture, types, and hashes of the files it was
//! read from.

use serde::{Deserialize, Serialize};

use crate::options::DType;

/// Properties of a loaded model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Class name in config.json, such as `LlamaForCausalLM`.
    pub architecture: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Rows of the embedding; the tokenizer may have fewer ids.
    pub vocabulary: usize,
    /// Type of the weights in memory, except quantized ones.
    pub dtype: DType,
    /// Quantization formats of the matrices, by ggml's names, the format of most values first: `Q4_K`, `Q4_K
    /// + Q6_K`. `None` if the matrices are not quantized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The files that the weights were read from; an adapter's configuration and weights come last.
    pub weight_files: Vec<WeightFile>,
    /// SHA-256 of the tokenizer file, in hexadecimal.
    pub tokenizer_sha256: String,
    /// Maximum sequence length in tokens, prompt and completion together.
    pub context_length: usize,
}

/// One weight file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFile {
    /// File name without its folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal; empty if hashing is disabled.
    pub sha256: String,
}
