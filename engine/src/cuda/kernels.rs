//! The kernels of `kernels.cu`, `attention.cu` and `sampling.cu` with their parameters and launch dimensions.

use super::accelerator::{Accelerator, Argument, DeviceError, Launch};
use crate::model::AttentionShape;

/// The source that NVRTC compiles.
#[cfg(feature = "cuda")]
pub(super) const SOURCE: &str = concat!(
    include_str!("kernels.cu"),
    "#line 1 \"attention.cu\"\n",
    include_str!("attention.cu"),
    "#line 1 \"sampling.cu\"\n",
    include_str!("sampling.cu")
);

/// Names of all kernels.
#[cfg(feature = "cuda")]
pub(super) const KERNELS: [&str; 14] = [
    "product",
    "embed",
    "rms_norm",
    "rotate_store",
    "attention",
    "attention_32",
    "attention_64",
    "attention_128",
    "attention_many_32",
    "attention_many_64",
    "attention_many_128",
    "join_parts",
    "gated",
    "choose",
];
/// The most shared memory that a kernel requests, in bytes: attention with the largest heads.
#[cfg(feature = "cuda")]
pub(super) const MOST_SHARED_BYTES: i32 = 52 << 10;

/// Threads per warp.
const LANES: usize = 32;
/// Warps per block of attention, the queries that a block handles (`QUERIES`), and those of prompts (`MANY_QUERIES`).
const ATTENTION_WARPS: usize = 4;
const ATTENTION_QUERIES: usize = 16;
const MANY_QUERIES: usize = 64;
/// Positions per part of attention (`PART`).
pub(super) const PART: usize = 128;
/// Blocks of attention from which on a GPU is busy without splitting the context.
const ENOUGH_BLOCKS: usize = 256;
/// Size of the buffer for parts of attention, in bytes: 32 heads of 128 numbers at 500,000 positions.
pub(super) const PARTIAL_BYTES: usize = 32 << 20;
/// Bytes behind each row of a tile in shared memory.
const TILE_MARGIN: usize = 16;
/// The largest head size that attention supports (`LARGEST_HEAD`).
pub(super) const LARGEST_HEAD: usize = 256;
/// Outputs and rows that a warp of `product` computes (`PRODUCT_OUTPUTS`, `PRODUCT_TOKENS`), and its warps per block.
const PRODUCT_OUTPUTS: usize = 8;
const PRODUCT_TOKENS: usize = 8;
const PRODUCT_WARPS: usize = 4;
/// Threads per block of `rotate_store`.
const ROTARY_THREADS: usize = 128;
/// Numbers of a row that a thread of `rms_norm` keeps (4 × `NORM_LOADS`), and the most threads per block.
const NORM_NUMBERS: usize = 16;
const NORM_THREADS: usize = 512;
/// Threads per block of the other kernels.
const THREADS: u32 = 256;
/// Threads per block of `choose` (`CHOOSERS`), and its bytes of shared memory: 32 groups, 256 digits and 8 copies of each
/// (`GROUPS`, `DIGITS`, `COPIES`), 8 bytes each.
const CHOOSERS: u32 = 1024;
const CHOOSE_BYTES: u32 = (32 + 256 + 256 * 8) * 8;
/// Elements of a row of scores in shared memory (`SCORE_ROW`).
const SCORE_ROW: usize = LANES + 8;

/// A buffer with an offset in bytes.
pub(super) type At<'a, B> = (&'a B, usize);

impl AttentionShape {
    /// Query heads that one block of attention handles, and blocks needed for all query heads that share
    /// keys.
    fn together(&self) -> (usize, usize) {
        let group = self.query_heads / self.key_value_heads;
        let together = group.min(ATTENTION_QUERIES);
        (together, group.div_ceil(together))
    }

    /// Rows of a prompt that one block of attention handles.
    pub(super) fn block_rows(&self) -> usize {
        MANY_QUERIES / self.together().0
    }

    fn integers<'a, B: 'a>(&self) -> [Argument<'a, B>; 3] {
        [self.query_heads, self.key_value_heads, self.head_size]
            .map(|number| Argument::Integer(number as u32))
    }
}

/// Keys and values of all layers: layer × page × position × head × number, keys in one buffer, values in
/// another.
pub(super) struct Pages<B> {
    pub(super) keys: B,
    pub(super) values: B,
    pub(super) shape: AttentionShape,
    /// Number of pages.
    pub(super) count: usize,
    /// Positions per page.
    pub(super) positions: usize,
    /// Size of one number in bytes.
    pub(super) width: usize,
}

impl<B> Pages<B> {
    /// Size of one layer's keys in bytes.
    pub(super) fn layer_bytes(shape: &AttentionShape, count: usize, positions: usize, width: usize) -> usize {
        count * positions * shape.key_value_heads * shape.head_size * width
    }

    fn layer(&self, index: usize) -> [Argument<'_, B>; 2] {
        let offset = index * Self::layer_bytes(&self.shape, self.count, self.positions, self.width);
        [Argument::Buffer(&self.keys, offset), Argument::Buffer(&self.values, offset)]
    }
}

/// A launch with one block per row.
fn by_rows(kernel: &'static str, rows: usize, threads: u32, shared_bytes: u32) -> Launch {
    Launch { kernel, grid: (rows as u32, 1), threads, shared_bytes }
}

fn buffer<B>(at: At<'_, B>) -> Argument<'_, B> {
    Argument::Buffer(at.0, at.1)
}

/// Multiplies `rows` rows of `inputs` numbers with weights (`outputs` × `inputs`) of the device's type, and writes float32.
/// A row's outputs are the same to the bit whatever the other rows are.
pub(super) fn product<A: Accelerator>(
    device: &A,
    (rows, inputs, outputs): (usize, usize, usize),
    weights: &A::Buffer,
    input: &A::Buffer,
    output: At<'_, A::Buffer>,
) -> Result<(), DeviceError> {
    let sizes = [outputs, inputs, rows].map(|size| Argument::Integer(size as u32));
    let [outputs_argument, inputs_argument, rows_argument] = sizes;
    let arguments = [
        buffer((weights, 0)),
        buffer((input, 0)),
        buffer(output),
        outputs_argument,
        inputs_argument,
        rows_argument,
    ];
    let blocks = outputs.div_ceil(PRODUCT_OUTPUTS * PRODUCT_WARPS);
    let launch = Launch {
        kernel: "product",
        grid: (blocks as u32, rows.div_ceil(PRODUCT_TOKENS) as u32),
        threads: (PRODUCT_WARPS * LANES) as u32,
        shared_bytes: 0,
    };
    device.launch(&launch, &arguments)
}

/// Copies the embeddings (`width` numbers each) of `rows` tokens.
pub(super) fn embed<A: Accelerator>(
    device: &A,
    rows: usize,
    width: usize,
    tokens: At<'_, A::Buffer>,
    embedding: &A::Buffer,
    hidden: &A::Buffer,
) -> Result<(), DeviceError> {
    let arguments =
        [buffer(tokens), buffer((embedding, 0)), buffer((hidden, 0)), Argument::Integer(width as u32)];
    device.launch(&by_rows("embed", rows, THREADS, 0), &arguments)
}

/// Inputs and outputs of [`rms_norm`].
pub(super) struct Norm<'a, B> {
    /// Indices of the rows of `hidden` to normalize; `None` means all rows in order.
    pub(super) rows: Option<At<'a, B>>,
    pub(super) count: usize,
    pub(super) hidden: &'a B,
    /// Added to `hidden` first.
    pub(super) update: Option<&'a B>,
    pub(super) weight: &'a B,
    pub(super) output: &'a B,
    /// Numbers per row.
    pub(super) width: usize,
    pub(super) epsilon: f32,
}

/// Adds `update` to the rows and normalizes them (RMS norm).
pub(super) fn rms_norm<A: Accelerator>(device: &A, norm: &Norm<'_, A::Buffer>) -> Result<(), DeviceError> {
    let arguments = [
        norm.rows.map_or(Argument::Nothing, buffer),
        buffer((norm.hidden, 0)),
        norm.update.map_or(Argument::Nothing, |update| buffer((update, 0))),
        buffer((norm.weight, 0)),
        buffer((norm.output, 0)),
        Argument::Integer(norm.width as u32),
        Argument::Number(norm.epsilon),
    ];
    // By the width alone, because the order of additions depends on it.
    let warps = norm.width.div_ceil(NORM_NUMBERS * LANES).clamp(1, NORM_THREADS / LANES) as u32;
    device.launch(&by_rows("rms_norm", norm.count, warps * LANES as u32, warps * 4), &arguments)
}

/// Applies the rotary embedding to queries and keys, and stores keys and values.
#[allow(clippy::too_many_arguments)] // as the kernel
pub(super) fn rotate_store<A: Accelerator>(
    device: &A,
    rows: usize,
    query_key_value: &A::Buffer,
    positions: At<'_, A::Buffer>,
    places: At<'_, A::Buffer>,
    rotary: &A::Buffer,
    pages: &Pages<A::Buffer>,
    layer: usize,
) -> Result<(), DeviceError> {
    let [keys, values] = pages.layer(layer);
    let [query_heads, key_value_heads, head_size] = pages.shape.integers();
    let arguments = [
        buffer((query_key_value, 0)),
        buffer(positions),
        buffer(places),
        buffer((rotary, 0)),
        keys,
        values,
        query_heads,
        key_value_heads,
        head_size,
    ];
    // A thread for four pairs of numbers, or for one.
    let pairs = pages.shape.stride() / 2;
    let threads = if pages.shape.head_size.is_multiple_of(8) { pairs / 4 } else { pairs };
    let grid = (rows as u32, threads.div_ceil(ROTARY_THREADS) as u32);
    let launch = Launch { kernel: "rotate_store", grid, threads: ROTARY_THREADS as u32, shared_bytes: 0 };
    device.launch(&launch, &arguments)
}

/// Where attention may put the parts of a context that it computes at the same time.
pub(super) struct Partial<'a, B> {
    /// [`PARTIAL_BYTES`] bytes.
    pub(super) buffer: &'a B,
    /// The highest number of positions that a row of the step sees.
    pub(super) longest: usize,
    /// Position of each row.
    pub(super) positions: At<'a, B>,
    /// Number of rows.
    pub(super) rows: usize,
}

impl<B> Partial<'_, B> {
    /// The number of parts into which contexts are split for `blocks` blocks: 1 if the blocks are enough, there is only
    /// one part, or the buffer is too small. Results do not depend on it.
    pub(super) fn parts(&self, shape: &AttentionShape, blocks: usize) -> usize {
        let parts = self.longest.div_ceil(PART).max(1);
        let bytes = self.rows * shape.query_heads * parts * (shape.head_size + 2) * size_of::<f32>();
        if blocks >= ENOUGH_BLOCKS || bytes > PARTIAL_BYTES { 1 } else { parts }
    }
}

/// The kernel for heads of a size: one that copies 16 bytes at a time for usual sizes, which compute 16-bit types on tensor
/// cores. `is_many`: tasks may have more than [`ATTENTION_QUERIES`] queries.
fn attention_kernel(head_size: usize, is_many: bool) -> &'static str {
    match (head_size, is_many) {
        (32, false) => "attention_32",
        (64, false) => "attention_64",
        (128, false) => "attention_128",
        (32, true) => "attention_many_32",
        (64, true) => "attention_many_64",
        (128, true) => "attention_many_128",
        _ => "attention",
    }
}

/// Shared memory that attention needs for heads of `size` numbers of `width` bytes, with tensor cores or without.
fn attention_bytes(size: usize, width: usize, is_many: bool) -> usize {
    let row = size * width + TILE_MARGIN;
    let plain = (ATTENTION_QUERIES * (size + LANES)) * size_of::<f32>() + LANES * row;
    if width != 2 || attention_kernel(size, is_many) == "attention" {
        return plain;
    }
    let scores = ATTENTION_QUERIES * (SCORE_ROW * (width + size_of::<f32>()) + 2 * size_of::<f32>());
    let queries = ATTENTION_QUERIES * row + scores;
    // Keys and values of two tiles: `AHEAD` and the one in use.
    let ring = 2 * 2 * LANES * row;
    plain.max(ring + if is_many { queries.max(MANY_QUERIES * row) } else { queries })
}

/// Attention of all rows of a step in a layer with or without a window, split into `tasks` of at most
/// [`AttentionShape::block_rows`] rows.
#[allow(clippy::too_many_arguments)] // as the kernel
pub(super) fn attention<A: Accelerator>(
    device: &A,
    query_key_value: &A::Buffer,
    (task_count, tasks): (usize, At<'_, A::Buffer>),
    tables: At<'_, A::Buffer>,
    pages: &Pages<A::Buffer>,
    (layer, window): (usize, Option<usize>),
    partial: &Partial<'_, A::Buffer>,
    output: &A::Buffer,
) -> Result<(), DeviceError> {
    let (shape, size) = (&pages.shape, pages.shape.head_size);
    let blocks = shape.key_value_heads * shape.together().1;
    let parts = partial.parts(shape, task_count * blocks);
    // A step of decoding has a task for each row.
    let is_many = partial.rows > task_count;
    let launch = Launch {
        kernel: attention_kernel(size, is_many),
        grid: (task_count as u32, (blocks * parts) as u32),
        threads: (ATTENTION_WARPS * LANES) as u32,
        shared_bytes: attention_bytes(size, pages.width, is_many) as u32,
    };
    let [keys, values] = pages.layer(layer);
    let [query_heads, key_value_heads, head_size] = shape.integers();
    // A window beyond all positions has no effect; the kernel adds it to a position.
    let window = window.and_then(|window| i32::try_from(window).ok()).map_or(0, i32::cast_unsigned);
    let arguments = [
        buffer((query_key_value, 0)),
        buffer(tasks),
        buffer(tables),
        keys,
        values,
        buffer((output, 0)),
        if parts > 1 { buffer((partial.buffer, 0)) } else { Argument::Nothing },
        Argument::Integer(parts as u32),
        query_heads,
        key_value_heads,
        head_size,
        Argument::Integer(pages.positions as u32),
        Argument::Integer(window),
        Argument::Number(1.0 / (size as f32).sqrt()),
    ];
    device.launch(&launch, &arguments)?;
    if parts == 1 {
        return Ok(());
    }
    let [query_heads, _, head_size] = shape.integers();
    let arguments = [
        buffer((partial.buffer, 0)),
        buffer(partial.positions),
        buffer((output, 0)),
        Argument::Integer(parts as u32),
        query_heads,
        head_size,
        Argument::Integer(window),
    ];
    let grid = (partial.rows as u32, shape.query_heads as u32);
    let threads = size.next_multiple_of(LANES) as u32;
    device.launch(&Launch { kernel: "join_parts", grid, threads, shared_bytes: 0 }, &arguments)
}

/// SiLU of the gate times up; `width` of each.
pub(super) fn gated<A: Accelerator>(
    device: &A,
    rows: usize,
    width: usize,
    gate_up: &A::Buffer,
    product: &A::Buffer,
) -> Result<(), DeviceError> {
    let arguments = [buffer((gate_up, 0)), buffer((product, 0)), Argument::Integer(width as u32)];
    let grid = (rows as u32, (width as u32).div_ceil(THREADS));
    device.launch(&Launch { kernel: "gated", grid, threads: THREADS, shared_bytes: 0 }, &arguments)
}

/// Chooses the next token ids from `vocabulary` logits each, according to each rule
/// ([`Draw::WORDS`](crate::sampler::Draw) words; zeros select the highest logit).
pub(super) fn choose<A: Accelerator>(
    device: &A,
    rows: usize,
    vocabulary: usize,
    logits: At<'_, A::Buffer>,
    rules: At<'_, A::Buffer>,
    chosen: At<'_, A::Buffer>,
) -> Result<(), DeviceError> {
    let arguments = [buffer(logits), buffer(rules), buffer(chosen), Argument::Integer(vocabulary as u32)];
    device.launch(&by_rows("choose", rows, CHOOSERS, CHOOSE_BYTES), &arguments)
}
