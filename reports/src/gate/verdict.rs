//! The decisions of a gate.

use std::collections::{BTreeSet, HashMap};

use lumos_benchmarks::statistics::{
    ALPHA, LEVEL, Limits, NonInferiority, POWER, PairedDifference, SidedShares, Variances, holm,
    items_needed, non_inferiority, paired_ratio, student_interval, wilson,
};
use lumos_benchmarks::{Estimate, ItemScore, MetricDefinition, MetricKind, Share, Tally, Unit};
use lumos_tasks::{ItemId, UnknownName};

use super::baseline::{BaselineFile, BaselineGroup};
use super::model::{GateCheck, GateReport, GateVerdict};
use super::rules::{AllowedDifference, GateRules, ItemRef, MetricThreshold, in_unit};
use super::scored::{ItemScores, ScoredGroup, scored};
use crate::compare::{CompareError, Refusal, Side, match_groups};
use crate::display::thousands;
use crate::report::{SCORING_VERSION, number, signed, with_unit};
use crate::results::{BenchmarkItems, Cause, pooled};

/// What a candidate is compared with.
#[derive(Debug)]
pub enum BaselineSource {
    /// Another run.
    Run(Box<Side>),
    /// A file of item scores.
    File(BaselineFile),
}

/// Checks a candidate against a baseline.
///
/// # Errors
/// [`CompareError::Refused`] with all reasons if the comparison would mislead; other errors if a rule names something
/// that does not exist.
pub fn gate(
    candidate: &Side,
    baseline: &BaselineSource,
    rules: &GateRules,
) -> Result<GateReport, CompareError> {
    let taken;
    let (baseline, name, folders) = match baseline {
        BaselineSource::File(file) => (file, &file.name, None),
        BaselineSource::Run(side) => {
            taken = BaselineFile::of(side, &rules.only)?;
            (&taken, &side.name, Some([side.folder.clone(), candidate.folder.clone()]))
        }
    };
    let groups = scored(candidate, &rules.only)?;
    let mut builder =
        Builder { candidate, rules, checks: Vec::new(), refusals: Vec::new(), warnings: Vec::new() };
    let matched = builder.matched(&groups, baseline)?;
    let mut tests = Vec::new();
    for (group, base) in &matched {
        let Some(metric) = builder.metric(group)? else { continue };
        if let Some(test) = builder.compared(group, base, metric) {
            tests.push((builder.checks.len() - 1, test));
        }
    }
    if !builder.refusals.is_empty() {
        builder.refusals.dedup();
        return Err(CompareError::Refused(builder.refusals));
    }
    // Passing needs no adjustment, because all groups must pass; failing does, because one is enough.
    let adjusted = holm(&tests.iter().map(|(_, test)| test.p_worse).collect::<Vec<_>>());
    for ((at, _), p) in tests.iter().zip(adjusted) {
        builder.checks[*at].fail_below(p);
    }
    for check in builder.checks.iter_mut().filter(|check| check.verdict == GateVerdict::CannotTell) {
        if let Some(needed) = check.items_needed {
            check.reason.push_str(&format!("; about {} items would decide", thousands(needed)));
        }
    }
    for threshold in &rules.thresholds {
        builder.threshold(&groups, threshold)?;
    }
    for item in &rules.must_pass {
        builder.must_pass(&groups, item)?;
    }
    Ok(GateReport {
        run: candidate.name.clone(),
        baseline: name.clone(),
        folders,
        checks: builder.checks,
        warnings: builder.warnings,
    })
}

struct Builder<'a> {
    candidate: &'a Side,
    rules: &'a GateRules,
    checks: Vec<GateCheck>,
    refusals: Vec<Refusal>,
    warnings: Vec<String>,
}

impl<'a> Builder<'a> {
    /// Matches the candidate's groups with those of the baseline, and refuses differences that are not accepted.
    fn matched<'b>(
        &mut self,
        groups: &'b [ScoredGroup],
        baseline: &'b BaselineFile,
    ) -> Result<Vec<(&'b ScoredGroup, &'b BaselineGroup)>, CompareError> {
        let own: Vec<_> = groups.iter().map(|group| group.head.key()).collect();
        let others: Vec<_> = baseline.groups.iter().map(|group| group.head.key()).collect();
        let pairs = match_groups(&own, &others)?;
        if pairs.is_empty() {
            let names = |keys: &[crate::compare::GroupKey]| -> BTreeSet<String> {
                keys.iter().map(|key| key.benchmark.clone()).collect()
            };
            let (a, b) = (names(&others), names(&own));
            let mut refusals: Vec<_> =
                a.intersection(&b).map(|name| Refusal::NoMatch { benchmark: name.clone() }).collect();
            if refusals.is_empty() {
                let (a, b) = (a.into_iter().collect(), b.into_iter().collect());
                refusals.push(Refusal::NoCommonBenchmark { a, b });
            }
            return Err(CompareError::Refused(refusals));
        }
        for (at, group) in baseline.groups.iter().enumerate() {
            if !pairs.iter().any(|(_, other)| *other == at) {
                let head = &group.head;
                self.warnings.push(format!(
                    "{} {} of the baseline is not checked: the run has no counterpart",
                    head.benchmark, head.label
                ));
            }
        }
        for (own, other) in &pairs {
            self.check_heads(&groups[*own], &baseline.groups[*other], baseline.scoring_version);
        }
        Ok(pairs.into_iter().map(|(own, other)| (&groups[own], &baseline.groups[other])).collect())
    }

    fn check_heads(&mut self, group: &ScoredGroup, base: &BaselineGroup, version: f64) {
        let (own, other) = (&group.head, &base.head);
        let benchmark = own.benchmark.clone();
        if own.scoring != other.scoring {
            let (baseline, candidate) = (other.scoring.to_string(), own.scoring.to_string());
            self.refusals.push(Refusal::ScoringDiffers { benchmark: benchmark.clone(), baseline, candidate });
        } else if version != SCORING_VERSION {
            let (baseline, candidate) = (version.to_string(), SCORING_VERSION.to_string());
            self.refusals.push(Refusal::VersionDiffers { benchmark: benchmark.clone(), baseline, candidate });
        }
        let is_same = (own.formulation, own.behaviour) == (other.formulation, other.behaviour);
        if is_same && own.prompts != other.prompts && !self.rules.allow.contains(&AllowedDifference::Prompts)
        {
            self.refusals.push(Refusal::PromptsDiffer { group: format!("{benchmark} {}", own.label) });
        }
        if own.data.sha256 != other.data.sha256 && !self.rules.allow.contains(&AllowedDifference::Data) {
            self.refusals.push(Refusal::DataDiffers { benchmark });
        }
    }

    /// Returns the position of the metric to compare; `None` if the group does not have it.
    fn metric(&self, group: &ScoredGroup) -> Result<Option<usize>, CompareError> {
        let Some(asked) = &self.rules.metric else { return Ok((!group.metrics.is_empty()).then_some(0)) };
        match group.metrics.iter().position(|metric| metric.name == *asked) {
            Some(at) => Ok(Some(at)),
            None => Err(unknown_metric(asked, &group.metrics)),
        }
    }

    /// Adds the check of a group; `None` if it cannot be tested.
    fn compared(
        &mut self,
        group: &ScoredGroup,
        base: &BaselineGroup,
        metric: usize,
    ) -> Option<NonInferiority> {
        let definition = &group.metrics[metric];
        let benchmark = &group.head.benchmark;
        let Some(at) = base.head.metrics.iter().position(|name| name == definition.name) else {
            let metric = definition.name.to_owned();
            self.refusals.push(Refusal::NotMeasured { benchmark: benchmark.clone(), metric });
            return None;
        };
        if definition.judged && group.head.judge != base.head.judge {
            self.refusals.push(Refusal::JudgesDiffer { metric: definition.name.to_owned() });
            return None;
        }
        let of_base: HashMap<_, &ItemScores> = base.items.iter().map(|item| (item.id(), item)).collect();
        let planned = group.worst.len() as u64;
        let common = group.worst.iter().filter(|item| of_base.contains_key(&item.id())).count() as u64;
        let all = base.items.len() as u64;
        if common < planned.min(all) || common == 0 {
            let benchmark = benchmark.clone();
            self.refusals.push(Refusal::ItemsDiffer { benchmark, a: all, b: planned, common });
            return None;
        }
        if planned != all {
            self.warnings.push(format!(
                "{benchmark} {}: {} items of the run and {} of the baseline, {} in common; {} are compared",
                group.head.label,
                thousands(planned),
                thousands(all),
                thousands(common),
                thousands(common)
            ));
        }
        let items = self.candidate.table.items_of(benchmark)?;
        let margin = self.rules.margin(benchmark, definition);
        let rule = format!("non-inferiority {}", definition.name);
        let paired = |scores: &[ItemScores]| paired(definition, (scores, metric), (&of_base, at), items);
        let difference = match paired(&group.items) {
            Ok(difference) => difference,
            Err(reason) => {
                let reason = reason.to_owned();
                self.checks.push(GateCheck::new(rule, group, GateVerdict::CannotTell, reason, 0));
                return None;
            }
        };
        let test = non_inferiority(&difference, margin);
        let count = difference.items as u64;
        let shown = |value: f64| points(value, definition.unit);
        let sign = if definition.higher_is_better { 1.0 } else { -1.0 };
        let mut reason = format!(
            "{} {} (one-sided 95 % limit {}, margin {}) over {} items",
            if definition.higher_is_better { "difference" } else { "gain" },
            shown(difference.difference),
            shown(test.lower),
            shown(-margin),
            thousands(count)
        );
        if difference.clusters < difference.items {
            reason.push_str(&format!(" in {} clusters", thousands(difference.clusters as u64)));
        }
        // The error is at least that of independent items, so it is 0 only if all differences are equal.
        if difference.standard_error == 0.0 && difference.difference == 0.0 {
            reason.push_str("; no paired item differs");
        }
        let mut verdict = if test.lower > -margin { GateVerdict::Pass } else { GateVerdict::CannotTell };
        let mut needed = None;
        if verdict == GateVerdict::CannotTell {
            needed = needed_items(&difference, margin);
        }
        if verdict == GateVerdict::Pass && group.unsettled > 0 {
            let worst = paired(&group.worst).ok().map(|worst| non_inferiority(&worst, margin));
            if worst.is_none_or(|worst| worst.lower <= -margin) || definition.kind.range().is_none() {
                verdict = GateVerdict::CannotTell;
                let unsettled = thousands(group.unsettled);
                reason.push_str(&format!(
                    "; {unsettled} units are faulted or outstanding and could reverse it"
                ));
            }
        }
        let is_small = count < self.rules.min_items;
        if is_small && verdict == GateVerdict::Pass {
            verdict = GateVerdict::CannotTell;
        }
        if is_small {
            reason.push_str(&format!("; fewer than {} items (--min-items)", self.rules.min_items));
        }
        let (low, high) = difference.interval(LEVEL);
        self.checks.push(GateCheck {
            difference: Some(sign * difference.difference),
            interval: Some(if sign > 0.0 { (low, high) } else { (-high, -low) }),
            limit: Some(sign * test.lower),
            p_value: Some(difference.p_t),
            margin: Some(margin),
            items_needed: needed,
            ..GateCheck::new(rule, group, verdict, reason, count)
        });
        (!is_small).then_some(test)
    }

    fn threshold(&mut self, groups: &[ScoredGroup], rule: &MetricThreshold) -> Result<(), CompareError> {
        let of_task =
            |group: &&ScoredGroup| rule.task.as_ref().is_none_or(|task| *task == group.head.benchmark);
        let groups: Vec<&ScoredGroup> = groups.iter().filter(of_task).collect();
        let mut is_known = false;
        for group in &groups {
            let Some(at) = group.metrics.iter().position(|metric| metric.name == rule.metric) else {
                continue;
            };
            is_known = true;
            let definition = &group.metrics[at];
            let limit = in_unit(rule.value, definition.unit);
            let estimate = pooled(&self.candidate.table, &group.group, at).estimate;
            let name = format!("threshold {}", definition.name);
            let bounds = estimate.as_ref().and_then(|estimate| one_sided(definition.kind, estimate));
            let (Some(estimate), Some((low, high))) = (estimate, bounds) else {
                let reason = "too few items are settled".to_owned();
                self.checks.push(GateCheck::new(name, group, GateVerdict::CannotTell, reason, 0));
                continue;
            };
            let is_met = |(low, high): Limits| {
                if definition.higher_is_better { low >= limit } else { high <= limit }
            };
            let is_missed = if definition.higher_is_better { high < limit } else { low > limit };
            let shown = |value: f64| with_unit(&number(value, definition.unit), definition.unit);
            let mut reason = format!(
                "{} (one-sided 95 % limits {} and {}), required at {} {}",
                shown(estimate.value),
                shown(low),
                shown(high),
                if definition.higher_is_better { "least" } else { "most" },
                shown(limit)
            );
            let verdict = if is_missed {
                GateVerdict::Fail
            } else if !is_met((low, high)) {
                GateVerdict::CannotTell
            } else if group.unsettled > 0 && worst_limits(group, at).is_none_or(|worst| !is_met(worst)) {
                let unsettled = thousands(group.unsettled);
                reason.push_str(&format!(
                    "; {unsettled} units are faulted or outstanding and could reverse it"
                ));
                GateVerdict::CannotTell
            } else {
                GateVerdict::Pass
            };
            self.checks.push(GateCheck {
                difference: Some(estimate.value),
                interval: Some((low, high)),
                limit: Some(if definition.higher_is_better { low } else { high }),
                margin: Some(limit),
                ..GateCheck::new(name, group, verdict, reason, estimate.items)
            });
        }
        if is_known {
            return Ok(());
        }
        let known: Vec<MetricDefinition> =
            groups.iter().flat_map(|group| group.metrics.iter().copied()).collect();
        Err(unknown_metric(&rule.metric, &known))
    }

    fn must_pass(&mut self, groups: &[ScoredGroup], rule: &ItemRef) -> Result<(), CompareError> {
        let table = &self.candidate.table;
        let is_task = |task: &str| table.benchmarks.iter().any(|items| items.benchmark.name() == task);
        let (task, asked) = rule.parts(is_task);
        let position = |items: &BenchmarkItems| {
            let index = || {
                let index: u64 = asked.parse().ok()?;
                items.indexes.iter().position(|one| *one == index)
            };
            items.names.iter().position(|name| name.as_deref() == Some(asked)).or_else(index)
        };
        let of_task = |items: &&BenchmarkItems| task.is_none_or(|task| task == items.benchmark.name());
        let found: Vec<(&str, usize)> = table
            .benchmarks
            .iter()
            .filter(of_task)
            .filter_map(|items| Some((items.benchmark.name(), position(items)?)))
            .collect();
        let (benchmark, item) = match found.as_slice() {
            [one] => *one,
            found => {
                let benchmarks = found.iter().map(|(benchmark, _)| (*benchmark).to_owned()).collect();
                return Err(CompareError::UnknownItem { item: asked.to_owned(), benchmarks });
            }
        };
        for group in groups.iter().filter(|group| group.head.benchmark == benchmark) {
            let rows: Vec<_> = group.group.rows(table, item).collect();
            let wrong = rows.iter().find(|row| row.is_settled() && row.cause != Cause::Correct);
            let unsettled = rows.iter().find(|row| !row.is_settled());
            let (verdict, reason) = match (wrong, unsettled) {
                (Some(row), _) => (GateVerdict::Fail, row.cause.name()),
                (None, Some(row)) => (GateVerdict::CannotTell, row.cause.name()),
                // A limit or a stop rule ended the configuration before the item.
                (None, None) if rows.is_empty() => {
                    (GateVerdict::CannotTell, "not part of this configuration")
                }
                (None, None) => (GateVerdict::Pass, "correct"),
            };
            let rule = format!("must-pass {asked}");
            self.checks.push(GateCheck::new(rule, group, verdict, reason.to_owned(), 1));
        }
        Ok(())
    }
}

/// Compares candidate and baseline over their common items, so that a positive difference is an improvement. The error
/// says why they cannot be compared.
fn paired(
    metric: &MetricDefinition,
    (candidate, own): (&[ItemScores], usize),
    (baseline, other): (&HashMap<ItemId, &ItemScores>, usize),
    items: &BenchmarkItems,
) -> Result<PairedDifference, &'static str> {
    let clusters: HashMap<&ItemId, u32> = items.ids.iter().zip(items.clusters.iter().copied()).collect();
    let oriented = |share: Share| match metric.higher_is_better {
        true => share,
        false => Share { numerator: -share.numerator, ..share },
    };
    let (mut a, mut b, mut of_items) = (Vec::new(), Vec::new(), Vec::new());
    for scores in candidate {
        let id = scores.id();
        let shares = scores.share(own).zip(baseline.get(&id).and_then(|scores| scores.share(other)));
        let Some((candidate, baseline)) = shares else { continue };
        a.push(oriented(candidate));
        b.push(oriented(baseline));
        of_items.push(clusters.get(&id).copied().unwrap_or(u32::MAX));
    }
    let sides = SidedShares { a: &a, b: &b, clusters: items.is_clustered.then_some(of_items.as_slice()) };
    let is_one_cluster = of_items.len() > 1 && of_items.iter().all(|cluster| *cluster == of_items[0]);
    if items.is_clustered && is_one_cluster {
        return Err("all items are in one cluster, so that they are not independent");
    }
    paired_ratio(&sides).ok_or("fewer than two items are settled in both")
}

/// Returns the number of items with which the distance of the difference from the margin would be detected.
fn needed_items(difference: &PairedDifference, margin: f64) -> Option<u64> {
    let omega2 = difference.standard_error * difference.standard_error * difference.items as f64;
    items_needed(difference.difference + margin, &Variances::of_items(omega2), 2.0 * ALPHA, POWER)
        .filter(|needed| *needed > 0)
}

/// Returns the one-sided 95 % limits of the metric at a position if units that are not settled had the worst value;
/// `None` if it has no bounds.
fn worst_limits(group: &ScoredGroup, metric: usize) -> Option<Limits> {
    let definition = &group.metrics[metric];
    definition.kind.range()?;
    let mut tally = Tally::default();
    for share in group.worst.iter().filter_map(|scores| scores.share(metric)) {
        tally.add(&ItemScore::default().with(definition.name, share));
    }
    one_sided(definition.kind, &tally.finish(definition)?)
}

/// Returns the one-sided 95 % limits of a figure.
fn one_sided(kind: MetricKind, estimate: &Estimate) -> Option<Limits> {
    /// Level of the two-sided interval with these limits.
    const TWO_SIDED: f64 = 0.9;
    let items = estimate.items as f64;
    let error = estimate.standard_error;
    if let (MetricKind::Proportion, value) = (kind, estimate.value) {
        let is_inside = value > 0.0 && value < 1.0;
        let effective = match error.filter(|error| is_inside && *error > 0.0 && estimate.denominator != items)
        {
            // As many independent trials as have the same standard error.
            Some(error) => (value * (1.0 - value) / (error * error)).clamp(1.0, estimate.denominator),
            None => items,
        };
        return wilson(value * effective, effective, TWO_SIDED);
    }
    match (error.filter(|error| *error > 0.0), kind.range()) {
        (Some(error), _) => student_interval(estimate.value, error, estimate.items, TWO_SIDED),
        // Equal values prove as little as equal shares.
        (None, Some((least, most))) => {
            let range = most - least;
            let (low, high) = wilson((estimate.value - least) / range * items, items, TWO_SIDED)?;
            Some((least + low * range, least + high * range))
        }
        (None, None) => None,
    }
}

fn unknown_metric(word: &str, known: &[MetricDefinition]) -> CompareError {
    let names: BTreeSet<&str> = known.iter().map(|metric| metric.name).collect();
    let known = names.into_iter().collect::<Vec<_>>().join(", ");
    CompareError::UnknownMetric(UnknownName { what: "metric", word: word.to_owned(), known })
}

fn points(value: f64, unit: Unit) -> String {
    let points = if unit == Unit::Percent { "points" } else { unit.name() };
    format!("{} {points}", signed(value, unit))
}
