//! Builds a comparison from the tables of runs.

use std::collections::BTreeSet;

use lumos_benchmarks::MetricDefinition;
use lumos_benchmarks::statistics::benjamini_hochberg;
use lumos_tasks::{NanoDollars, ToolBackend, UnknownName};

use super::model::{Comparison, FlippedItem, NotCompared, PairComparison, RunReference, SideUsage};
use super::refusal::{CompareError, Refusal};
use super::settings::differing;
use super::sides::{
    ItemPairs, Matched, NamedGroup, groups_of, match_groups, model_aliases, pair_items, within,
};
use super::unpaired::unpaired;
use super::{CompareOptions, Side};
use crate::display::thousands;
use crate::results::{
    BenchmarkItems, ItemPair, ItemShares, MetricComparison, PairedItems, RunTable, SeedGroup, SettingsAxis,
    UnitRow, UnitState, is_right, item_shares,
};
use crate::trajectory::item_argument;

/// Compares the first side with every other one, or the configurations of a single side along an axis. The difference
/// is always b − a, where a is the first run or the first value of the axis.
///
/// # Errors
/// [`CompareError::Refused`] with all reasons if a result would mislead; other errors if `options` do not select what
/// to compare.
pub fn compare(sides: &[Side], options: &CompareOptions) -> Result<Comparison, CompareError> {
    if let (Some(axis), [_, _, ..]) = (options.by, sides) {
        return Err(CompareError::SeveralRuns { axis, runs: sides.len() });
    }
    let aliases = model_aliases(sides, &options.labels);
    let groups: Vec<Vec<NamedGroup>> = sides
        .iter()
        .map(|side| groups_of(side, &aliases, options.by, &options.only))
        .collect::<Result<_, _>>()?;
    let mut builder = Builder { sides, options, refusals: Vec::new(), warnings: Vec::new(), unknown: None };
    let Some(first) = groups.first() else { return Err(CompareError::Refused(Vec::new())) };
    let matched = match sides {
        [side] => within(side, first, options.by)?,
        _ => builder.between(&groups)?,
    };
    let comparisons: Vec<PairComparison> =
        matched.iter().filter_map(|matched| builder.pair(matched)).collect();
    if !builder.refusals.is_empty() {
        let mut refusals = Vec::new();
        for refusal in builder.refusals {
            if !refusals.contains(&refusal) {
                refusals.push(refusal);
            }
        }
        return Err(CompareError::Refused(refusals));
    }
    if comparisons.iter().all(|pair| pair.metrics.is_empty())
        && let Some(unknown) = builder.unknown
    {
        return Err(CompareError::UnknownMetric(unknown));
    }
    let mut comparison = Comparison {
        a: reference(&sides[0], options),
        scoring: sides[0].table.scoring,
        comparisons,
        warnings: builder.warnings,
    };
    adjust(&mut comparison);
    Ok(comparison)
}

/// Adjusts the p values of all metrics of the comparison together.
fn adjust(comparison: &mut Comparison) {
    let metrics = comparison.comparisons.iter().flat_map(|pair| &pair.metrics);
    let p: Vec<f64> = metrics.map(|metric| metric.p_value).collect();
    let metrics = comparison.comparisons.iter_mut().flat_map(|pair| &mut pair.metrics);
    for (metric, p) in metrics.zip(benjamini_hochberg(&p)) {
        metric.p_adjusted = p;
    }
}

fn reference(side: &Side, options: &CompareOptions) -> RunReference {
    let name = &side.table.manifest.spec.name;
    RunReference {
        run: name.clone(),
        label: options
            .labels
            .of(&side.name)
            .or_else(|| options.labels.of(name))
            .unwrap_or(&side.name)
            .to_owned(),
        identity: side.table.manifest.identity.clone(),
        folder: side.folder.clone(),
    }
}

struct Builder<'a> {
    sides: &'a [Side],
    options: &'a CompareOptions,
    refusals: Vec<Refusal>,
    warnings: Vec<String>,
    /// The metric that a benchmark does not have.
    unknown: Option<UnknownName>,
}

impl Builder<'_> {
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Matches the groups of the first side with those of every other side.
    fn between(&mut self, groups: &[Vec<NamedGroup>]) -> Result<Vec<Matched>, CompareError> {
        let keys = |groups: &[NamedGroup]| groups.iter().map(|group| group.key.clone()).collect::<Vec<_>>();
        let benchmarks = |groups: &[NamedGroup]| -> BTreeSet<String> {
            groups.iter().map(|group| group.key.benchmark.clone()).collect()
        };
        let mut matched = Vec::new();
        for (at, others) in groups.iter().enumerate().skip(1) {
            let pairs = match_groups(&keys(&groups[0]), &keys(others))?;
            let (a, b) = (benchmarks(&groups[0]), benchmarks(others));
            if a.is_disjoint(&b) {
                self.refusals.push(Refusal::NoCommonBenchmark {
                    a: a.into_iter().collect(),
                    b: b.into_iter().collect(),
                });
                continue;
            }
            for benchmark in a.intersection(&b) {
                if !pairs.iter().any(|(own, _)| groups[0][*own].key.benchmark == *benchmark) {
                    self.refusals.push(Refusal::NoMatch { benchmark: benchmark.clone() });
                }
            }
            let lone = |groups: &[NamedGroup], used: &BTreeSet<usize>| -> Vec<String> {
                let left = groups.iter().enumerate().filter(|(at, _)| !used.contains(at));
                left.map(|(_, group)| format!("{} {}", group.key.benchmark, group.label())).collect()
            };
            let (used_a, used_b) = pairs.iter().copied().unzip();
            for (side, left) in [(0, lone(&groups[0], &used_a)), (at, lone(others, &used_b))] {
                for group in left {
                    self.warn(format!(
                        "{group} of {} is not compared: no counterpart",
                        self.sides[side].name
                    ));
                }
            }
            matched.extend(pairs.into_iter().map(|(own, other)| Matched {
                sides: (0, at),
                a: groups[0][own].clone(),
                b: others[other].clone(),
                by: None,
            }));
        }
        Ok(matched)
    }

    fn pair(&mut self, matched: &Matched) -> Option<PairComparison> {
        let (side_a, side_b) = (&self.sides[matched.sides.0], &self.sides[matched.sides.1]);
        let (a, b) = (&side_a.table, &side_b.table);
        let benchmark = &matched.a.key.benchmark;
        let (items_a, items_b) = (a.items_of(benchmark)?, b.items_of(benchmark)?);
        let pairs = pair_items((items_a, matched.a.group.items(a)), (items_b, matched.b.group.items(b)));
        let paired = self.check_items(benchmark, &pairs)?;
        self.check_tools(matched);
        let cells_a = matched.a.group.first(a);
        let cells_b = matched.b.group.first(b);
        if cells_a.planned.identity == cells_b.planned.identity {
            self.warn(format!("{}: a and b are the same configuration", cells_a.planned.label));
        }
        let chosen = self.metrics(matched);
        let mut metrics = Vec::new();
        for (metric, at_a, at_b) in &chosen {
            match self.metric(matched, metric, (*at_a, *at_b), (items_a, &pairs), paired) {
                Some(compared) => metrics.push(compared),
                // A metric that needs an event, such as a purchase, may have no values.
                None if metrics.is_empty() => {
                    self.refusals.push(Refusal::NothingSettled { benchmark: benchmark.clone() });
                    return None;
                }
                None => {}
            }
        }
        let not_compared = not_compared((a, &matched.a.group), (b, &matched.b.group), &pairs);
        let unsettled = not_compared.faulted_a
            + not_compared.faulted_b
            + not_compared.outstanding_a
            + not_compared.outstanding_b;
        if unsettled > 0 {
            self.warn(format!(
                "{benchmark} {}: {} units are faulted or outstanding and not part of the figures; continue with `lumos resume`",
                matched.a.label(),
                thousands(unsettled)
            ));
        }
        let changes = match chosen.first() {
            Some(main) if paired => changes(matched, (a, items_a), (b, items_b), main, &pairs),
            _ => Changes::default(),
        };
        let seeds = |table: &RunTable, group: &SeedGroup| -> Vec<u64> {
            group.cells.iter().map(|&cell| table.cells[cell].planned.configuration.seed).collect()
        };
        let configurations = (&*cells_a.planned.configuration, &*cells_b.planned.configuration);
        let settings = differing(
            configurations,
            (&a.manifest, &b.manifest),
            (&seeds(a, &matched.a.group), &seeds(b, &matched.b.group)),
        );
        let shared = |axis: &SettingsAxis| {
            Some(*axis) != matched.by && matched.a.value(*axis) == matched.b.value(*axis)
        };
        let group = [SettingsAxis::Formulation, SettingsAxis::Behaviour].into_iter().filter(shared);
        let (run_a, run_b) = (reference(side_a, self.options), reference(side_b, self.options));
        let pair = match matched.by {
            Some(axis) => (matched.a.value(axis).to_owned(), matched.b.value(axis).to_owned()),
            None => (run_a.label.clone(), run_b.label.clone()),
        };
        Some(PairComparison {
            b: run_b,
            benchmark: benchmark.clone(),
            title: items_a.benchmark.title().to_owned(),
            group: group.map(|axis| matched.a.value(axis)).collect::<Vec<_>>().join(" "),
            pair,
            items: pairs.pairs.len() as u64,
            paired,
            not_compared,
            usage: (usage(a, &matched.a.group), usage(b, &matched.b.group)),
            settings,
            metrics,
            newly_wrong: changes.newly_wrong,
            newly_right: changes.newly_right,
            otherwise_different: changes.otherwise_different,
            sides: matched.sides,
        })
    }

    /// Whether items are paired; `None` if the comparison is refused.
    fn check_items(&mut self, benchmark: &str, pairs: &ItemPairs) -> Option<bool> {
        let common = pairs.pairs.len() as u64;
        let (count_a, count_b) = (common + pairs.only_a, common + pairs.only_b);
        if common == count_a && common == count_b {
            return Some(true);
        }
        if self.options.unpaired {
            self.warn(format!(
                "{benchmark}: {} and {} items are compared without pairing: differences of difficulty count as differences of the runs",
                thousands(count_a),
                thousands(count_b)
            ));
            return Some(false);
        }
        if common > 0 && common == count_a.min(count_b) {
            self.warn(format!(
                "{benchmark}: {} and {} items, {} in common; {} are compared",
                thousands(count_a),
                thousands(count_b),
                thousands(common),
                thousands(common)
            ));
            return Some(true);
        }
        self.refusals.push(Refusal::ItemsDiffer {
            benchmark: benchmark.to_owned(),
            a: count_a,
            b: count_b,
            common,
        });
        None
    }

    fn check_tools(&mut self, matched: &Matched) {
        let tools = |side: usize, group: &SeedGroup| -> BTreeSet<ToolBackend> {
            let configuration = group.configuration(&self.sides[side].table);
            configuration.tools.iter().filter(|tool| tool.is_made_of_items()).cloned().collect()
        };
        let (a, b) = (tools(matched.sides.0, &matched.a.group), tools(matched.sides.1, &matched.b.group));
        let names = |tools: &BTreeSet<ToolBackend>| -> BTreeSet<String> {
            tools.iter().map(|tool| tool.tool.clone()).collect()
        };
        for tool in names(&a).symmetric_difference(&names(&b)) {
            let benchmark = matched.a.key.benchmark.clone();
            self.refusals.push(Refusal::AnswersFromItems { benchmark, tool: tool.clone() });
        }
    }

    /// Returns the metrics to compare, with their positions on both sides.
    fn metrics(&mut self, matched: &Matched) -> Vec<(MetricDefinition, usize, usize)> {
        let (a, b) = (&self.sides[matched.sides.0].table, &self.sides[matched.sides.1].table);
        let (first, second) = (matched.a.group.first(a), matched.b.group.first(b));
        let benchmark = &matched.a.key.benchmark;
        let Some(items) = a.items_of(benchmark) else { return Vec::new() };
        let asked = self.options.metric.as_deref();
        let known = items.benchmark.metrics();
        if let Some(word) = asked.filter(|word| !known.iter().any(|metric| metric.name == *word)) {
            let names: Vec<&str> = known.iter().map(|metric| metric.name).collect();
            self.unknown =
                Some(UnknownName { what: "metric", word: word.to_owned(), known: names.join(", ") });
            return Vec::new();
        }
        let mut chosen = Vec::new();
        for metric in known.iter().filter(|metric| asked.is_none_or(|asked| asked == metric.name)) {
            let position =
                |metrics: &[MetricDefinition]| metrics.iter().position(|one| one.name == metric.name);
            let name = metric.name.to_owned();
            match (position(&first.metrics), position(&second.metrics)) {
                (Some(at_a), Some(at_b)) if !metric.judged || same_judge(a, b) => {
                    chosen.push((*metric, at_a, at_b));
                }
                (Some(_), Some(_)) if asked.is_some() => {
                    self.refusals.push(Refusal::JudgesDiffer { metric: name });
                }
                (Some(_), Some(_)) => {
                    self.warn(format!("{benchmark}: {name} is not compared: the judges differ"));
                }
                (None, None) if asked.is_none() => {}
                _ if asked.is_some() => {
                    self.refusals.push(Refusal::NotMeasured { benchmark: benchmark.clone(), metric: name });
                }
                _ => {
                    self.warn(format!(
                        "{benchmark}: {name} is not compared: it is measured on one side only"
                    ));
                }
            }
        }
        chosen
    }

    fn metric(
        &self,
        matched: &Matched,
        metric: &MetricDefinition,
        at: (usize, usize),
        (items_a, pairs): (&BenchmarkItems, &ItemPairs),
        paired: bool,
    ) -> Option<MetricComparison> {
        let (a, b) = (&self.sides[matched.sides.0].table, &self.sides[matched.sides.1].table);
        let shares_a: Vec<ItemShares> = item_shares(a, &matched.a.group, at.0);
        let shares_b: Vec<ItemShares> = item_shares(b, &matched.b.group, at.1);
        let seeds = (matched.a.group.cells.len() as u64, matched.b.group.cells.len() as u64);
        if !paired {
            let items_b = b.items_of(&matched.b.key.benchmark)?;
            let clusters_a = items_a.is_clustered.then_some(items_a.clusters.as_slice());
            let clusters_b = items_b.is_clustered.then_some(items_b.clusters.as_slice());
            return unpaired(metric, (&shares_a, clusters_a), (&shares_b, clusters_b), seeds);
        }
        let items = pairs
            .pairs
            .iter()
            .map(|&(a, b)| ItemPair { a: &shares_a[a as usize], b: &shares_b[b as usize] })
            .collect();
        let clusters = items_a
            .is_clustered
            .then(|| pairs.pairs.iter().map(|&(a, _)| items_a.clusters[a as usize]).collect());
        PairedItems { metric, items, clusters, seeds }.compare()
    }
}

/// Whether the judged metrics of both runs are from the same judge and prompt.
fn same_judge(a: &RunTable, b: &RunTable) -> bool {
    match (&a.judge, &b.judge) {
        (Some(a), Some(b)) => a.model.content == b.model.content && a.prompt == b.prompt,
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn not_compared(a: (&RunTable, &SeedGroup), b: (&RunTable, &SeedGroup), pairs: &ItemPairs) -> NotCompared {
    let count = |(table, group): (&RunTable, &SeedGroup), of: fn(&(u32, u32)) -> u32, state: UnitState| {
        let all = pairs.pairs.iter().flat_map(|pair| group.rows(table, of(pair) as usize));
        all.filter(|row| row.state == state).count() as u64
    };
    NotCompared {
        a_only: pairs.only_a,
        b_only: pairs.only_b,
        faulted_a: count(a, |pair| pair.0, UnitState::Faulted),
        faulted_b: count(b, |pair| pair.1, UnitState::Faulted),
        outstanding_a: count(a, |pair| pair.0, UnitState::Outstanding),
        outstanding_b: count(b, |pair| pair.1, UnitState::Outstanding),
    }
}

/// Returns the means over the settled units of a group.
fn usage(table: &RunTable, group: &SeedGroup) -> SideUsage {
    let cells = group.cells.iter().flat_map(|&cell| &table.cells[cell].rows);
    let settled: Vec<&UnitRow> = cells.filter(|row| row.is_settled()).collect();
    let mean = |of: fn(&UnitRow) -> f64| {
        settled.iter().map(|row| of(row)).sum::<f64>() / settled.len().max(1) as f64
    };
    let is_priced = !settled.is_empty() && settled.iter().all(|row| row.cost.is_some());
    SideUsage {
        prompt_tokens: mean(|row| f64::from(row.prompt_tokens)),
        completion_tokens: mean(|row| f64::from(row.completion_tokens)),
        seconds: mean(|row| f64::from(row.seconds)),
        cost: is_priced.then(|| mean(|row| row.cost.map_or(0.0, NanoDollars::dollars))),
    }
}

/// The items that differ between the sides.
#[derive(Default)]
struct Changes {
    newly_wrong: Vec<FlippedItem>,
    newly_right: Vec<FlippedItem>,
    otherwise_different: Vec<FlippedItem>,
}

fn changes(
    matched: &Matched,
    (a, items): (&RunTable, &BenchmarkItems),
    (b, items_b): (&RunTable, &BenchmarkItems),
    (metric, at_a, at_b): &(MetricDefinition, usize, usize),
    pairs: &ItemPairs,
) -> Changes {
    let shares_a = item_shares(a, &matched.a.group, *at_a);
    let shares_b = item_shares(b, &matched.b.group, *at_b);
    let mut changes = Changes::default();
    for &(own, other) in &pairs.pairs {
        let (Some(right_a), Some(right_b)) =
            (is_right(&shares_a[own as usize], metric), is_right(&shares_b[other as usize], metric))
        else {
            continue;
        };
        // The first seed whose own result is that of the item.
        let mut rows_a = matched.a.group.rows(a, own as usize);
        let mut rows_b = matched.b.group.rows(b, other as usize);
        let row_a = rows_a.find(|row| row.is_settled() && row.is_full(*at_a, metric) == right_a);
        let row_b = rows_b.find(|row| row.is_settled() && row.is_full(*at_b, metric) == right_b);
        let (Some(row_a), Some(row_b)) = (row_a, row_b) else { continue };
        let list = match (right_a, right_b) {
            (true, false) => &mut changes.newly_wrong,
            (false, true) => &mut changes.newly_right,
            _ if row_a.course() != row_b.course() => &mut changes.otherwise_different,
            _ => continue,
        };
        list.push(FlippedItem {
            item: items.indexes[own as usize],
            item_b: items_b.indexes[other as usize],
            argument_b: item_argument(
                &b.manifest.spec,
                &matched.b.key.benchmark,
                items_b.indexes[other as usize],
                items_b.names[other as usize].as_deref(),
                row_b.unit.short(),
            ),
            id: items.ids[own as usize].clone(),
            name: items.names[own as usize].clone(),
            unit_a: row_a.unit.clone(),
            unit_b: row_b.unit.clone(),
            group: items.groups[own as usize].clone(),
            cause_a: row_a.cause.name(),
            cause_b: row_b.cause.name(),
            turn_a: row_a.turn,
            turn_b: row_b.turn,
            texts: None,
        });
    }
    changes
}
