//! The Llama family on a GPU.
//!
//! [`DeviceModel`] runs a forward pass on flattened tokens: cuBLAS computes the products of 16-bit
//! types, the kernels of `kernels.cu`, `attention.cu` and `sampling.cu` compute everything else. Each step has one upload (tokens,
//! positions, pages, and how the next tokens are chosen) and one download (token ids, and logits for requests that need
//! them); the host does not wait for the device in between. The host keeps the bookkeeping of pages
//! ([`Pool`](crate::cache::Pool)); the device stores their contents.
//!
//! Steps of decoding whose sizes occur again are recorded and started with one call.
//!
//! Device operations go through [`Accelerator`]. With the feature `cuda` the CUDA driver implements it; tests
//! use an implementation that runs the same kernels on the host.
//!
//! Weights, keys, values and the inputs of products have the requested type; sums, norms, the rotary
//! embedding, the softmax and the residual stream are float32. With 16-bit types attention multiplies on tensor cores
//! (heads of 32, 64 and 128 numbers, compute capability 8.0 or later), which take queries and weights of the softmax rounded to the type.
//! A sequence's results do not depend on the other sequences of its batch, if a row of cuBLAS's products does not depend on the
//! number of rows. cuBLAS promises nothing; without a workspace it was so in all measurements (docs/engine.md).

mod accelerator;
#[cfg(feature = "cuda")]
pub(crate) mod driver;
#[cfg(test)]
mod emulator;
mod forward;
mod kernels;
#[cfg(feature = "cuda")]
mod libraries;
mod llama;
mod model;
mod recordings;
#[cfg(feature = "cuda")]
mod staging;
mod step;

#[cfg(feature = "cuda")]
pub(crate) use accelerator::DeviceError;
pub(crate) use forward::buffer_bytes;
#[cfg(any(feature = "cuda", test))]
pub(crate) use llama::DeviceLlama;
pub(crate) use llama::weight_bytes;
#[cfg(any(feature = "cuda", test))]
pub(crate) use model::DeviceModel;

use std::sync::OnceLock;

use crate::device::{DeviceName, Gpu, NoGpu};

impl DeviceName {
    /// The concrete device: resolves [`Auto`](Self::Auto) for this machine and build, once in a process.
    pub fn resolved(self) -> Self {
        static FOUND: OnceLock<DeviceName> = OnceLock::new();
        let found = || gpus().ok()?.into_iter().find(Gpu::is_supported).map(|gpu| gpu.name);
        match self {
            Self::Auto => *FOUND.get_or_init(|| found().unwrap_or(Self::Cpu)),
            other => other,
        }
    }
}

/// Lists the GPUs of this machine. Does not link to GPU libraries.
///
/// # Errors
/// Fails if no GPU is present, or this binary cannot use any.
pub fn gpus() -> Result<Vec<Gpu>, NoGpu> {
    #[cfg(feature = "cuda")]
    return libraries::gpus();
    #[cfg(not(feature = "cuda"))]
    Err(NoGpu::NotBuilt)
}

#[cfg(test)]
mod tests;
