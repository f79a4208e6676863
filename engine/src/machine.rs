//! Measures the peak rates of the machine: memory bandwidth and throughput of the engine's own matrix kernel.
//!
//! [`MachineLimits`] holds the result. The benchmark ([`measure`](crate::bench::measure)) reports measured token
//! rates as shares of these rates.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use candle_core::{Device, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::load::weights::{Matrix, QuantizedMatrix};
use crate::model::{Execution, Linear, LinearScratch};
use crate::options::thread_pool;
use crate::simd::{DType, QuantizedFormat};

/// Bytes read in each round: much larger than a processor's caches.
const BUFFER: usize = 512 << 20;
/// Number of rounds; the fastest counts.
const ROUNDS: usize = 7;
/// Rows, inputs and outputs of the matrix products.
const PRODUCT: (usize, usize, usize) = (256, 2048, 2048);

/// Peak rates of the machine with a given number of threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Memory read bandwidth of all threads together, in bytes per second.
    pub read_bytes_per_second: f64,
    /// Operations per second of the engine's own kernel at 256 rows, for the measured weight type or format.
    pub operations_per_second: f64,
}

/// Measures the machine for weights of `format`, or of `dtype` if `format` is `None`. Takes about one second.
///
/// # Errors
/// Fails if threads cannot be started.
pub(crate) fn machine_limits(
    threads: usize,
    dtype: DType,
    format: Option<QuantizedFormat>,
) -> Result<MachineLimits, LoadError> {
    let pool = thread_pool(Some(threads), "lumos-measure")?;
    let read_bytes_per_second = pool.install(bandwidth);
    let operations_per_second = pool.install(|| operations(dtype, format)).map_err(LoadError::thread)?;
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
    // Which is faster depends on the processor: one stream suits its prefetcher, several keep more cache
    // lines in flight.
    BUFFER as f64 / read(1).min(read(8))
}

/// Reads the whole buffer in several parallel streams; the compiler vectorizes the lanes.
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
        // These bytes decode to finite scales.
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

/// Seconds of the fastest round, after one warm-up round that does not count.
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
