//! [`LiveFolder`]: follows the folder of a run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use lumos_coordinator::fleet::run_token;
use lumos_coordinator::manifest::{Manifest, ManifestError};
use lumos_coordinator::{CheckpointError, CheckpointReader};
use lumos_tasks::{RunToken, Throughput};
use thiserror::Error;

use crate::display::visible_text;
use crate::results::ScoreError;

use super::model::{LiveRun, LiveState, LiveWorker};
use super::notices::{Heartbeats, NAME};
use super::status_file;
use super::sums::RecordSums;

/// Pause before a checkpoint that could not be read is opened again.
const PAUSE: Duration = Duration::from_secs(5);

/// Error of following a run's folder.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The run uses a benchmark that this version does not have.
    #[error(transparent)]
    Score(#[from] ScoreError),
}

/// The folder of a run, whose records are read as they are written.
///
/// ```no_run
/// use std::path::Path;
/// use lumos_reports::live::LiveFolder;
///
/// let mut folder = LiveFolder::open(Path::new("runs/sample"))?;
/// loop {
///     let run = folder.refresh();
///     println!("{} of {} units outstanding", run.ledger.outstanding, run.ledger.planned);
///     if run.is_complete() {
///         break;
///     }
///     std::thread::sleep(std::time::Duration::from_secs(1));
/// }
/// # Ok::<_, lumos_reports::live::LiveError>(())
/// ```
pub struct LiveFolder {
    folder: PathBuf,
    manifest: Manifest,
    /// Time of modification and length of the manifest's file.
    version: Option<(SystemTime, u64)>,
    token: RunToken,
    opened: Option<Opened>,
    failed: Option<Instant>,
    problem: Option<String>,
    heartbeats: Heartbeats,
}

/// An open checkpoint, and the sums over its records.
struct Opened {
    reader: CheckpointReader,
    sums: RecordSums,
    /// Number of records in the sums.
    added: usize,
    throughput: Throughput,
}

impl LiveFolder {
    /// Opens the folder of a run. Its checkpoint is read by [`LiveFolder::refresh`].
    ///
    /// # Errors
    /// If the manifest cannot be read or names an unknown benchmark.
    pub fn open(folder: &Path) -> Result<Self, LiveError> {
        let version = manifest_version(folder);
        let manifest = Manifest::read(folder)?;
        RecordSums::new(&manifest)?;
        Ok(Self {
            folder: folder.to_owned(),
            token: run_token(&manifest),
            manifest,
            version,
            opened: None,
            failed: None,
            problem: None,
            heartbeats: Heartbeats::default(),
        })
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The run's token, which is its key in addresses and on queues.
    pub fn token(&self) -> &RunToken {
        &self.token
    }

    /// Reads what was recorded since the last call, and returns the state of the run. An error is part of the state,
    /// and the checkpoint is opened again after a pause.
    pub fn refresh(&mut self) -> LiveRun {
        if self.failed.is_none_or(|failed| failed.elapsed() >= PAUSE) {
            let read = self.read();
            (self.failed, self.problem) = match read {
                Ok(()) => (None, None),
                // The checkpoint of a run that was just planned is missing or being created.
                Err(ScoreError::Checkpoint(
                    CheckpointError::Missing { .. } | CheckpointError::InUse { .. },
                )) => (None, None),
                Err(error) => (Some(Instant::now()), Some(visible_text(&error.to_string(), NAME))),
            };
            if self.failed.is_some() {
                self.opened = None;
            }
        }
        self.state(jiff::Timestamp::now().as_millisecond())
    }

    fn read(&mut self) -> Result<(), ScoreError> {
        self.read_manifest();
        let continues = match &self.opened {
            Some(opened) => opened.reader.refresh()?.is_some(),
            None => false,
        };
        if !continues {
            self.opened = None;
            let reader = CheckpointReader::open(&self.folder.join("checkpoint"))?;
            let sums = RecordSums::new(&self.manifest)?;
            let opened = self.opened.insert(Opened { reader, sums, added: 0, throughput: throughput() });
            opened.add()?;
            // Records of earlier sessions show no rate.
            opened.throughput = throughput();
        } else if let Some(opened) = &mut self.opened {
            opened.add()?;
        }
        Ok(())
    }

    /// Reads the manifest again if its file has changed: a session writes where stop rules ended configurations, and a
    /// resumed run may have other settings.
    fn read_manifest(&mut self) {
        let version = manifest_version(&self.folder);
        if version == self.version {
            return;
        }
        // The next call tries again.
        let Ok(manifest) = Manifest::read(&self.folder) else { return };
        self.version = version;
        if manifest != self.manifest && run_token(&manifest) == self.token {
            self.manifest = manifest;
            // All records are added again, to sums over the units of this manifest.
            self.opened = None;
        }
    }

    fn state(&mut self, now_ms: i64) -> LiveRun {
        let mut run = LiveRun::new(self.token.as_str(), visible_text(&self.manifest.spec.name, NAME));
        run.problem.clone_from(&self.problem);
        run.report = ["report/index.html", "report.html"].iter().any(|name| self.folder.join(name).is_file());
        let Some(Opened { reader, sums, throughput, .. }) = &self.opened else {
            if let Ok(sums) = RecordSums::new(&self.manifest) {
                run.set_configurations(sums.configurations());
            }
            return run;
        };
        let in_use = reader.is_in_use();
        run.in_use = in_use;
        run.state = if in_use { LiveState::Running } else { LiveState::Incomplete };
        run.set_configurations(sums.configurations());
        run.faults = sums.faults.iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        run.recent_faults = sums.recent_faults.iter().cloned().collect();
        run.duplicates = reader.duplicates();
        run.usage = sums.usage.clone();
        run.workers = sums.workers.iter().map(|(name, sum)| recorded(name, *sum)).collect();
        let (units, tokens) = throughput.rates(Instant::now());
        run.set_rates(units, tokens);
        // The file of a killed process is left behind.
        if let Some(status) = status_file::read(&self.folder).filter(|_| in_use)
            && let Some(of_run) = status.runs.iter().find(|one| one.run == self.token)
        {
            run.add_status(of_run, &mut self.heartbeats, now_ms);
            run.add_workers(&status.workers, &mut self.heartbeats, now_ms);
        }
        run
    }
}

impl Opened {
    /// Adds the records that are not part of the sums yet.
    fn add(&mut self) -> Result<(), CheckpointError> {
        for record in self.reader.records_from(self.added) {
            let record = record?;
            let item = match self.sums.benchmark_of(&record) {
                Some(benchmark) if !record.outcome.is_fault() => self.reader.item(benchmark, record.item)?,
                _ => None,
            };
            self.sums.add(&record, item.as_ref());
            self.added += 1;
            if !record.outcome.is_fault() {
                let (prompt, completion) = record.outcome.tokens();
                self.throughput.count(Instant::now(), prompt + completion);
            }
        }
        Ok(())
    }
}

fn manifest_version(folder: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(folder.join("manifest.json")).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn throughput() -> Throughput {
    Throughput::since(Instant::now())
}

/// A worker of which only its records are known.
fn recorded(name: &str, sum: super::sums::WorkerSum) -> LiveWorker {
    LiveWorker {
        name: name.to_owned(),
        finished: sum.finished,
        last_seen_ms: sum.last_ms,
        ..LiveWorker::default()
    }
}

#[cfg(test)]
mod tests {
    use lumos_benchmarks::Scoring;
    use lumos_coordinator::samples::{configuration, item, manifest_of, state};
    use lumos_coordinator::spec::Stopped;
    use lumos_coordinator::{Checkpoint, PlanMark, unit_of};

    use super::*;
    use crate::report::report;

    #[tokio::test]
    async fn a_folder_is_followed_record_by_record_up_to_the_figures_of_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..20).map(item).collect();
        let manifest = manifest_of(&[configuration(0)], &items);
        manifest.write(folder.path()).unwrap();
        let mut live = LiveFolder::open(folder.path()).unwrap();
        let planned = live.refresh();
        assert_eq!((planned.state, planned.ledger.outstanding), (LiveState::Incomplete, 20));
        assert_eq!(planned.problem, None);

        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        let mark = PlanMark { identity: manifest.identity.clone(), items: 20, scoring: vec![Scoring::Paper] };
        checkpoint.plan_complete(&mark).unwrap();
        let mut settled = 0;
        for item in &items {
            let unit = unit_of(&manifest.configurations[0], item);
            let Some(record) = state(item.index, &unit) else { continue };
            settled += u64::from(!record.outcome.is_fault());
            checkpoint.record(record.clone()).await.unwrap();
            let run = live.refresh();
            assert_eq!((run.state, run.ledger.settled()), (LiveState::Running, settled));
            // A unit that faulted is settled by a later attempt.
            if item.index == 18 {
                assert_eq!((run.ledger.faulted, run.faults["time limit"]), (2, 2));
                let mut retried = state(0, &unit).unwrap();
                (retried.item, retried.attempt) = (18, 2);
                checkpoint.record(retried).await.unwrap();
                settled += 1;
            }
        }
        let run = live.refresh();
        let expected = report(&manifest, &checkpoint, &[]).unwrap();
        let ledger = &expected.total;
        assert_eq!((run.ledger.answered, run.ledger.gave_up), (ledger.answered, ledger.gave_up));
        assert_eq!((run.ledger.faulted, run.ledger.outstanding), (1, ledger.outstanding));
        let estimate = expected.configurations[0].scores[0].metrics[0].estimate.unwrap();
        let score = run.configurations[0].score.as_ref().unwrap();
        assert_eq!(
            (score.value, score.interval, score.items),
            (estimate.value, estimate.interval, estimate.items)
        );
        assert_eq!(run.workers[0].finished, settled);
        assert_eq!(run.usage.durations.iter().sum::<u64>(), settled);
        checkpoint.close().unwrap();
        assert_eq!(live.refresh().state, LiveState::Incomplete, "nobody writes it");
    }

    #[tokio::test]
    async fn a_run_that_a_stop_rule_ended_is_complete_and_ends_with_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..20).map(item).collect();
        let mut manifest = manifest_of(&[configuration(0)], &items);
        manifest.write(folder.path()).unwrap();
        let mut live = LiveFolder::open(folder.path()).unwrap();
        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        // An earlier session, without the rule, has recorded a fault of item 8.
        for item in &items[..9] {
            let unit = unit_of(&manifest.configurations[0], item);
            checkpoint.record(state(item.index, &unit).unwrap()).await.unwrap();
        }
        let run = live.refresh();
        assert_eq!((run.state, run.ledger.faulted, run.ledger.outstanding), (LiveState::Running, 1, 11));

        let stopped = Stopped {
            end: 8,
            after: 8,
            units: 20,
            metric: "exact_match".to_owned(),
            interval: (0.0, 30.0),
            bound: "below 50".to_owned(),
        };
        assert!(manifest.stop(vec![(0, stopped)]));
        manifest.write(folder.path()).unwrap();
        let run = live.refresh();
        assert_eq!((run.state, run.ledger.planned, run.ledger.settled()), (LiveState::Complete, 8, 8));
        assert!(!run.has_ended(), "the session has yet to write the report");
        // As after a kill, the report is missing.
        checkpoint.close().unwrap();
        let run = live.refresh();
        assert!(run.has_ended() && !run.report);
    }
}
