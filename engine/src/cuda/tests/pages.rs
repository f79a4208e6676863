//! Key-value storage and attention on random page tables, and the small kernels.

use lumos_kernels::DType;

use super::{buffer, bytes_of, floats, rounded};
use crate::cache::{KeyValueShape, KvCache, PageLayout, Pool, Storage};
use crate::cuda::accelerator::Accelerator;
use crate::cuda::emulator::Emulator;
use crate::cuda::kernels::{self, Norm, PARTIAL_BYTES, Pages, Partial};
use crate::cuda::step::{Step, TASK};
use crate::fixtures::Uniform;
use crate::model::{AttentionShape, Chunk};
use crate::sampler::Choosing;
use proptest::prelude::*;

const DTYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// Rounding error of a type for numbers up to one.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::Bf16 => 6e-3,
        DType::F16 => 8e-4,
    }
}

/// The rotary embedding of a head at a position, in double precision; `angles` has cosines, then sines.
fn turned(head: &[f32], angles: &[f32]) -> Vec<f64> {
    let half = head.len() / 2;
    (0..head.len())
        .map(|at| {
            let pair = at % half;
            let (cosine, sine) = (f64::from(angles[pair]), f64::from(angles[half + pair]));
            let (low, high) = (f64::from(head[pair]), f64::from(head[pair + half]));
            if at < half { low * cosine - high * sine } else { high * cosine + low * sine }
        })
        .collect()
}

/// Textbook attention over rows of (key, value).
fn plain(query: &[f64], seen: &[(&[f64], &[f64])]) -> Vec<f64> {
    let scale = 1.0 / (query.len() as f64).sqrt();
    let dot = |key: &[f64]| key.iter().zip(query).map(|(key, query)| key * query).sum::<f64>() * scale;
    let scores: Vec<f64> = seen.iter().map(|(key, _)| dot(key)).collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let sum =
        |at: usize| seen.iter().zip(&weights).map(|((_, value), weight)| weight / total * value[at]).sum();
    (0..query.len()).map(sum).collect()
}

/// Sequences that grow step by step in one pool.
struct Case {
    dtype: DType,
    shape: AttentionShape,
    window: Option<usize>,
    layers: usize,
    page_size: usize,
    /// Tokens that each sequence adds in each step.
    growth: Vec<Vec<usize>>,
    /// Number of first steps whose keys and values are stored without attention, which takes long in an emulator.
    stored: usize,
    seed: u64,
}

impl Case {
    /// Runs all steps. Returns the outputs of the last layer, row by row, or the first difference between the device and
    /// the plain implementation.
    fn outputs(&self) -> Result<Vec<f32>, String> {
        let mut outputs = Vec::new();
        let Some(device) = Emulator::start(self.dtype) else { return Ok(outputs) };
        let AttentionShape { query_heads, key_value_heads, head_size } = self.shape;
        let mut random = Uniform::new(self.seed);
        let sequences = self.growth[0].len();
        let lengths: Vec<usize> =
            (0..sequences).map(|index| self.growth.iter().map(|step| step[index]).sum()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let shape = KeyValueShape { layers: self.layers, heads: key_value_heads, head_size };
        let width = self.dtype.width();
        let layout = PageLayout { shape, positions: self.page_size, storage: Storage::Device { width } };
        let count = lengths.iter().map(|length| layout.pages(*length)).sum::<usize>() + 3;
        let mut pool = Pool::new(layout, count, false);
        // Pages are handed out in an order different from their numbering.
        let mut decoys: Vec<KvCache> = (0..count).map(|_| KvCache::new(layout)).collect();
        for decoy in &mut decoys {
            assert!(pool.reserve(decoy, 1));
        }
        while !decoys.is_empty() {
            pool.release(decoys.swap_remove(random.below(decoys.len())));
        }
        let bytes = self.layers * Pages::<()>::layer_bytes(&self.shape, count, self.page_size, width);
        let [keys, values] = [0; 2].map(|_| device.allocate(bytes).unwrap());
        let pages = Pages { keys, values, shape: self.shape, count, positions: self.page_size, width };
        let angles: Vec<f32> = (0..longest * head_size / 2)
            .map(|at| (at / (head_size / 2)) as f32 * 0.37 / (1 + at % (head_size / 2)) as f32)
            .collect();
        let angles: Vec<f32> = angles
            .chunks_exact(head_size / 2)
            .flat_map(|angles| {
                angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin())).collect::<Vec<_>>()
            })
            .collect();
        let rotary = buffer(&device, &bytes_of(&angles, DType::F32));
        let mut caches: Vec<KvCache> = (0..sequences).map(|_| KvCache::new(layout)).collect();
        // The input rows of each sequence, layer by layer: queries, keys and values.
        let mut known: Vec<Vec<Vec<f32>>> = vec![vec![Vec::new(); sequences]; self.layers];
        let stride = self.shape.stride();
        let output_width = query_heads * head_size;
        let partial = device.allocate(PARTIAL_BYTES).unwrap();
        for (number, growth) in self.growth.iter().enumerate() {
            let tokens: Vec<Vec<u32>> = growth.iter().map(|count| vec![1; *count]).collect();
            for (cache, count) in caches.iter_mut().zip(growth) {
                assert!(pool.reserve(cache, cache.length() + count));
            }
            let chunks: Vec<Chunk<'_>> = caches
                .iter_mut()
                .zip(&tokens)
                .filter(|(_, tokens)| !tokens.is_empty())
                .map(|(cache, tokens)| Chunk {
                    tokens,
                    cache,
                    predictions: 1,
                    choosing: Some(Choosing::Highest),
                })
                .collect();
            let step = Step::new(&chunks, self.page_size, self.shape.block_rows());
            drop(chunks);
            if step.rows == 0 {
                continue;
            }
            let words = buffer(&device, bytemuck::cast_slice(&step.words));
            let at = |word: usize| (&words, word * 4);
            for (layer, known) in known.iter_mut().enumerate() {
                let rows = random.values(step.rows * stride, 1.0);
                let query_key_value = buffer(&device, &bytes_of(&rows, DType::F32));
                let output = device.allocate(step.rows * output_width * width).unwrap();
                let (positions, places) = (at(step.positions_at), at(step.places_at));
                kernels::rotate_store(
                    &device,
                    step.rows,
                    &query_key_value,
                    positions,
                    places,
                    &rotary,
                    &pages,
                    layer,
                )
                .unwrap();
                let tasks = (step.tasks, at(step.tasks_at));
                let tables = at(step.tables_at);
                let run = |longest: usize| {
                    let partial = Partial { buffer: &partial, longest, positions, rows: step.rows };
                    let place = (layer, self.window);
                    kernels::attention(
                        &device,
                        &query_key_value,
                        tasks,
                        tables,
                        &pages,
                        place,
                        &partial,
                        &output,
                    )
                    .unwrap();
                    floats(&device, &output, step.rows * output_width, self.dtype)
                };
                let mut rest = &rows[..];
                for (index, count) in growth.iter().enumerate() {
                    let (new, after) = rest.split_at(count * stride);
                    rest = after;
                    known[index].extend_from_slice(new);
                }
                if number < self.stored {
                    continue;
                }
                let found = run(step.longest);
                // As if there were only one part.
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                if bits(&found) != bits(&run(1)) {
                    return Err("the parts of a context change results".to_owned());
                }
                let mut row = 0;
                for (index, count) in growth.iter().enumerate() {
                    let start = caches[index].length();
                    for position in start..start + count {
                        let found = &found[row * output_width..][..output_width];
                        self.compare(&known[index], &angles, position, found)?;
                        row += 1;
                    }
                }
                if layer + 1 == self.layers {
                    outputs.extend(found);
                }
            }
            for (cache, count) in caches.iter_mut().zip(growth) {
                cache.advance(*count);
            }
        }
        Ok(outputs)
    }

    fn check(&self) -> Result<(), String> {
        self.outputs().map(drop)
    }

    /// Compares one row of the output with attention over all inputs of its sequence.
    fn compare(&self, known: &[f32], angles: &[f32], position: usize, found: &[f32]) -> Result<(), String> {
        let AttentionShape { query_heads, key_value_heads, head_size } = self.shape;
        let stride = self.shape.stride();
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let head =
            |position: usize, index: usize| &known[position * stride + index * head_size..][..head_size];
        let angles = |position: usize| &angles[position * head_size..][..head_size];
        let stored = |values: Vec<f64>| -> Vec<f64> {
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            rounded(&values, self.dtype).into_iter().map(f64::from).collect()
        };
        for key_head in 0..key_value_heads {
            let kept: Vec<(Vec<f64>, Vec<f64>)> = (first..=position)
                .map(|position| {
                    let key = turned(head(position, query_heads + key_head), angles(position));
                    let value = head(position, query_heads + key_value_heads + key_head);
                    (stored(key), stored(value.iter().copied().map(f64::from).collect()))
                })
                .collect();
            let kept: Vec<(&[f64], &[f64])> =
                kept.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let group = query_heads / key_value_heads;
            for query_head in key_head * group..(key_head + 1) * group {
                let expected = plain(&turned(head(position, query_head), angles(position)), &kept);
                let found = &found[query_head * head_size..][..head_size];
                for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                    let difference = (expected - f64::from(*found)).abs();
                    // NaN differs too.
                    if difference.is_nan() || difference > tolerance(self.dtype) {
                        return Err(format!(
                            "position {position}, head {query_head}, number {at}: {found} instead of {expected}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Ragged batches of prompts and single tokens over pages in any order.
    #[test]
    fn attention_over_pages_equals_the_plain_version(
        dtype in 0usize..3, key_value_heads in 1usize..4, group in 1usize..6, half in 1usize..34,
        layers in 1usize..3, window in prop::option::of(1usize..50), page in 0usize..5,
        growth in prop::collection::vec(prop::collection::vec(0usize..40, 3), 1..4), seed in any::<u64>(),
    ) {
        let (query_heads, head_size) = (key_value_heads * group, 2 * half);
        let shape = AttentionShape { query_heads, key_value_heads, head_size };
        let page_size = [1, 4, 8, 16, 48][page];
        let case = Case { dtype: DTYPES[dtype], shape, window, layers, page_size, growth, stored: 0, seed };
        prop_assert_eq!(case.check(), Ok(()));
    }
}

/// The largest head, and groups with more heads than one block handles.
#[test]
fn attention_at_its_limits_equals_the_plain_version() {
    let growth = vec![vec![37, 1, 0], vec![1, 1, 2]];
    for (query_heads, key_value_heads, head_size) in [(2, 2, 256), (20, 1, 4), (34, 2, 6), (1, 1, 2)] {
        let shape = AttentionShape { query_heads, key_value_heads, head_size };
        let (dtype, page_size) = (DType::F32, 16);
        let case = Case {
            dtype,
            shape,
            window: None,
            layers: 1,
            page_size,
            growth: growth.clone(),
            stored: 0,
            seed: 5,
        };
        assert_eq!(case.check(), Ok(()), "{shape:?}");
    }
    // A window that no position leaves.
    let shape = AttentionShape { query_heads: 2, key_value_heads: 1, head_size: 8 };
    let window = Some(u32::MAX as usize - 3);
    let case =
        Case { dtype: DType::F32, shape, window, layers: 1, page_size: 16, growth, stored: 0, seed: 6 };
    assert_eq!(case.check(), Ok(()));
}

/// Every kernel, at contexts of several parts, which are computed one after the other and at the same time.
#[test]
fn attention_of_every_usual_head_over_several_parts_equals_the_plain_version() {
    for (index, head_size) in [32, 64, 128, 40].into_iter().enumerate() {
        let shape = AttentionShape { query_heads: 4, key_value_heads: 2, head_size };
        let window = (index % 2 == 0).then_some(300);
        let (dtype, growth) = (DTYPES[index % 3], vec![vec![126, 260], vec![20, 1], vec![1, 19], vec![1, 1]]);
        let case = Case { dtype, shape, window, layers: 1, page_size: 16, growth, stored: 1, seed: 7 };
        assert_eq!(case.check(), Ok(()), "{shape:?}");
    }
}

/// A row's results are the same to the bit alone and beside others, on tensor cores, too.
#[test]
fn attention_of_a_row_does_not_depend_on_the_other_rows() {
    for (dtype, head_size) in [(DType::F32, 64), (DType::Bf16, 64), (DType::F16, 32)] {
        let outputs = |growth: &[usize]| {
            let shape = AttentionShape { query_heads: 3, key_value_heads: 1, head_size };
            let growth = growth.iter().map(|count| vec![*count]).collect();
            Case { dtype, shape, window: Some(40), layers: 1, page_size: 16, growth, stored: 0, seed: 11 }
                .outputs()
        };
        let bits = |values: Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let together = bits(outputs(&[70]).unwrap());
        assert!(together.iter().any(|bits| *bits != together[0]) || together.is_empty());
        for apart in [&[1; 70][..], &[33, 1, 2, 34]] {
            assert!(bits(outputs(apart).unwrap()) == together, "{dtype} {apart:?}");
        }
    }
}

/// A long context of few sequences is computed by several blocks at the same time, whose results are joined.
#[test]
fn long_contexts_of_few_sequences_are_split() {
    let shape = AttentionShape { query_heads: 32, key_value_heads: 32, head_size: 128 };
    let buffer = ();
    let parts = |longest: usize, rows: usize, blocks: usize| {
        Partial { buffer: &buffer, longest, positions: (&buffer, 0), rows }.parts(&shape, blocks)
    };
    assert_eq!([1, 128, 129, 2048].map(|longest| parts(longest, 1, 32)), [1, 1, 2, 16]);
    // A GPU is busy with many sequences, and parts of many rows would not fit.
    assert_eq!((parts(2048, 64, 2048), parts(2048, 4, 128), parts(2048, 512, 128)), (1, 16, 1));
}

/// Accesses beyond a buffer are detected; the other tests rely on this.
#[test]
fn the_emulator_notices_a_page_that_is_not_there() {
    let Some(device) = Emulator::start(DType::F32).filter(Emulator::is_sanitized) else { return };
    let shape = AttentionShape { query_heads: 1, key_value_heads: 1, head_size: 4 };
    let bytes = Pages::<()>::layer_bytes(&shape, 1, 16, 4);
    let [keys, values] = [0; 2].map(|_| device.allocate(bytes).unwrap());
    let pages = Pages { keys, values, shape, count: 1, positions: 16, width: 4 };
    let rows = buffer(&device, &[0; 48]);
    let output = device.allocate(16).unwrap();
    let run = |page: u32| {
        let words = buffer(&device, bytemuck::cast_slice(&[0u32, 1, 0, 0, page]));
        let (tasks, tables) = ((1, (&words, 0)), (&words, TASK * 4));
        let partial = Partial { buffer: &output, longest: 1, positions: (&words, 0), rows: 1 };
        kernels::attention(&device, &rows, tasks, tables, &pages, (0, None), &partial, &output)
            .and_then(|()| device.download(&output, 0, &mut [0; 16]))
    };
    assert!(run(0).is_ok());
    assert!(run(1).is_err());
}

#[test]
fn rows_are_embedded_scaled_and_gated() {
    // Rows that threads keep whole, one by one, and in two rounds.
    let cases = DTYPES.map(|dtype| (dtype, 300)).into_iter().chain([(DType::F32, 301), (DType::F16, 8260)]);
    for (dtype, width) in cases {
        let Some(device) = Emulator::start(dtype) else { return };
        let mut random = Uniform::new(3);
        let (rows, near) = (3, tolerance(dtype) * 4.0);
        let close = |found: &[f32], expected: &[f64]| {
            assert_eq!(found.len(), expected.len());
            let near = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() < near;
            assert!(found.iter().zip(expected).all(near), "{dtype}");
        };
        let table = random.values(7 * width, 1.0);
        let embedding = buffer(&device, &bytes_of(&table, dtype));
        let hidden = device.allocate(rows * width * 4).unwrap();
        let tokens = buffer(&device, bytemuck::cast_slice(&[6u32, 0, 3]));
        kernels::embed(&device, rows, width, (&tokens, 0), &embedding, &hidden).unwrap();
        let table = rounded(&table, dtype);
        let embedded = [&table[6 * width..], &table[..width], &table[3 * width..4 * width]].concat();
        assert_eq!(floats(&device, &hidden, rows * width, DType::F32), embedded);

        let (update, weight) = (random.values(rows * width, 1.0), random.values(width, 1.0));
        let [update_buffer, weight_buffer] =
            [&update, &weight].map(|values| buffer(&device, &bytes_of(values, DType::F32)));
        let output = device.allocate(2 * width * dtype.width()).unwrap();
        let picked = buffer(&device, bytemuck::cast_slice(&[2u32, 0]));
        let norm = Norm {
            rows: Some((&picked, 0)),
            count: 2,
            hidden: &hidden,
            update: Some(&update_buffer),
            weight: &weight_buffer,
            output: &output,
            width,
            epsilon: 1e-5,
        };
        kernels::rms_norm(&device, &norm).unwrap();
        let expected: Vec<f64> = [2, 0]
            .iter()
            .flat_map(|row| {
                let sum =
                    |at: usize| f64::from(embedded[row * width + at]) + f64::from(update[row * width + at]);
                let squares: f64 = (0..width).map(|at| sum(at) * sum(at)).sum();
                let scale = 1.0 / (squares / width as f64 + 1e-5).sqrt();
                (0..width).map(|at| sum(at) * scale * f64::from(weight[at])).collect::<Vec<f64>>()
            })
            .collect();
        close(&floats(&device, &output, 2 * width, dtype), &expected);
        // The row that was not selected is unchanged.
        let after = floats(&device, &hidden, rows * width, DType::F32);
        assert_eq!(after[width..2 * width], embedded[width..2 * width]);
        assert_eq!(after[5], embedded[5] + update[5]);

        let gate_up = random.values(2 * 2 * width, 2.0);
        let gate_up_buffer = buffer(&device, &bytes_of(&gate_up, DType::F32));
        kernels::gated(&device, 2, width, &gate_up_buffer, &output).unwrap();
        let expected: Vec<f64> = (0..2 * width)
            .map(|at| {
                let row = &gate_up[at / width * 2 * width..];
                let (gate, up) = (f64::from(row[at % width]), f64::from(row[width + at % width]));
                gate / (1.0 + (-gate).exp()) * up
            })
            .collect();
        close(&floats(&device, &output, 2 * width, dtype), &expected);
    }
}

/// Every bit pattern of both 16-bit types that is a number.
#[test]
fn short_types_are_rounded_as_the_library_does() {
    for dtype in [DType::Bf16, DType::F16] {
        let Some(device) = Emulator::start(dtype) else { return };
        let mut random = Uniform::new(9);
        let mut values: Vec<f32> = (0..20_000)
            .map(|_| f32::from_bits((random.integer() >> 32) as u32))
            .filter(|value| value.is_finite())
            .collect();
        let exact = (0..=u16::MAX).flat_map(|bits| {
            let value = super::values_of(&bits.to_le_bytes(), dtype)[0];
            // Also the value half way to the next one.
            let next = super::values_of(&bits.wrapping_add(1).to_le_bytes(), dtype)[0];
            [value, value / 2.0 + next / 2.0]
        });
        values.extend(exact.filter(|value| value.is_finite()));
        // A gate of 32 multiplies by 32 exactly; values that survive the round trip are copied and rounded.
        values.retain(|value| value / 32.0 * 32.0 == *value);
        let count = values.len();
        let parts = values.iter().map(|value| value / 32.0);
        let rows: Vec<f32> = std::iter::repeat_n(32.0, count).chain(parts).collect();
        let input = buffer(&device, &bytes_of(&rows, DType::F32));
        let output = device.allocate(count * 2).unwrap();
        kernels::gated(&device, 1, count, &input, &output).unwrap();
        let found = floats(&device, &output, count, dtype);
        assert!(found == rounded(&values, dtype), "{dtype}");
    }
}
