//! Integration tests of lumos-models.

mod hub;
mod openai;
mod serve_model;
