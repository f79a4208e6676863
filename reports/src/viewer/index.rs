//! The list of items that the page's script filters: columns over all rows, packed into the page.
//!
//! Texts are shortened for display, and those of an item are stored once for all configurations. The packed
//! list must stay below [`INDEX_BYTES`], so that a page of 20,000 items is below 2 MB.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use lumos_coordinator::UnitView;
use lumos_coordinator::manifest::Manifest;
use lumos_tasks::{ItemId, Outcome, Step};
use serde::Serialize;

use super::page::visible_text;
use super::unit::ScoredUnit;
use crate::display::{prediction_text, shortened, task_text, thousands};
use crate::report::cause_class;
use crate::results::Cause;

/// Maximum number of rows. Further units are in the samples only.
const ROWS: usize = 100_000;
/// Maximum length of the packed list in bytes before its texts are shortened further.
const INDEX_BYTES: usize = 1_600_000;
/// Maximum lengths of texts in characters: a task, another text, and both in a long list.
const TASK: usize = 100;
const TEXT: usize = 60;
const SHORT: usize = 40;
/// Number of a unit's digits. Eight would be ambiguous in one of twenty lists of 20,000 units.
const UNIT_DIGITS: usize = 12;

/// The list of items.
#[derive(Serialize)]
pub(super) struct ItemIndex {
    v: u32,
    cells: Vec<IndexCell>,
    causes: Vec<IndexCause>,
    groups: Vec<String>,
    /// Texts of items by benchmark.
    items: BTreeMap<String, ItemColumns>,
    rows: RowColumns,
    notes: Vec<String>,
    /// Number of units that are not in the list.
    left_out: u64,
    /// Maximum number of rows of a run.
    #[serde(skip)]
    most: usize,
    /// Number of rows at which the list has no room for the run in progress.
    #[serde(skip)]
    end: usize,
    /// Numbers of characters of a task and of another text that the list has, once it has shortened one.
    #[serde(skip)]
    searched: Option<(usize, usize)>,
    #[serde(skip)]
    positions: HashMap<(String, ItemId), u32>,
    #[serde(skip)]
    group_positions: HashMap<String, u32>,
}

/// Returns the number of rows of a run: [`ROWS`], or the same share of them for each run if their units are more.
pub(super) fn rows_per_run(units: u64, runs: usize) -> usize {
    if units <= ROWS as u64 { ROWS } else { ROWS / runs.max(1) }
}

/// A configuration.
#[derive(Serialize)]
struct IndexCell {
    label: String,
    /// Position of its run, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<usize>,
    /// Key of its items.
    items: String,
    /// First row, number of rows, and name of each chunk.
    chunks: Vec<(usize, usize, String)>,
}

#[derive(Serialize)]
struct IndexCause {
    name: &'static str,
    kind: &'static str,
    class: &'static str,
}

#[derive(Serialize, Default)]
struct ItemColumns {
    index: Vec<u64>,
    name: Vec<Option<String>>,
    task: Vec<String>,
    gold: Vec<String>,
    /// Positions in the list of groups.
    group: Vec<Vec<u32>>,
}

#[derive(Serialize, Default)]
struct RowColumns {
    cell: Vec<u32>,
    /// Position in the columns of the cell's items.
    item: Vec<u32>,
    unit: Vec<String>,
    prediction: Vec<Option<String>>,
    cause: Vec<u32>,
    turn: Vec<u32>,
    score: Vec<Option<f64>>,
    turns: Vec<u32>,
    tokens: Vec<u64>,
    /// Milliseconds.
    ms: Vec<u64>,
    /// Billionths of a US dollar.
    cost: Vec<Option<u64>>,
}

/// Returns the kind of a cause by which the page filters.
fn kind(cause: Cause) -> &'static str {
    match cause {
        Cause::Correct => "correct",
        Cause::WrongAnswer | Cause::Stage(_) => "wrong",
        Cause::Faulted => "faulted",
        Cause::Outstanding => "outstanding",
    }
}

fn text(text: &str, most: usize) -> String {
    visible_text(&shortened(text, most)).into_owned()
}

/// Returns a text as the list has it, and sets `searched` if it was shortened.
fn searchable(full: &str, most: usize, searched: &mut Option<(usize, usize)>) -> String {
    if full.chars().nth(most).is_some() {
        *searched = Some((TASK, TEXT));
    }
    text(full, most)
}

impl ItemIndex {
    /// Creates an empty list with a maximum number of rows per run.
    pub(super) fn new(most: usize) -> Self {
        let causes = Cause::all().map(|cause| IndexCause {
            name: cause.name(),
            kind: kind(cause),
            class: cause_class(cause),
        });
        Self {
            v: 1,
            cells: Vec::new(),
            causes: causes.collect(),
            groups: Vec::new(),
            items: BTreeMap::new(),
            rows: RowColumns::default(),
            notes: Vec::new(),
            left_out: 0,
            most,
            end: 0,
            searched: None,
            positions: HashMap::new(),
            group_positions: HashMap::new(),
        }
    }

    /// Adds the configurations of a run, whose units follow. Returns the position of the first. `side` is put before
    /// their labels; `run` is the position of the run if there are several.
    pub(super) fn add_cells(&mut self, manifest: &Manifest, side: &str, run: Option<usize>) -> usize {
        let first = self.cells.len();
        self.end = self.len() + self.most;
        self.cells.extend(manifest.configurations.iter().map(|planned| IndexCell {
            label: visible_text(&format!("{side}{}", planned.label)).into_owned(),
            run,
            items: planned.configuration.benchmark.clone(),
            chunks: Vec::new(),
        }));
        first
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.cell.len()
    }

    /// Whether another row of the run fits. Counts the unit as left out otherwise.
    pub(super) fn has_room(&mut self) -> bool {
        let fits = self.len() < self.end;
        self.left_out += u64::from(!fits);
        fits
    }

    /// Adds a unit of a cell.
    pub(super) fn add(&mut self, cell: usize, view: &UnitView<'_>, scored: &ScoredUnit) {
        let item = self.item(&self.cells[cell].items.clone(), view);
        let rows = &mut self.rows;
        let outcome = view.record.as_ref().map(|record| &record.outcome);
        let telemetry = view.record.as_ref().map(|record| &record.telemetry);
        let (read, written) = outcome.map_or((0, 0), Outcome::tokens);
        rows.cell.push(number(cell));
        rows.item.push(item);
        rows.unit.push(view.unit.as_str().chars().take(UNIT_DIGITS).collect());
        let prediction = outcome.and_then(prediction_text);
        rows.prediction.push(prediction.map(|one| searchable(&one, TEXT, &mut self.searched)));
        rows.cause.push(number(Cause::all().position(|one| one == scored.cause).unwrap_or_default()));
        rows.turn.push(outcome.map_or(0, |outcome| scored.cause.turn(outcome)));
        rows.score.push(scored.main.map(|value| (value * 1e4).round() / 1e4));
        rows.turns.push(outcome.map_or(0, turns));
        rows.tokens.push(read + written);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a duration, for display"
        )]
        rows.ms.push(telemetry.map_or(0, |telemetry| (telemetry.seconds * 1000.0).round() as u64));
        rows.cost.push(telemetry.and_then(|telemetry| telemetry.cost).map(|cost| cost.0));
    }

    /// Returns the position of a unit's item, and adds the item if it is new.
    fn item(&mut self, key: &str, view: &UnitView<'_>) -> u32 {
        let item = view.item;
        let columns = self.items.entry(key.to_owned()).or_default();
        let next = number(columns.index.len());
        let position = *self.positions.entry((key.to_owned(), item.id.clone())).or_insert(next);
        if position == next {
            let groups = item.group.iter().flat_map(|group| group.lines()).map(|group| {
                let group = text(group, TASK);
                *self.group_positions.entry(group).or_insert_with_key(|group| {
                    self.groups.push(group.clone());
                    number(self.groups.len() - 1)
                })
            });
            columns.group.push(groups.collect());
            columns.index.push(item.index);
            let mut listed = |text: &str, most| searchable(text, most, &mut self.searched);
            columns.name.push(item.name.as_ref().map(|name| listed(name, TEXT)));
            columns.task.push(listed(task_text(&item.task), TASK));
            columns.gold.push(listed(item.target.text(), TEXT));
        }
        position
    }

    /// Adds a chunk of consecutive rows of a cell.
    pub(super) fn add_chunk(&mut self, cell: usize, first: usize, count: usize, name: String) {
        self.cells[cell].chunks.push((first, count, name));
    }

    /// Removes the chunks, for a page without a folder.
    pub(super) fn remove_chunks(&mut self) {
        self.cells.iter_mut().for_each(|cell| cell.chunks.clear());
    }

    /// Packs the list after noting what it and its search lack.
    fn pack_with_notes(&mut self) -> io::Result<String> {
        let left_out = (self.left_out > 0).then(|| {
            let several = self.cells.iter().any(|cell| cell.run.is_some());
            let of_each = if several { " of each run" } else { "" };
            let (most, left_out) = (thousands(self.most as u64), thousands(self.left_out));
            format!("The list has the first {most} units{of_each}; {left_out} further units are left out.")
        });
        let searched = self.searched.map(|(task, answer)| match task {
            0 => format!(
                "Tasks are omitted and other texts are shortened because the list is long. \
                 The search covers the first {answer} characters of an answer."
            ),
            SHORT => format!(
                "Texts are shortened because the list is long. \
                 The search covers the first {task} characters of a task and {answer} of an answer."
            ),
            _ => format!(
                "The search covers the first {task} characters of a task and {answer} of an answer or a name."
            ),
        });
        self.notes = left_out.into_iter().chain(searched).collect();
        pack(self)
    }

    /// Packs the list as JSON, gzip and base64. Shortens texts and omits tasks if it would be too long.
    ///
    /// # Errors
    /// If a number cannot be written as JSON.
    pub(super) fn pack(&mut self) -> io::Result<String> {
        let mut packed = self.pack_with_notes()?;
        if packed.len() > INDEX_BYTES {
            self.searched = Some((SHORT, SHORT));
            let items = self.items.values_mut().flat_map(|one| one.task.iter_mut().chain(&mut one.gold));
            for long in items.chain(self.rows.prediction.iter_mut().flatten()) {
                *long = shortened(long, SHORT);
            }
            packed = self.pack_with_notes()?;
        }
        if packed.len() > INDEX_BYTES {
            self.searched = Some((0, SHORT));
            self.items.values_mut().flat_map(|one| &mut one.task).for_each(String::clear);
            packed = self.pack_with_notes()?;
        }
        Ok(packed)
    }
}

/// Returns the number of the last turn.
fn turns(outcome: &Outcome) -> u32 {
    outcome.steps.iter().map(Step::turn).max().unwrap_or(0)
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Packs a value as JSON, gzip and base64.
fn pack(value: &impl Serialize) -> io::Result<String> {
    pack_bytes(&serde_json::to_vec(value)?)
}

/// Packs bytes as gzip and base64.
///
/// # Errors
/// None in practice: the bytes are packed in memory.
pub(super) fn pack_bytes(bytes: &[u8]) -> io::Result<String> {
    let mut packed = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::default());
    packed.write_all(bytes)?;
    Ok(STANDARD.encode(packed.finish()?))
}
