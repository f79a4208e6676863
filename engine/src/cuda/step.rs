//! The input of one step, in the layout that the kernels read.

use super::kernels::PART;
use crate::model::Chunk;
use crate::sampler::{Choosing, Draw};

/// Numbers in one row of the task table.
pub(super) const TASK: usize = 4;

/// The sampling rule of a token, as the kernel reads it; zeros select the highest logit.
pub(super) fn rule(choosing: &Choosing) -> [u32; Draw::WORDS] {
    match choosing {
        Choosing::Highest => [0; Draw::WORDS],
        Choosing::Draw(draw) => draw.words(),
    }
}

/// All numbers of a step in one array, and the offsets of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Step {
    /// The array to upload.
    pub(super) words: Vec<u32>,
    /// The highest number of positions that a token sees, without windows.
    pub(super) longest: usize,
    /// Number of tokens computed.
    pub(super) rows: usize,
    /// Number of attention tasks; each is a block of neighbouring rows of one sequence.
    pub(super) tasks: usize,
    /// Sequences whose logits are downloaded; they come first among the requested rows.
    pub(super) sent: usize,
    /// Sequences whose next token the device chooses; they follow.
    pub(super) chosen: usize,
    /// For each sequence that requested output, in order, its index among the requested rows.
    pub(super) order: Vec<usize>,
    /// Offset of each part in `words`. Parts have one number per row, except the last three.
    pub(super) tokens_at: usize,
    pub(super) positions_at: usize,
    pub(super) places_at: usize,
    /// Indices of the requested rows.
    pub(super) wanted_at: usize,
    /// [`Draw::WORDS`] for each sequence whose token the device chooses.
    pub(super) rules_at: usize,
    /// Per task: first row, number of rows, position of the first row, offset in the page tables.
    pub(super) tasks_at: usize,
    /// Pages of each sequence.
    pub(super) tables_at: usize,
}

impl Step {
    /// What the launches of the step depend on: everything but the numbers that are uploaded. `None` for steps that
    /// read prompts, whose sizes are rarely repeated.
    pub(super) fn shape(&self) -> Option<Self> {
        let is_decode = self.rows == self.tasks && self.rows == self.sent + self.chosen;
        let longest = self.longest.next_multiple_of(PART);
        is_decode.then(|| Self { words: Vec::new(), order: Vec::new(), longest, ..self.clone() })
    }

    /// Builds the step that computes the chunks' tokens. Their caches have room for them. Pages have
    /// `page_size` positions; a block of attention handles up to `block_rows` rows.
    pub(super) fn new(chunks: &[Chunk<'_>], page_size: usize, block_rows: usize) -> Self {
        let mut tokens = Vec::new();
        let (mut positions, mut places) = (Vec::new(), Vec::new());
        let (mut tasks, mut tables) = (Vec::new(), Vec::new());
        let (mut sent, mut chosen, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        let mut longest = 0;
        for chunk in chunks {
            let (row, table) = (tokens.len(), tables.len());
            let start = chunk.cache.length();
            let end = start + chunk.tokens.len();
            longest = longest.max(end);
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
            if chunk.predictions > 0 {
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
        let wanting = chunks.iter().filter(|chunk| chunk.predictions > 0);
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
            longest,
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
