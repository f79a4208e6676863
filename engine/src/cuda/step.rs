//! What is computed in one step, as the kernels read it.

use crate::model::Chunk;
use crate::sampler::{Choosing, Draw};

/// Numbers that one row of the table of tasks has.
pub(super) const TASK: usize = 4;

/// How a token is chosen, as the kernel reads it: zeros for the highest logit.
pub(super) fn rule(choosing: &Choosing) -> [u32; Draw::WORDS] {
    match choosing {
        Choosing::Highest => [0; Draw::WORDS],
        Choosing::Draw(draw) => draw.words(),
    }
}

/// A step's numbers, all in one array, and where they are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// What is uploaded.
    pub(super) words: Vec<u32>,
    /// Tokens computed.
    pub(super) rows: usize,
    /// Blocks of neighbouring rows of one sequence.
    pub(super) tasks: usize,
    /// Sequences whose logits are sent back: the first of those wanted.
    pub(super) sent: usize,
    /// Sequences whose next token the device chooses: the others.
    pub(super) chosen: usize,
    /// For each sequence that asked, in order, its place among those wanted.
    pub(super) order: Vec<usize>,
    /// Where each part starts in `words`: one number a row each, but for the last three.
    pub(super) tokens_at: usize,
    pub(super) positions_at: usize,
    pub(super) places_at: usize,
    /// Rows of those wanted.
    pub(super) wanted_at: usize,
    /// [`Draw::WORDS`] for each of those that the device chooses.
    pub(super) rules_at: usize,
    /// First row, rows, position of the first row, start among the tables.
    pub(super) tasks_at: usize,
    /// Pages of each sequence.
    pub(super) tables_at: usize,
}

impl Step {
    /// Lays out what follows the chunks' caches, which have room for it. Pages have `page_size` positions; a block of
    /// attention takes up to `block_rows` rows.
    pub(super) fn new(chunks: &[Chunk<'_>], page_size: usize, block_rows: usize) -> Self {
        let mut tokens = Vec::new();
        let (mut positions, mut places) = (Vec::new(), Vec::new());
        let (mut tasks, mut tables) = (Vec::new(), Vec::new());
        let (mut sent, mut chosen, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            let (row, table) = (tokens.len(), tables.len());
            let start = chunk.cache.length();
            let end = start + chunk.tokens.len();
            tables.extend(chunk.cache.page_numbers().take(end.div_ceil(page_size)));
            tokens.extend_from_slice(chunk.tokens);
            positions.extend((start..end).map(|position| position as u32));
            places.extend((start..end).map(|position| {
                tables[table + position / page_size] * page_size as u32 + (position % page_size) as u32
            }));
            for first in (0..chunk.tokens.len()).step_by(block_rows) {
                let count = block_rows.min(chunk.tokens.len() - first);
                tasks.extend([row + first, count, start + first, table].map(|number| number as u32));
            }
            if chunk.logits {
                let row = (tokens.len() - 1) as u32;
                match &chunk.choosing {
                    None => sent.push(row),
                    Some(choosing) => {
                        chosen.push(row);
                        rules.extend(rule(choosing));
                    }
                }
            }
        }
        let (mut next_sent, mut next_chosen) = (0.., sent.len()..);
        let wanting = chunks.iter().filter(|chunk| chunk.logits);
        let order = wanting
            .filter_map(|chunk| if chunk.choosing.is_some() { next_chosen.next() } else { next_sent.next() })
            .collect();
        let (rows, task_count) = (tokens.len(), tasks.len() / TASK);
        let wanted: Vec<u32> = sent.iter().chain(&chosen).copied().collect();
        let mut words = Vec::new();
        let mut add = |part: &[u32]| {
            words.extend_from_slice(part);
            words.len() - part.len()
        };
        let [tokens_at, positions_at, places_at] = [&tokens, &positions, &places].map(|part| add(part));
        let [wanted_at, rules_at, tasks_at, tables_at] =
            [&wanted, &rules, &tasks, &tables].map(|part| add(part));
        Self {
            words,
            rows,
            tasks: task_count,
            sent: sent.len(),
            chosen: chosen.len(),
            order,
            tokens_at,
            positions_at,
            places_at,
            wanted_at,
            rules_at,
            tasks_at,
            tables_at,
        }
    }
}
