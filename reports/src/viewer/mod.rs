//! The item viewer: a report page that lists every unit and shows its trajectory.
//!
//! [`write_viewer`] writes a folder that opens from disk in any browser:
//!
//! ```text
//! index.html         the report, and the list of items (`index`)
//! data/0000.js …     trajectories, at most 200 units each (`chunks`, `unit`)
//! screenshots/…      of episodes in a browser, in a folder per run if there are several (`screenshots`)
//! ```
//!
//! [`write_page`] writes the report as one file, with the list and without trajectories. `page` has the frame and the
//! content-security policy of all pages; `report::html` has the values of a report.

mod chunks;
mod index;
mod page;
mod screenshots;
mod unit;

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use lumos_benchmarks::Scoring;

use crate::compare::{Comparison, Side, comparison_page};
use crate::export::ExportError;
use crate::judge::Verdicts;
use crate::report::{Report, report_page};
use crate::results::ScoreError;

pub use page::PAGE_STYLE;
pub(crate) use page::{PageMode, escaped, render_page};

use chunks::ChunkWriter;
use index::{ItemIndex, rows_per_run};
use lumos_coordinator::atomic_file::{FolderDraft, write_whole};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{CheckpointReader, UnitView, for_each_unit};
use screenshots::ScreenshotFolder;
use unit::{ScoredUnit, Scorer, UnitTexts};

/// The page in a viewer's folder.
pub const PAGE: &str = "index.html";

/// Maximum number of changed items of each kind that the page of a comparison shows without the list.
pub const CHANGED_ITEMS: usize = 100;

/// The record that a viewer shows.
#[derive(Debug, Clone, Copy)]
pub struct ViewerSource<'a> {
    /// The manifest of the run.
    pub manifest: &'a Manifest,
    /// Its checkpoint.
    pub checkpoint: &'a CheckpointReader,
    /// The scorings of the report; those of the run if empty.
    pub scorings: &'a [Scoring],
}

/// Size of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerSize {
    /// Length of the page in bytes.
    pub page: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// Length of all chunks in bytes.
    pub bytes: u64,
}

/// Collects trajectories and screenshots while units are listed.
struct TrajectorySink<'a> {
    chunks: &'a mut ChunkWriter,
    screenshots: Option<&'a ScreenshotFolder>,
    /// Cell and first row of the chunk in progress.
    open: Option<(usize, usize)>,
}

impl TrajectorySink<'_> {
    /// Adds the unit of a row. Chunks contain units of one cell.
    fn add(
        &mut self,
        index: &mut ItemIndex,
        (cell, row): (usize, usize),
        view: &UnitView<'_>,
        scored: ScoredUnit,
    ) -> Result<(), ExportError> {
        if self.open.is_some_and(|(before, _)| before != cell) {
            self.end(index);
        }
        self.open.get_or_insert((cell, row));
        let shots = match self.screenshots {
            Some(screenshots) => {
                screenshots.take(&view.unit).map_err(ExportError::at(screenshots.folder()))?
            }
            None => Vec::new(),
        };
        let texts = UnitTexts::of(view, scored, shots);
        if self.chunks.add(&texts).map_err(ExportError::at(Path::new(chunks::FOLDER)))? {
            self.end(index);
        }
        Ok(())
    }

    fn end(&mut self, index: &mut ItemIndex) {
        if let (Some((cell, row)), Some((units, name))) = (self.open.take(), self.chunks.end_chunk()) {
            index.add_chunk(cell, row, units, name);
        }
    }
}

impl ViewerSource<'_> {
    /// Adds every unit to a list, and its trajectory to a sink if given. `side` is put before the labels of
    /// configurations; `run` is the position of the run if there are several.
    fn collect(
        &self,
        side: &str,
        run: Option<usize>,
        index: &mut ItemIndex,
        mut sink: Option<TrajectorySink<'_>>,
    ) -> Result<(), ExportError> {
        let scorings = if self.scorings.is_empty() { &self.manifest.spec.scoring } else { self.scorings };
        let verdicts = Verdicts::beside(self.checkpoint).map_err(ScoreError::from)?;
        let scorer = Scorer::new(self.manifest, scorings, verdicts)?;
        let first = index.add_cells(self.manifest, side, run);
        for_each_unit(self.manifest, self.checkpoint, |view| {
            if !index.has_room() {
                return Ok::<_, ExportError>(());
            }
            let (cell, row, scored) = (first + view.position, index.len(), scorer.score(view));
            index.add(cell, view, &scored);
            sink.as_mut().map_or(Ok(()), |sink| sink.add(index, (cell, row), view, scored))
        })?;
        if let Some(sink) = &mut sink {
            sink.end(index);
        }
        Ok(())
    }
}

/// Writes a viewer to a folder, which is replaced as a whole. Also writes the report as one file to `single`,
/// if given.
///
/// # Errors
/// If the checkpoint cannot be read, a benchmark is unknown, or a file cannot be written.
pub fn write_viewer(
    folder: &Path,
    single: Option<&Path>,
    report: &Report,
    source: &ViewerSource<'_>,
) -> Result<ViewerSize, ExportError> {
    write_runs(folder, single, &[("", *source)], &|index, mode| report_page(report, Some(index), mode))
}

/// Writes a viewer of a comparison, with the trajectories of all compared runs. `sides` are in the order in which
/// they were compared: one run, or A and then every B.
///
/// # Errors
/// As for [`write_viewer`].
pub fn write_comparison(
    folder: &Path,
    comparison: &Comparison,
    sides: &[(&Side, &CheckpointReader)],
) -> Result<ViewerSize, ExportError> {
    let prefix = |position: usize, name: &str| match (sides.len(), position) {
        (1, _) => String::new(),
        (_, 0) => "A: ".to_owned(),
        (2, _) => "B: ".to_owned(),
        _ => format!("B, {name}: "),
    };
    let prefixes: Vec<String> =
        sides.iter().enumerate().map(|(position, (side, _))| prefix(position, &side.name)).collect();
    let sources = sides.iter().map(|(side, checkpoint)| ViewerSource {
        manifest: &side.table.manifest,
        checkpoint,
        scorings: std::slice::from_ref(&comparison.scoring),
    });
    let runs: Vec<_> = prefixes.iter().map(String::as_str).zip(sources).collect();
    write_runs(folder, None, &runs, &|index, mode| comparison_page(comparison, Some(index), mode))
}

/// Writes a viewer of one or several runs, each with the text that is put before the labels of its configurations. Equal
/// items of several runs are one item in the list, which `render` puts packed into the page.
fn write_runs(
    folder: &Path,
    single: Option<&Path>,
    runs: &[(&str, ViewerSource<'_>)],
    render: &dyn Fn(&str, PageMode) -> io::Result<String>,
) -> Result<ViewerSize, ExportError> {
    let draft = FolderDraft::new(folder).map_err(ExportError::at(folder))?;
    let units: u64 = runs.iter().map(|(_, source)| source.manifest.planned()).sum();
    let mut index = ItemIndex::new(rows_per_run(units, runs.len()));
    let mut size = ViewerSize { page: 0, chunks: 0, bytes: 0 };
    for (position, (side, source)) in runs.iter().enumerate() {
        let run = (runs.len() > 1).then_some(position);
        let screenshots = source.checkpoint.folder().parent();
        let screenshots = screenshots.and_then(|folder| ScreenshotFolder::of(folder, draft.folder(), run));
        let prefix = run.map_or_else(String::new, |run| format!("{run}-"));
        let written = ChunkWriter::run(draft.folder(), &prefix, |chunks| {
            let sink = TrajectorySink { chunks, screenshots: screenshots.as_ref(), open: None };
            source.collect(side, run, &mut index, Some(sink))
        })?;
        size.chunks += written.chunks;
        size.bytes += written.bytes;
    }
    let write = |file: &Path, index: &mut ItemIndex, mode| {
        let page = index.pack().and_then(|index| render(&index, mode)).map_err(ExportError::at(file))?;
        write_whole(file, |out| out.write_all(page.as_bytes())).map_err(ExportError::at(file))?;
        Ok::<_, ExportError>(page.len() as u64)
    };
    size.page = write(&draft.folder().join(PAGE), &mut index, PageMode::Folder)?;
    draft.publish().map_err(ExportError::at(folder))?;
    if let Some(single) = single {
        index.remove_chunks();
        write(single, &mut index, PageMode::Single)?;
    }
    Ok(size)
}

/// Writes the report as one page, with the list of items.
///
/// # Errors
/// If the checkpoint cannot be read, a benchmark is unknown, or writing fails.
pub fn write_page(
    out: &mut dyn Write,
    report: &Report,
    source: &ViewerSource<'_>,
) -> Result<(), ExportError> {
    let mut index = ItemIndex::new(rows_per_run(source.manifest.planned(), 1));
    source.collect("", None, &mut index, None)?;
    let page = index.pack().and_then(|index| report_page(report, Some(&index), PageMode::Single));
    page.and_then(|page| out.write_all(page.as_bytes())).map_err(ExportError::at(Path::new("report.html")))
}

/// Whether a folder is absent, empty, or has a viewer, so that a viewer may replace it.
pub fn may_replace(folder: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(folder) else { return !folder.exists() };
    if entries.next().is_none() {
        return true;
    }
    let mut start = Vec::new();
    let read = fs::File::open(folder.join(PAGE)).and_then(|page| page.take(1024).read_to_end(&mut start));
    read.is_ok() && String::from_utf8_lossy(&start).contains(page::GENERATOR)
}

#[cfg(test)]
mod tests;
