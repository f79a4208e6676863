//! Measures linear layers of the 110M and 1.1B shapes on every path of this processor, compared with the
//! limits of the machine.
//!
//! `cargo bench -p lumos-engine --bench linear [-- WORD…]` keeps the lines that contain one of the words
//! (`768x4096`, `Bf16`, `amx`). Every number is the best of several rounds, because other processes disturb
//! single rounds. One thread is measured in processor time, several threads in wall-clock time. The weights
//! are larger than the caches and are used in turn. `share` is the minimum time that the limits allow,
//! relative to the measured time. The limits are measured in the same run: memory bandwidth (the better of
//! one stream and eight, on the same number of threads), and the rate of the path's multiply-adds in registers. Both
//! are independent of the kernels.

#[allow(dead_code, unreachable_pub)]
#[path = "../src/model/elementwise.rs"]
mod elementwise;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../src/huge_pages.rs"]
mod huge_pages;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/model/kernel.rs"]
mod kernel;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/model/quantized.rs"]
mod quantized;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../src/simd/mod.rs"]
mod simd;
#[allow(dead_code, reason = "shared with the integration tests, which use more of it")]
#[path = "../tests/it/support/mod.rs"]
mod support;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../src/vector.rs"]
mod vector;

use std::time::{Duration, Instant};

use candle_core::{DType as CandleType, Device, Tensor};
use kernel::{Execution, PanelWeights};
use pulp::{Arch, Simd, WithSimd};
use quantized::QuantizedPanels;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::time::{ClockId, clock_gettime};
use simd::{DType, PANEL, Path, QuantizedFormat, QuantizedPath, Target};
use support::Uniform;
use vector::AlignedBuffer;

/// Inputs × outputs.
const SHAPES: [(usize, usize); 7] =
    [(768, 2304), (768, 4096), (2048, 768), (768, 32000), (2048, 2560), (2048, 11264), (5632, 2048)];
const ROWS: [usize; 4] = [1, 8, 32, 256];
const THREADS: [usize; 2] = [1, 2];
/// Number of rounds, of which the fastest counts.
const ROUNDS: usize = 9;
/// Minimum size of the weights of one shape.
const WEIGHT_BYTES: usize = 192 << 20;
/// Maximum number of multiply-adds of one round, which limits the number of layers it uses.
const ROUND_WORK: usize = 1 << 31;

/// Seconds of the fastest round: processor time of this thread, or wall-clock time.
fn best(rounds: usize, wall: bool, mut work: impl FnMut()) -> f64 {
    let processor = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let (start, start_processor) = (Instant::now(), processor());
        work();
        let took = if wall { start.elapsed() } else { processor() - start_processor };
        best = best.min(took.as_secs_f64());
    }
    best
}

/// Sums a buffer, which is read in `STREAMS` streams at once.
struct Read<'a, const STREAMS: usize>(&'a [f32]);

impl<const STREAMS: usize> WithSimd for Read<'_, STREAMS> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        const UNROLL: usize = 8;
        let (vectors, _) = S::as_simd_f32s(self.0);
        let (groups, _) = vectors.as_chunks::<UNROLL>();
        let part = groups.len() / STREAMS;
        let mut sums = [simd.splat_f32s(0.0); UNROLL];
        for index in 0..part {
            for stream in 0..STREAMS {
                for (sum, vector) in sums.iter_mut().zip(&groups[stream * part + index]) {
                    *sum = simd.add_f32s(*sum, *vector);
                }
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

/// Computes independent chains of fused multiply-adds in registers.
struct MultiplyAdd(usize);

impl WithSimd for MultiplyAdd {
    type Output = (usize, f32);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (usize, f32) {
        const CHAINS: usize = 12;
        let factor = simd.splat_f32s(std::hint::black_box(0.999));
        let mut sums = [simd.splat_f32s(1.0); CHAINS];
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, factor);
            }
        }
        let sum = sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum();
        (self.0 * CHAINS * S::F32_LANES * 2, sum)
    }
}

/// Measures the bandwidth of reading memory with all threads of the pool, in GB/s.
fn bandwidth<const STREAMS: usize>(pool: &ThreadPool) -> f64 {
    let buffer = AlignedBuffer::<f32>::zeros(WEIGHT_BYTES / 4);
    let arch = Arch::new();
    let share = buffer.len() / pool.current_num_threads();
    let seconds = best(ROUNDS, pool.current_num_threads() > 1, || {
        if pool.current_num_threads() == 1 {
            std::hint::black_box(arch.dispatch(Read::<STREAMS>(&buffer)));
        } else {
            pool.broadcast(|thread| {
                let part = &buffer[thread.index() * share..][..share];
                std::hint::black_box(arch.dispatch(Read::<STREAMS>(part)));
            });
        }
    });
    WEIGHT_BYTES as f64 * 1e-9 / seconds
}

/// Measures the peak rate of a path on one thread in GFLOP/s, in registers.
fn rate(path: Path) -> f64 {
    let mut operations = 0;
    let seconds = best(50 * ROUNDS, false, || operations = simd::float_operations(path));
    operations as f64 * 1e-9 / seconds
}

/// Creates layers of one shape until they have [`WEIGHT_BYTES`].
fn layers(element: DType, inputs: usize, outputs: usize) -> Vec<PanelWeights> {
    let mut random = Uniform::new(1);
    let rows = random.values(PANEL * inputs, 1.0);
    let mut layers: Vec<PanelWeights> = Vec::new();
    while layers.iter().map(PanelWeights::bytes).sum::<usize>() < WEIGHT_BYTES {
        let mut layer = PanelWeights::new(element, inputs, outputs);
        for _ in 0..outputs / PANEL {
            layer.add(&rows);
        }
        layers.push(layer);
    }
    layers
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |line: &str| words.is_empty() || words.iter().any(|word| line.contains(word.as_str()));
    let pools = THREADS.map(|threads| {
        ThreadPoolBuilder::new().num_threads(threads).build().expect("failed to start threads")
    });
    let arch = Arch::new();
    let mut operations = 0;
    let seconds = best(50 * ROUNDS, false, || {
        let (count, sum) = arch.dispatch(MultiplyAdd(std::hint::black_box(20_000)));
        std::hint::black_box(sum);
        operations = count;
    });
    println!("fused multiply-adds in registers, 1 thread: {:.0} GFLOP/s", operations as f64 * 1e-9 / seconds);
    let mut bandwidths = Vec::new();
    for pool in &pools {
        let (one, eight) = (pool.install(|| bandwidth::<1>(pool)), pool.install(|| bandwidth::<8>(pool)));
        println!(
            "reading memory, {} threads: {one:.1} GB/s in one stream, {eight:.1} GB/s in eight",
            pool.current_num_threads()
        );
        bandwidths.push(one.max(eight));
    }
    println!(
        "{:<11} {:<5} {:<10} {:>4} {:>7} {:>9} {:>9} {:>7} {:>6}",
        "shape", "type", "path", "rows", "threads", "ms", "GFLOP/s", "GB/s", "share"
    );
    for element in [DType::F32, DType::Bf16, DType::F16] {
        for (inputs, outputs) in SHAPES {
            let name = format!("{:<11} {:<5}", format!("{inputs}x{outputs}"), format!("{element:?}"));
            let paths: Vec<Path> = Path::ALL
                .into_iter()
                .filter(|path| *path != Path::Portable && path.available(element))
                .filter(|path| wanted(&format!("{name} {path}")))
                .collect();
            let mut layers = if paths.is_empty() { Vec::new() } else { layers(element, inputs, outputs) };
            for path in paths {
                let rate = rate(path);
                layers = layers.into_iter().filter_map(|layer| layer.with_path(path)).collect();
                for (pool, bandwidth) in pools.iter().zip(&bandwidths) {
                    for rows in ROWS {
                        let threads = pool.current_num_threads();
                        let mut packed = AlignedBuffer::default();
                        let seconds = product(
                            &layers,
                            (inputs, outputs),
                            rows,
                            pool,
                            |layer, execution, input, target| {
                                layer.multiply(execution.parallel, input, target, &mut packed);
                            },
                        );
                        let operations = (2 * rows * inputs * outputs) as f64 * 1e-9;
                        let bytes = layers[0].bytes() as f64 * 1e-9;
                        let limit = (operations / rate / threads as f64).max(bytes / bandwidth);
                        println!(
                            "{name} {:<10} {rows:>4} {threads:>7} {:>9.3} {:>9.1} {:>7.2} {:>5.0}%",
                            path.to_string(),
                            seconds * 1e3,
                            operations / seconds,
                            bytes / seconds,
                            100.0 * limit / seconds
                        );
                    }
                }
            }
            if wanted(&format!("{name} candle")) {
                candle(&name, element, inputs, outputs);
            }
        }
    }
    // For block formats, the share takes only the bandwidth into account.
    for format in [QuantizedFormat::Q8_0, QuantizedFormat::Q4K, QuantizedFormat::Q6K] {
        blocks(format, wanted, &pools, &bandwidths);
    }
}

/// Seconds of one product of `rows` rows with a layer, computed by `multiply`.
fn product<T>(
    layers: &[T],
    (inputs, outputs): (usize, usize),
    rows: usize,
    pool: &ThreadPool,
    mut multiply: impl FnMut(&T, Execution, &[f32], Target<'_>) + Send,
) -> f64
where
    T: Sync,
{
    let parallel = pool.current_num_threads() > 1;
    let execution = Execution { arch: Arch::new(), parallel };
    let input = Uniform::new(2).values(rows * inputs, 1.0);
    let mut output = vec![0.0; rows * outputs];
    let count = (ROUND_WORK / (rows * inputs * outputs)).clamp(1, layers.len());
    let mut round = || {
        for layer in &layers[..count] {
            multiply(layer, execution, &input, Target::whole(&mut output, outputs));
        }
    };
    let seconds = if parallel {
        pool.install(|| best(ROUNDS, true, &mut round))
    } else {
        best(ROUNDS, false, &mut round)
    };
    seconds / count as f64
}

/// Measures products with weights in block formats. Activations are rounded in every call.
fn blocks(format: QuantizedFormat, wanted: impl Fn(&str) -> bool, pools: &[ThreadPool], bandwidths: &[f64]) {
    for (inputs, outputs) in SHAPES {
        let name = format!("{:<11} {:<5}", format!("{inputs}x{outputs}"), format!("{format:?}"));
        if !wanted(&name) {
            continue;
        }
        let mut random = Uniform::new(1);
        let row: Vec<u8> = (0..inputs / format.block_values() * format.block_bytes())
            .map(|_| random.below(128) as u8)
            .collect();
        let stored: Vec<u8> = row.iter().copied().cycle().take(row.len() * outputs).collect();
        let mut layers: Vec<QuantizedPanels> = Vec::new();
        while layers.iter().map(QuantizedPanels::bytes).sum::<usize>() < WEIGHT_BYTES {
            layers.push(QuantizedPanels::new(format, inputs, &[&stored]));
        }
        let is_timed = |path: &QuantizedPath| *path != QuantizedPath::Portable && path.available();
        for path in QuantizedPath::ALL.into_iter().filter(is_timed) {
            layers = layers.into_iter().filter_map(|layer| layer.with_path(path)).collect();
            for (pool, bandwidth) in pools.iter().zip(bandwidths) {
                for rows in ROWS {
                    let mut packed = AlignedBuffer::default();
                    let seconds =
                        product(&layers, (inputs, outputs), rows, pool, |layer, execution, input, target| {
                            layer.pack(execution, input, &mut packed);
                            layer.multiply(execution, &packed, target);
                        });
                    let bytes = layers[0].bytes() as f64 * 1e-9;
                    println!(
                        "{name} {:<10} {rows:>4} {:>7} {:>9.3} {:>9.1} {:>7.2} {:>5.0}%",
                        path.to_string(),
                        pool.current_num_threads(),
                        seconds * 1e3,
                        (2 * rows * inputs * outputs) as f64 * 1e-9 / seconds,
                        bytes / seconds,
                        100.0 * bytes / bandwidth / seconds
                    );
                }
            }
        }
    }
}

/// Measures candle's product of the same shape, on candle's default number of threads.
fn candle(name: &str, element: DType, inputs: usize, outputs: usize) {
    let dtype = match element {
        DType::F32 => CandleType::F32,
        DType::Bf16 => CandleType::BF16,
        DType::F16 => CandleType::F16,
    };
    let size = dtype.size_in_bytes() * inputs * outputs;
    let tensor = |rows: usize| Tensor::ones((rows, inputs), dtype, &Device::Cpu).expect("failed to allocate");
    let layers: Vec<Tensor> = (0..WEIGHT_BYTES.div_ceil(size)).map(|_| tensor(outputs)).collect();
    for rows in ROWS {
        let input = tensor(rows);
        let count = (ROUND_WORK / (rows * inputs * outputs)).clamp(1, layers.len());
        let seconds = best(ROUNDS, true, || {
            for layer in &layers[..count] {
                let weights = layer.t().expect("failed to transpose");
                std::hint::black_box(input.matmul(&weights).expect("failed to multiply"));
            }
        }) / count as f64;
        println!(
            "{name} {:<10} {rows:>4} {:>7} {:>9.3} {:>9.1} {:>7.2}",
            "candle",
            "all",
            seconds * 1e3,
            (2 * rows * inputs * outputs) as f64 * 1e-9 / seconds,
            size as f64 * 1e-9 / seconds
        );
    }
}
