//! Vector kernels for inference on CPUs: matrix products, attention tiles and operations on rows.
//!
//! [`PanelWeights`] and [`QuantizedPanels`] are packed weights, multiplied with the instructions of a [`Path`] or a
//! [`QuantizedPath`] that is chosen at run time. [`rms_norm`], [`gated`] and their neighbours compute rows of floats.
//! [`AlignedBuffer`], [`compiled`] and [`exponential`] are what other loops are built from, such as attention in
//! `lumos-engine`.
//!
//! Results do not depend on the number of rows, on the threads or, for paths that do not round, on the instruction set. The
//! kernels are a crate of their own so that they are compiled once, for the engine, its tests and the bench `linear`.

#![warn(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod buffer;
mod elementwise;
mod kernel;
mod quantized;
mod simd;
mod vector;

#[cfg(test)]
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../tests/it/support/uniform.rs"]
mod uniform;

pub use buffer::AlignedBuffer;
pub use elementwise::{add, add_bias, add_scaled, gated, norm_heads, rms_norm, scale, soft_cap};
pub use kernel::{Execution, PanelWeights};
pub use quantized::QuantizedPanels;
#[cfg(target_arch = "x86_64")]
pub use simd::AttentionTiles;
pub use simd::{
    Columns, DType, OutputColumns, PANEL, Path, QuantizedFormat, QuantizedPath, arch, byte_operations,
    float_operations, for_each_cell, instruction_limit,
};
pub use vector::{Activation, LANES, add_lanes, compiled, exponential, maximum, round_to_bf16, tangent};
