//! Merges the parts of a run into one run, for runs that were split over machines without a queue.
//!
//! Parts are runs with a [`Partition`]. [`merge()`] checks that all parts are present and belong to the same
//! run, and writes the manifest, items and records of the whole run to a new folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lumos_tasks::{ContentHash, Item, ItemId};
use thiserror::Error;

use crate::atomic_file::FolderDraft;
use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointReader, PlanMark, Record, RunStore};
use crate::identity::RunIdentity;
use crate::manifest::compare::differences;
use crate::manifest::{DataRecord, Manifest, ManifestError};
use crate::spec::Partition;

/// Number of records written together.
const TOGETHER: usize = 512;

/// Error of merging parts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// No parts were given.
    #[error("no parts given: pass the folders of all parts")]
    Nothing,
    /// A part's manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A folder contains a whole run.
    #[error("`{}` is not part of a run: parts are made with --partition, for example hash:1/4", folder.display())]
    NotAPart {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The parts belong to different runs.
    #[error(
        "`{}` and `{}` are parts of different runs:\n{}",
        folder.display(), first.display(), lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    )]
    Differs {
        /// The first part.
        first: PathBuf,
        /// A part of another run.
        folder: PathBuf,
        /// The differences.
        lines: Vec<String>,
    },
    /// A part was given twice.
    #[error("`{}` and `{}` are both part {partition}: pass one of them", first.display(), second.display())]
    Overlapping {
        /// The part.
        partition: Partition,
        /// The first folder.
        first: PathBuf,
        /// The second folder.
        second: PathBuf,
    },
    /// Parts are missing.
    #[error("missing {}: {}", if missing.len() == 1 { "part" } else { "parts" },
        missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Missing {
        /// The parts.
        missing: Vec<Partition>,
    },
    /// Parts have units that are not settled.
    #[error(
        "{}\nhint: complete them with `lumos resume`, or pass --allow-incomplete",
        parts.iter().map(|(folder, left)| format!("`{}` has {left} units that are not settled", folder.display()))
            .collect::<Vec<_>>().join("\n")
    )]
    Incomplete {
        /// The folders and their numbers of units that are not settled.
        parts: Vec<(PathBuf, u64)>,
    },
    /// The data files of two parts have the same items in different orders.
    #[error(
        "the data files of `{}` and `{}` have the items of {benchmark} in different orders; nothing was changed\n\
         hint: run one of the parts again with the data file of the other",
        first.display(), second.display()
    )]
    Reordered {
        /// The benchmark.
        benchmark: String,
        /// A part.
        first: PathBuf,
        /// A part that has another item at the same position.
        second: PathBuf,
    },
    /// The content of a part does not match its manifest.
    #[error("the content of `{}` does not match its manifest: {detail}", folder.display())]
    Malformed {
        /// The part's folder.
        folder: PathBuf,
        /// The mismatch.
        detail: String,
    },
    /// The output folder already exists.
    #[error("folder `{}` already exists: merge into a new folder", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be created.
    #[error("{}: {source}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
}

struct Part {
    folder: PathBuf,
    manifest: Manifest,
    partition: Partition,
    whole: RunIdentity,
}

impl Part {
    fn malformed(&self, detail: impl Into<String>) -> MergeError {
        MergeError::Malformed { folder: self.folder.clone(), detail: detail.into() }
    }
}

/// Merges all parts of a run into one run folder, equal to that of the whole run except for telemetry. Returns
/// the manifest of the whole run. Blocks.
///
/// Parts with units that are not settled are accepted only if `allow_incomplete` is set. Those units stay
/// outstanding, and the merged run can be resumed.
///
/// # Errors
/// If parts are missing, duplicated, incomplete or of different runs, if their data files have different orders, or if
/// `into` exists. After an error, nothing is left on disk.
pub fn merge(parts: &[PathBuf], into: &Path, allow_incomplete: bool) -> Result<Manifest, MergeError> {
    if into.exists() {
        return Err(MergeError::Occupied { folder: into.to_owned() });
    }
    let parts = parts.iter().map(|folder| part(folder)).collect::<Result<Vec<_>, _>>()?;
    check(&parts)?;
    let opened = parts.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    check_complete(&opened, allow_incomplete)?;
    build(&opened, into)
}

fn part(folder: &Path) -> Result<Part, MergeError> {
    let manifest = Manifest::read(folder)?;
    let (Some(partition), Some(whole)) = (manifest.spec.partition, manifest.whole.clone()) else {
        return Err(MergeError::NotAPart { folder: folder.to_owned() });
    };
    Ok(Part { folder: folder.to_owned(), manifest, partition, whole })
}

/// Checks that the parts are all parts of one run, each exactly once.
fn check(parts: &[Part]) -> Result<(), MergeError> {
    let Some(first) = parts.first() else { return Err(MergeError::Nothing) };
    let mut by_partition: BTreeMap<Partition, &Part> = BTreeMap::new();
    for part in parts {
        let same_count = part.partition.of() == first.partition.of();
        if part.whole != first.whole || !same_count {
            let mut lines = explained(first, part);
            if !same_count {
                lines = vec![format!("{} parts instead of {}", part.partition.of(), first.partition.of())];
            }
            let (first, folder) = (first.folder.clone(), part.folder.clone());
            return Err(MergeError::Differs { first, folder, lines });
        }
        if let Some(other) = by_partition.insert(part.partition, part) {
            let (first, second) = (other.folder.clone(), part.folder.clone());
            return Err(MergeError::Overlapping { partition: part.partition, first, second });
        }
    }
    let of = first.partition.of();
    let missing: Vec<Partition> = (1..=of)
        .filter_map(|part| Partition::new(part, of))
        .filter(|partition| !by_partition.contains_key(partition))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(MergeError::Missing { missing }) }
}

/// Describes why two parts belong to different runs, apart from their items.
fn explained(first: &Part, other: &Part) -> Vec<String> {
    let mut alike = other.manifest.clone();
    alike.spec.partition = first.manifest.spec.partition;
    for data in &mut alike.data {
        if let Some(known) = first.manifest.data_of(&data.benchmark)
            && known.sha256 == data.sha256
        {
            data.items = known.items.clone();
        }
    }
    differences(&first.manifest, &alike)
}

fn open(part: Part) -> Result<(Part, CheckpointReader), MergeError> {
    let checkpoint = CheckpointReader::open(&part.folder.join("checkpoint"))?;
    if checkpoint.is_in_use() {
        return Err(CheckpointError::InUse { folder: checkpoint.folder().to_owned() }.into());
    }
    Ok((part, checkpoint))
}

fn check_complete(opened: &[(Part, CheckpointReader)], allow_incomplete: bool) -> Result<(), MergeError> {
    let mut incomplete = Vec::new();
    for (part, checkpoint) in opened {
        match checkpoint.plan()? {
            Some(mark) if mark.identity == part.manifest.identity => {}
            _ => {
                return Err(part.malformed("its planning was interrupted; run it again"));
            }
        }
        let left = part.manifest.planned().saturating_sub(checkpoint.settled());
        if left > 0 {
            incomplete.push((part.folder.clone(), left));
        }
    }
    if incomplete.is_empty() || allow_incomplete {
        Ok(())
    } else {
        Err(MergeError::Incomplete { parts: incomplete })
    }
}

/// Location of a benchmark's items: position, identity, index of the part.
type Places = Vec<(u64, ItemId, usize)>;

fn places(opened: &[(Part, CheckpointReader)], benchmark: &str) -> Result<Places, MergeError> {
    let mut places = Places::new();
    for (number, (part, checkpoint)) in opened.iter().enumerate() {
        for item in checkpoint.item_ids(benchmark) {
            let (index, id) = item?;
            if !part.partition.keeps(&id) {
                return Err(part.malformed(format!("item {index} of {benchmark} belongs to another part")));
            }
            places.push((index, id, number));
        }
    }
    places.sort_unstable();
    Ok(places)
}

/// Checks that every position has one item. The identity of a run does not depend on the order of its items, so the
/// data files of parts can have different orders.
fn check_order(
    opened: &[(Part, CheckpointReader)],
    benchmark: &str,
    places: &Places,
) -> Result<(), MergeError> {
    for (one, other) in places.iter().zip(places.iter().skip(1)) {
        if one.0 == other.0 {
            let folder = |number: usize| opened[number].0.folder.clone();
            let [first, second] = [one.2.min(other.2), one.2.max(other.2)].map(folder);
            return Err(MergeError::Reordered { benchmark: benchmark.to_owned(), first, second });
        }
    }
    Ok(())
}

fn build(opened: &[(Part, CheckpointReader)], into: &Path) -> Result<Manifest, MergeError> {
    let Some((first, _)) = opened.first() else { return Err(MergeError::Nothing) };
    let mut items: Vec<(&str, Places)> = Vec::new();
    for data in &first.manifest.data {
        let places = places(opened, &data.benchmark)?;
        check_order(opened, &data.benchmark, &places)?;
        items.push((&data.benchmark, places));
    }
    let manifest = manifest_of(opened, first, &items, into);
    let found = RunIdentity::of(
        manifest.configurations.iter().map(|planned| (planned.configuration.as_ref(), planned.limit)),
        items.iter().map(|(benchmark, places)| (*benchmark, ids(places))),
    );
    if found != first.whole {
        return Err(first.malformed("the items of all parts differ from those of the whole run"));
    }
    let failed = |source| MergeError::Io { folder: into.to_owned(), source };
    let draft = FolderDraft::new(into).map_err(failed)?;
    fill(opened, draft.folder(), &manifest, &items)?;
    // Publishing replaces a folder, and this one may have been created since the merge began.
    if into.exists() {
        return Err(MergeError::Occupied { folder: into.to_owned() });
    }
    draft.publish().map_err(failed)?;
    Ok(manifest)
}

fn ids(places: &Places) -> Vec<ItemId> {
    places.iter().map(|(_, id, _)| id.clone()).collect()
}

/// Returns the manifest of the whole run.
fn manifest_of(
    opened: &[(Part, CheckpointReader)],
    first: &Part,
    items: &[(&str, Places)],
    into: &Path,
) -> Manifest {
    let mut manifest = first.manifest.clone();
    manifest.identity = first.whole.clone();
    manifest.whole = None;
    manifest.spec.partition = None;
    if let Some(name) = into.file_name().and_then(|name| name.to_str()) {
        name.clone_into(&mut manifest.spec.name);
    }
    manifest.spec.output_path = into.parent().unwrap_or(Path::new("")).to_owned();
    manifest.created = opened.iter().map(|(part, _)| part.manifest.created).min().unwrap_or(manifest.created);
    for (DataRecord { selected, items: hash, .. }, (_, places)) in manifest.data.iter_mut().zip(items) {
        *selected = places.len() as u64;
        *hash = ContentHash::of_json(&ids(places));
    }
    for planned in &mut manifest.configurations {
        let places = items.iter().find(|(benchmark, _)| *benchmark == planned.configuration.benchmark);
        let limit = planned.limit.unwrap_or(u64::MAX);
        planned.planned =
            places.map_or(0, |(_, places)| places.partition_point(|(at, ..)| *at < limit) as u64);
    }
    manifest
}

/// Writes manifest, items and records.
fn fill(
    opened: &[(Part, CheckpointReader)],
    folder: &Path,
    manifest: &Manifest,
    items: &[(&str, Places)],
) -> Result<(), MergeError> {
    manifest.write(folder)?;
    let into = Checkpoint::create(&folder.join("checkpoint"))?;
    if let Err(error) = fill_checkpoint(opened, &into, manifest, items) {
        // Closing a database whose disk is full may never end.
        into.abandon();
        return Err(error);
    }
    Ok(into.close()?)
}

/// Writes items, records and the mark of the complete plan.
fn fill_checkpoint(
    opened: &[(Part, CheckpointReader)],
    into: &Checkpoint,
    manifest: &Manifest,
    items: &[(&str, Places)],
) -> Result<(), MergeError> {
    let mut stored = 0;
    for (benchmark, places) in items {
        let mut failed = None;
        let read = places.iter().map_while(|(index, _, number)| {
            match read_item(opened, *number, benchmark, *index) {
                Ok(item) => Some(item),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        stored += into.store_items(benchmark, read)?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    for (part, checkpoint) in opened {
        copy_records(part, checkpoint, manifest, into)?;
    }
    let mut seconds = None;
    for (_, checkpoint) in opened {
        if let Some(took) = checkpoint.seconds()? {
            *seconds.get_or_insert(0.0) += took;
        }
    }
    if let Some(seconds) = seconds {
        into.note_seconds(seconds)?;
    }
    let scoring = manifest.spec.scoring.clone();
    Ok(into.plan_complete(&PlanMark { identity: manifest.identity.clone(), items: stored, scoring })?)
}

fn read_item(
    opened: &[(Part, CheckpointReader)],
    number: usize,
    benchmark: &str,
    index: u64,
) -> Result<Item, MergeError> {
    let Some((part, checkpoint)) = opened.get(number) else { return Err(MergeError::Nothing) };
    let item = checkpoint.item(benchmark, index)?;
    item.ok_or_else(|| part.malformed(format!("item {index} of {benchmark} not found")))
}

fn copy_records(
    part: &Part,
    from: &CheckpointReader,
    manifest: &Manifest,
    into: &Checkpoint,
) -> Result<(), MergeError> {
    // Parts have the same configurations, possibly in a different order.
    let position = |record: &Record| {
        let planned = part.manifest.configurations.get(record.configuration as usize)?;
        let same = manifest.configurations.iter().position(|one| one.identity == planned.identity)?;
        u32::try_from(same).ok()
    };
    let mut batch = Vec::with_capacity(TOGETHER);
    for record in from.records() {
        let mut record = record?;
        record.configuration = position(&record).ok_or_else(|| {
            part.malformed(format!("a record of unknown configuration {}", record.configuration))
        })?;
        batch.push(record);
        if batch.len() == TOGETHER {
            futures::executor::block_on(into.record_all(std::mem::take(&mut batch)))?;
        }
    }
    futures::executor::block_on(into.record_all(batch))?;
    Ok(())
}

#[cfg(test)]
mod tests;
