//! GGUF files of the Llama family, as written by llama.cpp's `convert_hf_to_gguf.py`: one file with shape,
//! tokenizer and weights. Candle parses the format
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//!
//! [`GgufFile`] validates the file and provides the model's configuration, tokenizer and tensors.

mod config;
mod metadata;
mod names;
mod tensors;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Content;
use memmap2::Mmap;

use metadata::Metadata;
pub(crate) use tensors::GgufTensors;
pub use vocabulary::StoredChat;

use super::config::ModelConfig;
use super::files;
use crate::error::LoadError;
use crate::tokenizer::Tokenizer;

/// Maximum size of everything before the tensors. A vocabulary of 128,000 with its merges has 8 MiB. The
/// limit bounds the allocation that a corrupt length can cause.
const LARGEST_HEADER: usize = 32 << 20;

/// An opened file, with its metadata and tensor table read.
pub(super) struct GgufFile {
    path: PathBuf,
    bytes: Mmap,
    content: Content,
}

impl GgufFile {
    /// Opens a file and checks that it contains one complete Llama-family model.
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let bytes = files::map(path)?;
        let content = read(&bytes, path)?;
        let file = Self { path: path.to_owned(), bytes, content };
        config::check_kind(&file.metadata())?;
        Ok(file)
    }

    /// The shape from the metadata.
    pub(super) fn config(&self) -> Result<ModelConfig, LoadError> {
        let factors = tensors::frequency_factors(&self.content, &self.bytes, &self.path)?;
        config::config(&self.metadata(), tensors::is_tied(&self.content), factors)
    }

    /// The tokenizer from the metadata.
    pub(super) fn tokenizer(&self) -> Result<Tokenizer, LoadError> {
        vocabulary::tokenizer(&self.metadata())
    }

    /// The tensors under Hugging Face's Llama names.
    pub(super) fn into_tensors(self, config: &ModelConfig) -> Result<GgufTensors, LoadError> {
        GgufTensors::new(self.path, self.bytes, &self.content, config)
    }

    fn metadata(&self) -> Metadata<'_> {
        Metadata { file: &self.path, values: &self.content.metadata }
    }
}

/// Reads the metadata and the tensor table.
fn read(bytes: &[u8], path: &Path) -> Result<Content, LoadError> {
    let head = &bytes[..bytes.len().min(LARGEST_HEADER)];
    if has_no_alignment(head) {
        return Err(invalid(path, "general.alignment is 0"));
    }
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

/// Whether the metadata set the alignment to 0, which would make candle divide by zero.
fn has_no_alignment(head: &[u8]) -> bool {
    const KEY: &[u8] = b"general.alignment";
    head.windows(KEY.len()).enumerate().filter(|(_, window)| *window == KEY).any(|(start, _)| {
        let rest = &head[start + KEY.len()..];
        // Types 0 to 5 are integers of one, two and four bytes, unsigned and signed.
        let width = match rest {
            [kind @ 0..=5, 0, 0, 0, ..] => 1 << (kind / 2),
            _ => return false,
        };
        rest[4..].iter().take(width).all(|byte| *byte == 0)
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
