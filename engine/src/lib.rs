//! Inference on candle: models, tokenizer, KV cache, scheduler, sampler.
//!
//! [`Engine::load`] takes a folder as published on the Hugging Face hub (Llama 1 to 3, Mistral, TinyLlama and
//! their fine-tunes; safetensors or PyTorch pickles; tokenizer.json or a SentencePiece model) or a GGUF file of them, and
//! [`Engine::generate`] continues sequences, many at once. [`Models`] shares engines between roles. A [`Reader`] scores
//! passages with a BERT encoder, a [`CrossEncoder`] texts with a RoBERTa or a DeBERTa.
//!
//! Candle reads and converts the weights; the forward pass is this crate's own, because batches must not
//! change results: a sequence's float32 logits are the same to the bit whatever is computed beside it and however
//! its prompt is cut into pieces.

#![warn(unsafe_code)]

mod backend;
pub mod bench;
mod cache;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // without it only tests compute with it
mod cuda;
mod description;
mod device;
mod encoder;
mod engine;
mod error;
mod footprint;
mod load;
mod memory;
mod model;
mod models;
mod options;
mod random;
mod request;
mod sampler;
mod scheduler;
mod statistics;
mod stream;
mod tokenizer;

/// Entry points of fuzz targets; not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::model::fuzzing::{Product, check_kernels as kernels};
    pub use crate::tokenizer::fuzz_sentencepiece as sentencepiece;
}

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod fixtures;

pub use description::{ModelDescription, WeightFile};
pub use device::{DeviceName, Gpu, NoGpu, gpus};
pub use encoder::{CrossEncoder, ReadError, Reader, ReaderPassage};
pub use engine::Engine;
pub use error::{GenerateError, LoadError};
pub use footprint::Footprint;
pub use load::{AdapterBase, StoredChat, adapter_base};
pub use memory::{MemoryBudget, free_memory};
pub use model::{linear_path, quantized_path};
pub use models::Models;
pub use options::{DType, LoadOptions, ModelFiles, ModelSource};
pub use random::RandomShape;
pub use request::{Finish, GenerateRequest, Generation, Input, Sampling, Stop, Usage};
pub use statistics::Statistics;
pub use stream::{Delta, GenerationStream, StreamEvent};
pub use tokenizer::Tokenizer;
