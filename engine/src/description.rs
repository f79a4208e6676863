//! What was loaded, for manifests and reports.

use serde::{Deserialize, Serialize};

use crate::options::DType;

/// A loaded model in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Class name in config.json, such as `LlamaForCausalLM`.
    pub architecture: String,
    /// Number of trained values.
    pub parameters: u64,
    /// Rows of the embedding; the tokenizer may know fewer ids.
    pub vocabulary: usize,
    /// Type of the weights in memory, but for those that are quantized.
    pub dtype: DType,
    /// How the matrices are stored where they are quantized, by ggml's names, the type of most values first: `Q4_K`,
    /// `Q4_K + Q6_K`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The files that the weights were read from; the configuration and the weights of an adapter last.
    pub weight_files: Vec<WeightFile>,
    /// SHA-256 of the tokenizer file, in hexadecimal.
    pub tokenizer_sha256: String,
    /// Longest sequence in tokens, prompt and completion together.
    pub context_length: usize,
}

/// One file of weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFile {
    /// File name without its folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal; empty when hashing was switched off.
    pub sha256: String,
}
