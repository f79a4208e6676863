//! Builds assignments for units that are about to be published.
//!
//! A unit's item is read from the checkpoint when the unit is published, so that memory does not grow with
//! the size of the plan. [`AssignmentBuilder`] also scores outcomes for the running accuracy.

use std::collections::HashMap;
use std::sync::Arc;

use lumos_benchmarks::{Benchmark, ItemScore, Scoring};
use lumos_tasks::{Assignment, Configuration, ContentHash, Item, Outcome, RunToken, Target, WorkUnit};

use super::order::{groups, ranks};
use super::unit_tracker::{UnitAttempt, UnitIndex, UnitTracker};
use crate::checkpoint::{CheckpointError, ItemIds, RunStore};
use crate::manifest::Manifest;
use crate::spec::StopWatch;
use crate::unit_key::UnitKey;

/// A configuration with values that would otherwise be computed for each unit.
struct Known {
    configuration: Arc<Configuration>,
    identity: ContentHash,
    benchmark: Option<&'static dyn Benchmark>,
}

/// Builds assignments, and scores outcomes for the running accuracy.
pub(crate) struct AssignmentBuilder<'a> {
    store: &'a dyn RunStore,
    configurations: Vec<Known>,
    scoring: Option<Scoring>,
    run: Option<RunToken>,
    /// Gold answers of published units, taken while the item was in memory.
    targets: HashMap<UnitIndex, Target>,
}

/// Creates the tracker with every unit of the plan that is not settled.
pub(crate) fn tracker(
    manifest: &Manifest,
    store: &dyn RunStore,
    retries: u32,
) -> Result<UnitTracker, CheckpointError> {
    let configurations = &manifest.configurations;
    let mut tracker = UnitTracker::new(ranks(configurations), retries);
    for (position, planned) in (0..).zip(configurations) {
        if let (Some(rule), None) = (&planned.stop, &planned.stopped) {
            tracker.look(position, rule.after);
        }
    }
    let open = manifest.planned().saturating_sub(store.settled());
    tracker.reserve(usize::try_from(open).unwrap_or(0));
    for group in groups(configurations, manifest.spec.order) {
        // The items of each benchmark of the group, with its configurations.
        let mut benchmarks: Vec<(ItemIds<'_>, Vec<usize>)> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for position in group {
            let benchmark = configurations[position].configuration.benchmark.as_str();
            match names.iter().position(|name| *name == benchmark) {
                Some(at) => benchmarks[at].1.push(position),
                None => {
                    names.push(benchmark);
                    benchmarks.push((store.item_ids(benchmark), vec![position]));
                }
            }
        }
        // One item of each benchmark in turn.
        while !benchmarks.is_empty() {
            let mut failed = None;
            benchmarks.retain_mut(|(items, positions)| match items.next() {
                Some(Ok((item, id))) => {
                    for &position in
                        positions.iter().filter(|&&position| configurations[position].has_item(item))
                    {
                        let unit =
                            UnitKey::of(&WorkUnit::identity_of(&id, &configurations[position].identity));
                        // Configurations are far fewer than 2^32.
                        tracker.add(position as u32, item, unit, store.unit_status(&unit));
                    }
                    true
                }
                Some(Err(error)) => {
                    failed = Some(error);
                    false
                }
                None => false,
            });
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }
    tracker.complete();
    Ok(tracker)
}

/// Creates the watches of the configurations whose stop rules have not decided, with the outcomes recorded so far.
pub(crate) fn watches(
    manifest: &Manifest,
    store: &dyn RunStore,
    tracker: &UnitTracker,
) -> Result<HashMap<u32, StopWatch>, CheckpointError> {
    let mut watches = HashMap::new();
    let Some(&scoring) = manifest.spec.scoring.first() else { return Ok(watches) };
    for (position, planned) in (0..).zip(&manifest.configurations) {
        let name = &planned.configuration.benchmark;
        if let (Some(end), Some(rule), Ok(benchmark)) =
            (tracker.end(position), &planned.stop, manifest.spec.benchmark(name))
        {
            let mut watch = StopWatch::new(rule.clone(), benchmark);
            for place in store.item_ids(name) {
                let (index, id) = place?;
                if index >= end {
                    break;
                }
                let unit = WorkUnit::identity_of(&id, &planned.identity);
                let Some(outcome) = store.outcome(&unit)? else { continue };
                let item = store.item(name, index)?;
                if let Some(score) = item.and_then(|item| benchmark.score(&item.target, &outcome, scoring)) {
                    watch.add(&score);
                }
            }
            watches.insert(position, watch);
        }
    }
    Ok(watches)
}

impl<'a> AssignmentBuilder<'a> {
    pub(crate) fn new(manifest: &Manifest, store: &'a dyn RunStore, run: Option<RunToken>) -> Self {
        let configurations = manifest
            .configurations
            .iter()
            .map(|planned| Known {
                configuration: Arc::clone(&planned.configuration),
                identity: planned.identity.clone(),
                benchmark: manifest.spec.benchmark(&planned.configuration.benchmark).ok(),
            })
            .collect();
        let scoring = manifest.spec.scoring.first().copied();
        Self { store, configurations, scoring, run, targets: HashMap::new() }
    }

    /// Returns the message of an attempt and its id.
    pub(crate) fn message(
        &mut self,
        tracker: &UnitTracker,
        unit_attempt: &UnitAttempt,
    ) -> Result<(String, Assignment), CheckpointError> {
        let lost = |detail: String| CheckpointError::corrupt(self.store.folder(), detail);
        let (configuration, item) = tracker
            .place(unit_attempt.unit_index)
            .ok_or_else(|| lost("planned unit not found".to_owned()))?;
        let known = self
            .configurations
            .get(configuration as usize)
            .ok_or_else(|| lost(format!("configuration {configuration} not found")))?;
        let benchmark = &known.configuration.benchmark;
        let Item { id, task, setup, target, .. } = self
            .store
            .item(benchmark, item)?
            .ok_or_else(|| lost(format!("item {item} of {benchmark} not found")))?;
        let unit = WorkUnit::under(id, task, setup, Arc::clone(&known.configuration), &known.identity);
        if UnitKey::of(&unit.id) != unit_attempt.unit {
            return Err(lost(format!("item {item} of {benchmark} differs from the planned one")));
        }
        self.targets.insert(unit_attempt.unit_index, target);
        let assignment = Assignment { unit, attempt: unit_attempt.attempt, run: self.run.clone() };
        Ok((assignment.message_id(), assignment))
    }

    /// Returns the score of an outcome under the first scoring, and whether it is the full one of the main metric.
    pub(crate) fn score(
        &mut self,
        tracker: &UnitTracker,
        unit_index: UnitIndex,
        outcome: &Outcome,
    ) -> Option<(ItemScore, bool)> {
        let (configuration, item) = tracker.place(unit_index)?;
        let known = self.configurations.get(configuration as usize)?;
        let target = match self.targets.remove(&unit_index) {
            Some(target) => target,
            // An earlier session published this unit. Items that cannot be read are left out: the running accuracy
            // is for display only, a stop rule does not decide without them, and scoring for the report returns the error.
            None => self.store.item(&known.configuration.benchmark, item).ok()??.target,
        };
        let benchmark = known.benchmark?;
        let score = benchmark.score(&target, outcome, self.scoring?)?;
        let is_correct = score.is_correct(benchmark.metrics());
        Some((score, is_correct))
    }

    /// Drops the data of a unit that has no attempts left.
    pub(crate) fn forget(&mut self, unit_index: UnitIndex) {
        self.targets.remove(&unit_index);
    }
}
