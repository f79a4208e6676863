//! Integration tests of the engine.

mod cases;
mod requests;
mod support;

mod adapter;
mod bench;
mod candle_llama;
mod cross_encoder;
#[cfg(feature = "cuda")]
mod cuda;
mod engine;
mod families;
mod gguf;
mod loading;
mod matrix;
mod models;
mod packed;
mod prefixes;
mod reader;
mod reference;
mod soak;
mod speculation;
mod tokenizer;
