//! Integration tests of lumos-models.

#[cfg(feature = "candle-transformers")]
mod candle_transformers;
#[cfg(feature = "hub")]
mod hub;
mod openai;
#[cfg(feature = "serve-model")]
mod serve_model;
