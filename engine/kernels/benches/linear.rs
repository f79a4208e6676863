//! Measures linear layers of the 110M and 1.1B shapes on every path of this processor, compared with the
//! limits of the machine.
//!
//! `cargo bench -p lumos-kernels --bench linear [-- WORD…]` keeps the lines that contain all of the words
//! (`768x4096`, `Bf16`, `amx`). Every number is the best of several rounds, because other processes disturb
//! single rounds. One thread is measured in processor time, several threads in wall-clock time. The weights
//! are larger than the caches and are used in turn. `share` is the minimum time that the limits allow,
//! relative to the measured time. The limits are independent of the kernels: memory bandwidth (the better of one stream
//! and eight, on the same number of threads, measured first), and the rate of the path's multiply-adds in registers on all
//! threads (`peak`, in 10⁹ operations per second), whose rounds alternate with those of the product.

#[path = "../../tests/it/support/uniform.rs"]
mod uniform;

use std::time::{Duration, Instant};

use candle_core::{DType as CandleType, Device, Tensor};
use lumos_kernels::{
    AlignedBuffer, DType, Execution, OutputColumns, PANEL, PanelWeights, Path, QuantizedFormat,
    QuantizedPanels, QuantizedPath, byte_operations, float_operations,
};
use pulp::{Arch, Simd, WithSimd};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::time::{ClockId, clock_gettime};
use uniform::Uniform;

/// Inputs × outputs.
const SHAPES: [(usize, usize); 7] =
    [(768, 2304), (768, 4096), (2048, 768), (768, 32000), (2048, 2560), (2048, 11264), (5632, 2048)];
const ROWS: [usize; 4] = [1, 8, 32, 256];
const THREADS: [usize; 2] = [1, 2];
/// Number of rounds, of which the fastest counts.
const ROUNDS: usize = 9;
/// Calls of a loop over registers per round.
const PEAK_CALLS: usize = 8;
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

/// Measures the bandwidth of reading memory with all threads of the pool, in GB/s.
fn bandwidth<const STREAMS: usize>(pool: &ThreadPool) -> f64 {
    let mut buffer = AlignedBuffer::<f32>::zeros(WEIGHT_BYTES / 4);
    // Pages that were never written share their memory.
    buffer.fill(1.0);
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

/// Creates layers of one shape until they have [`WEIGHT_BYTES`].
fn layers(element: DType, inputs: usize, outputs: usize) -> Vec<PanelWeights> {
    let mut random = Uniform::new(1);
    let rows = random.values(PANEL * inputs, 1.0);
    let mut layers: Vec<PanelWeights> = Vec::new();
    while layers.iter().map(PanelWeights::bytes).sum::<usize>() < WEIGHT_BYTES {
        let mut layer = PanelWeights::new(element, inputs, outputs);
        for _ in 0..outputs / PANEL {
            layer.add(DType::F32, bytemuck::cast_slice(&rows));
        }
        layers.push(layer);
    }
    layers
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |line: &str| words.iter().all(|word| line.contains(word.as_str()));
    let pools = THREADS.map(|threads| {
        ThreadPoolBuilder::new().num_threads(threads).build().expect("failed to start threads")
    });
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
        "{:<11} {:<5} {:<10} {:>4} {:>7} {:>9} {:>9} {:>9} {:>7} {:>6}",
        "shape", "type", "path", "rows", "threads", "ms", "GFLOP/s", "peak", "GB/s", "share"
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
                layers = layers.into_iter().filter_map(|layer| layer.with_path(path)).collect();
                for (pool, bandwidth) in pools.iter().zip(&bandwidths) {
                    for rows in ROWS {
                        let mut packed = AlignedBuffer::default();
                        let measured = product(
                            &layers,
                            (inputs, outputs),
                            rows,
                            pool,
                            || float_operations(path),
                            |layer, execution, input, target| {
                                layer.multiply(execution.parallel, input, target, &mut packed);
                            },
                        );
                        let line = format!("{name} {:<10} {rows:>4}", path.to_string());
                        measured.print(&line, (rows, inputs, outputs), layers[0].bytes(), pool, *bandwidth);
                    }
                }
            }
            if wanted(&format!("{name} candle")) {
                candle(&name, element, inputs, outputs);
            }
        }
    }
    for format in [QuantizedFormat::Q8_0, QuantizedFormat::Q4K, QuantizedFormat::Q6K] {
        blocks(format, wanted, &pools, &bandwidths);
    }
}

/// A product and the limit of arithmetic.
struct Measured {
    /// Seconds of one product.
    seconds: f64,
    /// Operations per second in registers, on all threads.
    peak: f64,
}

impl Measured {
    fn print(
        &self,
        line: &str,
        (rows, inputs, outputs): (usize, usize, usize),
        bytes: usize,
        pool: &ThreadPool,
        bandwidth: f64,
    ) {
        let (operations, bytes) = ((2 * rows * inputs * outputs) as f64, bytes as f64 * 1e-9);
        let limit = (operations / self.peak).max(bytes / bandwidth);
        println!(
            "{line} {:>7} {:>9.3} {:>9.1} {:>9.1} {:>7.2} {:>5.0}%",
            pool.current_num_threads(),
            self.seconds * 1e3,
            operations * 1e-9 / self.seconds,
            self.peak * 1e-9,
            bytes / self.seconds,
            100.0 * limit / self.seconds
        );
    }
}

/// Measures one product of `rows` rows with a layer, computed by `multiply`, and in alternation the loop over registers
/// `peak`, which returns its number of operations.
fn product<T>(
    layers: &[T],
    (inputs, outputs): (usize, usize),
    rows: usize,
    pool: &ThreadPool,
    peak: impl Fn() -> u64 + Sync,
    mut multiply: impl FnMut(&T, Execution, &[f32], OutputColumns<'_>) + Send,
) -> Measured
where
    T: Sync,
{
    let parallel = pool.current_num_threads() > 1;
    let execution = Execution { arch: Arch::new(), parallel };
    let input = Uniform::new(2).values(rows * inputs, 1.0);
    let mut output = vec![0.0; rows * outputs];
    let count = (ROUND_WORK / (rows * inputs * outputs)).clamp(1, layers.len());
    pool.install(|| {
        let (mut seconds, mut rate) = (f64::INFINITY, 0.0f64);
        for _ in 0..ROUNDS {
            let mut operations = 0;
            let took = best(1, true, || {
                let counts = rayon::broadcast(|_| (0..PEAK_CALLS).map(|_| peak()).sum::<u64>());
                operations = counts.into_iter().sum();
            });
            rate = rate.max(operations as f64 / took);
            seconds = seconds.min(best(1, parallel, || {
                for layer in &layers[..count] {
                    multiply(layer, execution, &input, OutputColumns::whole(&mut output, outputs));
                }
            }));
        }
        Measured { seconds: seconds / count as f64, peak: rate }
    })
}

/// Measures products with weights in block formats. Activations are rounded in every call.
fn blocks(format: QuantizedFormat, wanted: impl Fn(&str) -> bool, pools: &[ThreadPool], bandwidths: &[f64]) {
    for (inputs, outputs) in SHAPES {
        let name = format!("{:<11} {:<5}", format!("{inputs}x{outputs}"), format!("{format:?}"));
        let paths: Vec<QuantizedPath> = QuantizedPath::ALL
            .into_iter()
            .filter(|path| *path != QuantizedPath::Portable && path.available())
            .filter(|path| wanted(&format!("{name} {path}")))
            .collect();
        if paths.is_empty() {
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
        for path in paths {
            layers = layers.into_iter().filter_map(|layer| layer.with_path(path)).collect();
            for (pool, bandwidth) in pools.iter().zip(bandwidths) {
                for rows in ROWS {
                    let mut packed = AlignedBuffer::default();
                    let measured = product(
                        &layers,
                        (inputs, outputs),
                        rows,
                        pool,
                        || byte_operations(path),
                        |layer, execution, input, target| {
                            layer.pack(execution, input, &mut packed);
                            layer.multiply(execution, &packed, target);
                        },
                    );
                    let line = format!("{name} {:<10} {rows:>4}", path.to_string());
                    measured.print(&line, (rows, inputs, outputs), layers[0].bytes(), pool, *bandwidth);
                }
            }
        }
    }
}

/// Measures candle's product of the same shape, on candle's default number of threads, without `peak` and `share`.
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
            "{name} {:<10} {rows:>4} {:>7} {:>9.3} {:>9.1} {:>9} {:>7.2} {:>6}",
            "candle",
            "all",
            seconds * 1e3,
            (2 * rows * inputs * outputs) as f64 * 1e-9 / seconds,
            "-",
            size as f64 * 1e-9 / seconds,
            "-"
        );
    }
}
