//! GGUF files as written by llama.cpp's `convert_hf_to_gguf.py`: one file with shape, tokenizer and weights. Candle parses the format
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//!
//! [`open`] validates the file and returns the model's configuration, tokenizer and tensors.

mod architectures;
mod config;
#[cfg(test)]
mod family_tests;
mod header;
mod metadata;
mod names;
mod tensors;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::io::Cursor;
use std::path::Path;

use candle_core::quantized::gguf_file::Content;

use metadata::Metadata;
pub(crate) use tensors::GgufTensors;
pub use vocabulary::StoredChat;

use super::block::ModelConfig;
use super::files;
use crate::error::LoadError;
use crate::tokenizer::Tokenizer;

/// Maximum size of everything before the tensors. A vocabulary of 128,000 with its merges has 8 MiB. The
/// limit bounds the allocation that a corrupt length can cause.
const LARGEST_HEADER: usize = 32 << 20;

/// Reads a file that contains one complete model: its description, its tokenizer, and its tensors under Hugging Face's
/// names.
pub(super) fn open(path: &Path) -> Result<(ModelConfig, Tokenizer, GgufTensors), LoadError> {
    let bytes = files::map(path)?;
    let content = read(&bytes, path)?;
    let metadata = Metadata { file: path, values: &content.metadata };
    let architecture = config::architecture(&metadata)?;
    let found = tensors::found(&content, &bytes, path)?;
    let config = config::config(&metadata, architecture, &found)?;
    let tokenizer = vocabulary::tokenizer(&metadata)?;
    let tensors = GgufTensors::new(path, bytes, &content, &config, architecture)?;
    Ok((config, tokenizer, tensors))
}

/// Reads the tokenizer of a file.
pub(super) fn tokenizer(path: &Path) -> Result<Tokenizer, LoadError> {
    let bytes = files::map(path)?;
    let content = read(&bytes, path)?;
    vocabulary::tokenizer(&Metadata { file: path, values: &content.metadata })
}

/// Reads the metadata and the tensor table.
fn read(bytes: &[u8], path: &Path) -> Result<Content, LoadError> {
    let head = &bytes[..bytes.len().min(LARGEST_HEADER)];
    header::check(head).map_err(|reason| invalid(path, &reason))?;
    Content::read(&mut Cursor::new(head)).map_err(|error| {
        let reason = error.to_string();
        if reason.contains("unknown dtype for tensor") {
            let reason = format!(
                "{} (unsupported ggml type: expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to \
                 Q6_K)",
                reason.lines().next().unwrap_or_default()
            );
            return LoadError::Unsupported { file: path.to_owned(), reason };
        }
        invalid(path, &reason)
    })
}

/// The error for a corrupt file.
fn invalid(file: &Path, reason: &str) -> LoadError {
    // Candle's errors may have a backtrace after the first line.
    let reason = reason.lines().next().unwrap_or_default().to_owned();
    LoadError::InvalidWeights { file: file.to_owned(), reason }
}

/// The error for an unsupported file.
fn unsupported(file: &Path, reason: String) -> LoadError {
    LoadError::Unsupported { file: file.to_owned(), reason }
}
