//! Integration tests of lumos-models.

#[cfg(feature = "hub")]
mod hub;
mod openai;
#[cfg(feature = "serve-model")]
mod serve_model;
