//! The scores of a run's groups by item, as far as a gate needs them.

use std::collections::{BTreeMap, BTreeSet};

use lumos_benchmarks::{MetricDefinition, Scoring, Share};
use lumos_tasks::{Behaviour, ContentHash, Formulation, ItemId, ModelIdentity, Role};
use serde::{Deserialize, Serialize};

use crate::compare::{CompareError, GroupKey, Side};
use crate::results::{SeedGroup, SettingsAxis, UnitRow, item_share, seed_groups};

/// What identifies a group of configurations that differ only in the seed, and how it was scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupHead {
    pub(crate) benchmark: String,
    pub(crate) formulation: Formulation,
    pub(crate) behaviour: Behaviour,
    /// Formulation, behaviour, and the models if they vary within the run.
    pub(crate) label: String,
    pub(crate) models: BTreeMap<Role, ModelIdentity>,
    pub(crate) prompts: ContentHash,
    pub(crate) data: DataIdentity,
    pub(crate) scoring: Scoring,
    pub(crate) seeds: u64,
    /// Names of the metrics, in the order of every item's shares.
    pub(crate) metrics: Vec<String>,
    /// The judge of judged metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) judge: Option<JudgeIdentity>,
}

/// The data of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DataIdentity {
    pub(crate) sha256: ContentHash,
    pub(crate) items: ContentHash,
}

/// A judge and its prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JudgeIdentity {
    pub(crate) model: ContentHash,
    pub(crate) prompt: ContentHash,
}

impl GroupHead {
    pub(crate) fn key(&self) -> GroupKey {
        GroupKey {
            benchmark: self.benchmark.clone(),
            formulation: self.formulation,
            behaviour: self.behaviour,
            models: self.models.iter().map(|(role, model)| format!("{role}={}", model.content)).collect(),
        }
    }
}

/// Scores of one item: for every metric the numerator and the denominator, scaled to all seeds; `None` without a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ItemScores(pub(crate) ContentHash, pub(crate) u32, pub(crate) Vec<Option<(f64, f64)>>);

impl ItemScores {
    pub(crate) fn id(&self) -> ItemId {
        ItemId { content: self.0.clone(), occurrence: self.1 }
    }

    pub(crate) fn share(&self, metric: usize) -> Option<Share> {
        let (numerator, denominator) = (*self.2.get(metric)?)?;
        Some(Share { numerator, denominator })
    }
}

/// A group of a run with the scores of its items.
#[derive(Debug)]
pub(super) struct ScoredGroup {
    pub(super) head: GroupHead,
    pub(super) group: SeedGroup,
    pub(super) metrics: Vec<MetricDefinition>,
    /// Items with at least one settled unit.
    pub(super) items: Vec<ItemScores>,
    /// All planned items; units that are not settled have the worst value of every metric, or none if it has no bounds.
    pub(super) worst: Vec<ItemScores>,
    /// Number of units that are not settled.
    pub(super) unsettled: u64,
}

/// Returns the groups of a run that have these values, with their scores.
///
/// # Errors
/// If no configuration has a value.
pub(super) fn scored(side: &Side, only: &[(SettingsAxis, String)]) -> Result<Vec<ScoredGroup>, CompareError> {
    let table = &side.table;
    let groups = seed_groups(table);
    let names = |model: &ModelIdentity| model.name.clone();
    let alike = |one: &SeedGroup, other: &SeedGroup| {
        let (one, other) = (one.configuration(table), other.configuration(table));
        (&one.benchmark, one.formulation, one.behaviour)
            == (&other.benchmark, other.formulation, other.behaviour)
    };
    // Configuration by configuration, because a group has several seeds.
    let mut kept = groups.clone();
    for (axis, wanted) in only {
        let value = |cell: &usize| axis.value(&table.cells[*cell].planned.configuration, names);
        let known: BTreeSet<String> = kept.iter().flat_map(|group| &group.cells).map(value).collect();
        for group in &mut kept {
            // A model may be given by the last part of its name.
            group.cells.retain(|cell| {
                let value = value(cell);
                value == *wanted || value.rsplit(['/', ':']).next() == Some(wanted.as_str())
            });
        }
        kept.retain(|group| !group.cells.is_empty());
        if kept.is_empty() {
            let (run, value) = (side.name.clone(), wanted.clone());
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(CompareError::UnknownValue { run, axis: *axis, value, known });
        }
    }
    let scored = kept
        .iter()
        .filter_map(|group| {
            let configuration = group.configuration(table);
            let items = table.items_of(&configuration.benchmark)?;
            let metrics = group.first(table).metrics.clone();
            let mut label = format!("{} {}", configuration.formulation, configuration.behaviour);
            if groups.iter().filter(|other| alike(group, other)).count() > 1 {
                label = format!("{label} [{}]", SettingsAxis::Model.value(configuration, names));
            }
            let data = table.manifest.data_of(&configuration.benchmark)?;
            let judge = table.judge.as_ref().map(|judge| JudgeIdentity {
                model: judge.model.content.clone(),
                prompt: judge.prompt.clone(),
            });
            let rows = |item: usize| group.rows(table, item);
            let weights: Vec<f64> =
                (0..metrics.len()).map(|metric| mean_weight(side, group, metric)).collect();
            let scores = |item: usize, missing: Option<&dyn Fn(usize) -> Option<Share>>| {
                let shares = (0..metrics.len()).map(|metric| {
                    let share = |row: &UnitRow| match missing {
                        Some(missing) if !row.is_settled() => missing(metric),
                        _ => row.share(metric),
                    };
                    let shares: Vec<Share> = rows(item).filter_map(share).collect();
                    let share = item_share(&shares, group.cells.len() as u64);
                    (!shares.is_empty()).then_some((share.numerator, share.denominator))
                });
                let id = &items.ids[item];
                ItemScores(id.content.clone(), id.occurrence, shares.collect())
            };
            let worst = |metric: usize| {
                let (least, most) = metrics[metric].kind.range()?;
                let value = if metrics[metric].higher_is_better { least } else { most };
                Some(Share { numerator: value * weights[metric], denominator: weights[metric] })
            };
            let all = 0..group.items(table);
            let is_settled = |item: &usize| rows(*item).any(UnitRow::is_settled);
            Some(ScoredGroup {
                head: GroupHead {
                    benchmark: configuration.benchmark.clone(),
                    formulation: configuration.formulation,
                    behaviour: configuration.behaviour,
                    label,
                    models: configuration.models.clone(),
                    prompts: configuration.prompts.clone(),
                    data: DataIdentity { sha256: data.sha256.clone(), items: data.items.clone() },
                    scoring: table.scoring,
                    seeds: group.cells.len() as u64,
                    metrics: metrics.iter().map(|metric| metric.name.to_owned()).collect(),
                    judge: judge.filter(|_| metrics.iter().any(|metric| metric.judged)),
                },
                items: all.clone().filter(is_settled).map(|item| scores(item, None)).collect(),
                worst: all.clone().map(|item| scores(item, Some(&worst))).collect(),
                unsettled: all.flat_map(rows).filter(|row| !row.is_settled()).count() as u64,
                group: group.clone(),
                metrics,
            })
        })
        .collect();
    Ok(scored)
}

/// Returns the average weight of a settled unit; 1 if none is settled.
fn mean_weight(side: &Side, group: &SeedGroup, metric: usize) -> f64 {
    let rows = group.cells.iter().flat_map(|&cell| &side.table.cells[cell].rows);
    let weights: Vec<f64> = rows.filter_map(|row| row.share(metric)).map(|share| share.denominator).collect();
    if weights.is_empty() { 1.0 } else { weights.iter().sum::<f64>() / weights.len() as f64 }
}
