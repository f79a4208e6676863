//! Compares the kernels' source with plain implementations, and whole models with the CPU.

#[cfg(all(unix, feature = "cuda"))]
mod driver;
mod kernels;
mod models;
mod pages;
mod sampling;
#[cfg(feature = "cuda")]
pub(super) mod sass;

use half::{bf16, f16};
use lumos_kernels::DType;

use super::accelerator::Accelerator;
use super::emulator::{Buffer, Emulator};

fn bytes_of(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
    }
}

fn values_of(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let pairs = || bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        DType::Bf16 => pairs().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        DType::F16 => pairs().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
    }
}

/// The values rounded to a type.
fn rounded(values: &[f32], dtype: DType) -> Vec<f32> {
    values_of(&bytes_of(values, dtype), dtype)
}

fn buffer(device: &Emulator, bytes: &[u8]) -> Buffer {
    let buffer = device.allocate(bytes.len()).unwrap();
    device.upload(&buffer, 0, bytes).unwrap();
    buffer
}

fn floats(device: &Emulator, buffer: &Buffer, count: usize, dtype: DType) -> Vec<f32> {
    let mut bytes = vec![0; count * dtype.width()];
    device.download(buffer, 0, &mut bytes).unwrap();
    values_of(&bytes, dtype)
}
