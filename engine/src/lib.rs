//! Inference engine on candle: models, tokenizer, KV cache, scheduler, sampler.
//!
//! [`Engine::load`] loads a Hugging Face folder (Llama, Mistral, Mixtral, Qwen, Gemma, Phi, OLMo 2, Granite and their
//! fine-tunes; safetensors or PyTorch pickles; tokenizer.json or a SentencePiece model) or a GGUF file, on a CPU or a GPU.
//! [`Engine::generate`] continues sequences, many at once. A [`DprReader`] scores passages with a BERT encoder, a
//! [`CrossEncoder`] scores texts with RoBERTa or DeBERTa.
//!
//! Floats of safetensors and GGUF files are packed from the mapped file; candle converts all other weights. The forward pass is implemented in this crate, because batching
//! must not change results: a sequence's float32 logits are bit-identical whatever else is in the batch and
//! however its prompt is split into chunks.

#![warn(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod backend;
pub mod bench;
mod cache;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // without it only tests compute with it
mod cuda;
mod device;
mod encoder;
mod engine;
mod error;
mod external;
mod load;
mod loaded;
mod machine;
mod memory;
mod model;
mod options;
mod random;
mod request;
mod sampler;
mod scheduler;
mod speculation;
mod stream;
mod tokenizer;

/// Entry points of fuzz targets; not part of the public API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::load::fuzzing::fuzz_packed_weights as packed_weights;
    pub use crate::load::pickle::fuzz_pickle as pickle;
    pub use crate::loaded::fuzz_config as config;
    pub use crate::model::fuzzing::{MatrixProduct, check_kernels as kernels};
    pub use crate::tokenizer::fuzz_sentencepiece as sentencepiece;
}

#[cfg(test)]
#[allow(dead_code, reason = "shared with the integration tests, which use more of it")]
#[path = "../tests/it/support/mod.rs"]
mod fixtures;

pub use backend::free_gpu_memory;
pub use cuda::gpus;
pub use device::{DeviceName, Gpu, NoGpu, lost_gpu, until_gpu_lost};
pub use encoder::{CrossEncoder, DprReader, EncoderError, ReaderPassage};
pub use engine::Engine;
pub use error::{GenerateError, LoadError};
pub use load::{
    AdapterBase, ModelCheckpoint, StoredChat, WeightFile, adapter_base, read_configuration, shard_names,
};
pub use loaded::{Footprint, ModelDescription};
pub use lumos_kernels::{DType, instruction_limit};
pub use memory::{MemoryBudget, SMALL_CACHE, free_memory};
pub use model::{linear_path, quantized_path};
pub use options::{LoadOptions, ModelFiles, ModelSource};
pub use random::RandomShape;
pub use request::{
    FinishReason, GenerateRequest, Generation, Prompt, SamplingParams, StopCondition, TokenUsage,
};
pub use scheduler::Statistics;
pub use speculation::{DraftUsage, Speculation, replay};
pub use stream::{Delta, GenerationStream, StreamEvent};
pub use tokenizer::Tokenizer;
