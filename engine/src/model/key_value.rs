//! Rotary embeddings of a step's queries and keys, and keys and values on their way to the KV cache, rounded to the type
//! of its pages.

use lumos_kernels::{Execution, compiled, round_to_bf16};
use rayon::prelude::*;

use super::Chunk;
use super::attention::AttentionShape;
use super::rope::RotaryTables;
use crate::cache::Storage;

/// Minimum number of floats for which several threads are used.
const PARALLEL_NUMBERS: usize = 1 << 14;

/// One layer's place in the pages, and its rotary embedding.
#[derive(Clone, Copy)]
pub(super) struct KeyValuePlace<'a> {
    pub(super) shape: &'a AttentionShape,
    pub(super) layer: usize,
    pub(super) rope: usize,
}

/// Rotates the queries and keys of all rows of a step by their positions, and stores keys and values. `rows` has one row
/// of queries, keys and values ([`AttentionShape::stride`]) for each token.
pub(super) fn rotate_and_store(
    execution: Execution,
    place: KeyValuePlace<'_>,
    chunks: &mut [Chunk<'_>],
    rotary: &RotaryTables,
    rows: &mut [f32],
) {
    let stride = place.shape.stride();
    let parallel = execution.parallel && chunks.len() > 1 && rows.len() >= PARALLEL_NUMBERS;
    let mut rest = rows;
    let parts = chunks.iter_mut().map(|chunk| {
        let (rows, others) = std::mem::take(&mut rest).split_at_mut(chunk.tokens.len() * stride);
        rest = others;
        (chunk, rows)
    });
    let run = |buffer: &mut Vec<u16>, (chunk, rows): (&mut Chunk<'_>, &mut [f32])| {
        for_chunk(execution, place, chunk, rotary, rows, buffer);
    };
    if parallel {
        parts.collect::<Vec<_>>().into_par_iter().for_each_init(Vec::new, run);
    } else {
        let mut buffer = Vec::new();
        parts.for_each(|part| run(&mut buffer, part));
    }
}

/// The rows of one sequence.
fn for_chunk(
    execution: Execution,
    KeyValuePlace { shape, layer, rope }: KeyValuePlace<'_>,
    chunk: &mut Chunk<'_>,
    rotary: &RotaryTables,
    rows: &mut [f32],
    rounded: &mut Vec<u16>,
) {
    let size = shape.head_size;
    let (queries, keys) = (shape.query_heads * size, shape.key_value_heads * size);
    let table = rotary.table(rope, chunk.cache.is_long());
    let storage = chunk.cache.layout().storage;
    for (row, position) in rows.chunks_exact_mut(shape.stride()).zip(chunk.cache.length()..) {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for head in row[..queries + keys].chunks_exact_mut(size) {
                    table.rotate(head, position);
                }
            },
        );
        let row = &row[queries..];
        if storage != Storage::Bf16 {
            for head in 0..shape.key_value_heads {
                let key = &row[head * size..][..size];
                chunk.cache.store(layer, head, position, key, &row[keys + head * size..][..size]);
            }
            continue;
        }
        rounded.resize(row.len(), 0);
        compiled(
            execution.arch,
            #[inline(always)]
            || round_to_bf16(row, rounded),
        );
        for head in 0..shape.key_value_heads {
            let key = &rounded[head * size..][..size];
            chunk.cache.store(layer, head, position, key, &rounded[keys + head * size..][..size]);
        }
    }
}
