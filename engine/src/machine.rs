//! Measures the peak rates of the machine: memory bandwidth with plain reads, and arithmetic in registers. Both use nothing
//! of the engine's kernels.
//!
//! [`MachineLimits`] holds the result. The benchmark ([`measure`](crate::bench::measure)) reports measured token
//! rates as shares of these rates.

use std::hint::black_box;
use std::time::Instant;

use lumos_kernels::{
    AlignedBuffer, DType, Path, QuantizedFormat, QuantizedPath, arch, byte_operations, float_operations,
};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::options::thread_pool;

/// Bytes read in each round: much larger than a processor's caches.
const BUFFER: usize = 512 << 20;
/// Number of rounds; the fastest counts.
const ROUNDS: usize = 7;
/// Numbers of streams in which a thread reads; the fastest counts.
const STREAMS: [usize; 4] = [1, 2, 4, 8];
/// Numbers that are read together. Their sums fit into the registers of every processor.
const TOGETHER: usize = 32;
/// Calls of a loop over registers in each round.
const CALLS: usize = 8;

/// Peak rates of the machine with a given number of threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Memory read bandwidth of all threads together, in bytes per second.
    pub read_bytes_per_second: f64,
    /// Operations per second of all threads together, in registers, with the instructions that the engine uses for the
    /// measured weight type or format. A multiplication and an addition are two operations.
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
    let operations_per_second = pool.install(|| operations(dtype, format));
    Ok(MachineLimits { read_bytes_per_second, operations_per_second })
}

fn bandwidth() -> f64 {
    let mut buffer = AlignedBuffer::<u64>::zeros(BUFFER / size_of::<u64>());
    for (value, index) in buffer.iter_mut().zip(0..) {
        *value = index;
    }
    let part = buffer.len().div_ceil(rayon::current_num_threads());
    let arch = arch();
    let read = |streams: usize| {
        best(|| {
            let sum: u64 = buffer
                .par_chunks(part)
                .map(|part| arch.dispatch(Read { values: part, streams }))
                .reduce(|| 0, |a, b| a ^ b);
            black_box(sum);
        })
    };
    // Which is fastest depends on the processor: one stream suits its prefetcher, several keep more cache lines in
    // flight.
    BUFFER as f64 / STREAMS.map(read).into_iter().fold(f64::INFINITY, f64::min)
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
        let (blocks, _) = self.values.as_chunks::<TOGETHER>();
        let length = blocks.len() / self.streams;
        let mut lanes = [0; TOGETHER];
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

/// Operations per second of all threads of the pool, in registers.
fn operations(dtype: DType, format: Option<QuantizedFormat>) -> f64 {
    let mut count: u64 = 0;
    let seconds = best(|| {
        let counts = rayon::broadcast(|_| {
            let once = || match format {
                Some(_) => byte_operations(QuantizedPath::best()),
                None => float_operations(Path::best(dtype)),
            };
            (0..CALLS).map(|_| once()).sum::<u64>()
        });
        count = counts.into_iter().sum();
    });
    count as f64 / seconds
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
