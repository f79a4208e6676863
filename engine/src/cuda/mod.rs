//! The Llama family on a GPU.
//!
//! [`DeviceModel`] drives a forward pass on flattened tokens: products by cuBLAS, everything else by the kernels of
//! `kernels.cu` and `sampling.cu`. One upload a step says what is computed (tokens, positions, pages) and how the next tokens
//! are chosen, one download brings back their ids, and logits for those who asked for them; between the two the device
//! is never waited for. The pages' books are the
//! host's ([`Pool`](crate::cache::Pool)); the device holds what is in them.
//!
//! What a device is asked for goes through [`Accelerator`]: the CUDA driver is one, with the feature `cuda`; tests have
//! another that runs the same kernels on the host.
//!
//! Weights, keys, values and the inputs of products have the type that was asked for; sums, norms, the rotary
//! embedding, the softmax and the residual stream are float32. cuBLAS chooses its way by the number of rows, so that
//! results may differ in their last bits with what is computed beside them, unlike those of the processor.

mod accelerator;
#[cfg(feature = "cuda")]
pub(crate) mod driver;
#[cfg(test)]
mod emulator;
mod forward;
mod kernels;
mod llama;
mod model;
mod step;
#[cfg(test)]
mod tests;

#[cfg(feature = "cuda")]
pub(crate) use accelerator::DeviceError;
#[cfg(any(feature = "cuda", test))]
pub(crate) use llama::DeviceLlama;
pub(crate) use llama::weight_bytes;
#[cfg(any(feature = "cuda", test))]
pub(crate) use model::DeviceModel;
