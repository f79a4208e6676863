//! What the machine can do at best.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use candle_core::{Device, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::load::quantized::QuantizedMatrix;
use crate::model::{Execution, Linear, LinearScratch, Matrix, QuantizedFormat};
use crate::options::DType;

/// Bytes read in each round: far more than a processor's caches.
const BUFFER: usize = 512 << 20;
/// Rounds, of which the best counts.
const ROUNDS: usize = 7;
/// Rows, inputs and outputs of the products.
const PRODUCT: (usize, usize, usize) = (256, 2048, 2048);

/// The best rates of the machine with some threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Bytes per second that all threads together read from memory.
    pub read_bytes_per_second: f64,
    /// Operations per second of the engine's own kernel at 256 rows, for weights of the type or format in question.
    pub operations_per_second: f64,
}

/// Measures the machine for weights of a format, or else of a type; takes about a second.
///
/// # Errors
/// When threads cannot be started.
pub(crate) fn machine_limits(
    threads: usize,
    dtype: DType,
    format: Option<QuantizedFormat>,
) -> Result<MachineLimits, LoadError> {
    let failed = |reason: String| LoadError::Thread { reason };
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads.max(1))
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let read_bytes_per_second = pool.install(bandwidth);
    let operations_per_second =
        pool.install(|| operations(dtype, format)).map_err(|error| failed(error.to_string()))?;
    Ok(MachineLimits { read_bytes_per_second, operations_per_second })
}

fn bandwidth() -> f64 {
    let buffer: Vec<u64> = (0..(BUFFER / size_of::<u64>()) as u64).into_par_iter().collect();
    let part = buffer.len().div_ceil(rayon::current_num_threads());
    let arch = Arch::new();
    let read = |streams: usize| {
        best(|| {
            let sum: u64 = buffer
                .par_chunks(part)
                .map(|part| arch.dispatch(Read { values: part, streams }))
                .reduce(|| 0, |a, b| a ^ b);
            black_box(sum);
        })
    };
    // Which is faster depends on the processor: one stream suits its prefetching, several have more lines under way.
    BUFFER as f64 / read(1).min(read(8))
}

/// Reads everything, in so many streams side by side; the compiler makes vectors of the lanes.
struct Read<'a> {
    values: &'a [u64],
    streams: usize,
}

impl WithSimd for Read<'_> {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> u64 {
        let (blocks, _) = self.values.as_chunks::<64>();
        let length = blocks.len() / self.streams;
        let mut lanes = [0; 64];
        for index in 0..length {
            for stream in 0..self.streams {
                for (lane, value) in lanes.iter_mut().zip(&blocks[stream * length + index]) {
                    *lane ^= value;
                }
            }
        }
        lanes.into_iter().fold(0, |all, lane| all ^ lane)
    }
}

fn operations(dtype: DType, format: Option<QuantizedFormat>) -> candle_core::Result<f64> {
    let (rows, inputs, outputs) = PRODUCT;
    let layer = if let Some(format) = format {
        let bytes = outputs * inputs / format.block_values() * format.block_bytes();
        // Bytes that make finite scales.
        let blocks = Cow::Owned(vec![0x11; bytes]);
        Linear::stacked(&[Matrix::Blocks(QuantizedMatrix { format, columns: inputs, blocks })], dtype)?
    } else {
        let weight = Tensor::ones((outputs, inputs), candle_core::DType::F32, &Device::Cpu)?;
        Linear::new(&[weight], dtype)?
    };
    let input = vec![1.0; rows * inputs];
    let mut output = vec![0.0; rows * outputs];
    let mut scratch = LinearScratch::default();
    let execution = Execution { arch: Arch::new(), parallel: true };
    let seconds = best(|| layer.forward(execution, &input, &mut output, &mut scratch));
    Ok(2.0 * (rows * inputs * outputs) as f64 / seconds)
}

/// Seconds of the quickest of some rounds, after one that does not count.
fn best(mut round: impl FnMut()) -> f64 {
    round();
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
