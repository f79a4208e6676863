//! Terminal summary: the main figures, what is missing, why units failed, and how the run was computed. It fits
//! a screen of 24 lines and 80 columns for up to six configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::display::thousands;
use crate::results::{Cause, benchmark};

use super::model::{ConfigurationReport, MetricReport, Report};
use super::numbers::{dash, distance, figure, interval, items};
use super::rows::{Headline, faults, headlines, lines, warnings};
use super::terminal::{Rows, Terminal};

/// Maximum numbers of configurations, published systems, causes, lines about faults, and lines about the computation.
const CONFIGURATIONS: usize = 10;
const SYSTEMS: usize = 4;
const CAUSES: usize = 3;
const FAULTS: usize = 2;
const LINES: usize = 5;

/// Metrics of the main scoring that a summary has: the main one, and those that a judge decides.
fn main_metrics<'a>(
    report: &Report,
    configuration: &'a ConfigurationReport,
) -> impl Iterator<Item = &'a MetricReport> + use<'a> {
    let definitions = benchmark(&report.manifest.spec, &configuration.benchmark)
        .map_or(&[][..], |benchmark| benchmark.metrics());
    let is_judged =
        |metric: &MetricReport| definitions.iter().any(|one| one.judged && one.name == metric.metric);
    let metrics = configuration.scores.first().map_or(&[][..], |scores| &scores.metrics);
    let shown = metrics.iter().enumerate().filter(move |(at, metric)| *at == 0 || is_judged(metric));
    shown.map(|(_, metric)| metric)
}

impl Terminal {
    /// Writes the summary.
    pub(super) fn summary(self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let manifest = &report.manifest;
        let scorings: BTreeSet<_> =
            report.configurations.iter().filter_map(|one| Some(one.scores.first()?.scoring.name())).collect();
        let scorings: Vec<_> = scorings.into_iter().collect();
        let (name, identity) = (&manifest.spec.name, manifest.identity.short());
        let common = common_ending(report);
        let settings = if common.is_empty() { String::new() } else { format!(", {common}") };
        self.text(out, &format!("run {name} ({identity}){settings}, {} scoring", scorings.join(" and ")))?;
        writeln!(out)?;
        self.main_figures(report, &common, out)?;
        for configuration in &report.configurations {
            if let Err(error) = configuration.ledger.check() {
                let label = &configuration.label;
                self.text(out, &format!("THE LEDGER OF {label} DOES NOT BALANCE: {error}"))?;
            }
        }
        self.text(out, &report.total.to_string())?;
        if let Some(causes) = causes(report) {
            self.text(out, &causes)?;
        }
        self.some(out, &faults(report), FAULTS)?;
        let warnings = warnings(report);
        self.some(out, &warnings, usize::MAX)?;
        let lines: Vec<_> = lines(report).into_iter().filter(|line| !warnings.contains(line)).collect();
        self.some(out, &lines, LINES)?;
        if report.duplicates > 0 {
            self.text(out, &format!("{} duplicate outcomes dropped", thousands(report.duplicates)))?;
        }
        Ok(())
    }

    /// Writes the first texts and the number of the others.
    fn some(self, out: &mut dyn Write, texts: &[String], most: usize) -> io::Result<()> {
        texts.iter().take(most).try_for_each(|text| self.text(out, text))?;
        match texts.len().saturating_sub(most) {
            0 => Ok(()),
            more => self.text(out, &format!("({more} more with -v)")),
        }
    }

    /// Writes the table of main figures.
    fn main_figures(self, report: &Report, common_ending: &str, out: &mut dyn Write) -> io::Result<()> {
        let all = headlines(report);
        let shown = &all[..all.len().min(CONFIGURATIONS)];
        let metrics: BTreeSet<&str> = shown
            .iter()
            .flat_map(|one| main_metrics(report, one.configuration))
            .map(|metric| metric.metric.as_str())
            .collect();
        // The header is the metric's name if all rows share it.
        let common = metrics.first().filter(|_| metrics.len() == 1).copied();
        let mut systems = BTreeSet::new();
        let label = |headline: &Headline<'_>| {
            let label = headline.label.as_str();
            label.strip_suffix(common_ending).unwrap_or(label).trim_end().to_owned()
        };
        let rows = shown.iter().flat_map(|headline| {
            let metrics = main_metrics(report, headline.configuration).enumerate();
            metrics.map(move |(at, metric)| (headline, at == 0, metric))
        });
        let rows: Vec<_> = rows
            .map(|(headline, is_first, metric)| {
                let (estimate, compared) = (headline.estimate(metric), headline.published(metric));
                if let Some(figure) = compared {
                    let (system, source) = (&figure.system, &figure.source);
                    systems.insert(format!("{system} {:.1} % ({source})", figure.percent));
                }
                let mut row = vec![if is_first { label(headline) } else { String::new() }];
                row.extend(common.is_none().then(|| metric.metric.clone()));
                row.extend([
                    figure(estimate, metric.unit),
                    interval(estimate, metric.unit).replace(" to ", "–"),
                    thousands(items(estimate)),
                    compared.map_or_else(dash, |figure| format!("{:.1} %", figure.percent)),
                    compared.map_or_else(dash, distance),
                ]);
                row
            })
            .collect();
        let mut header = vec!["configuration"];
        header.extend(common.is_none().then_some("metric"));
        header.extend([common.unwrap_or("value"), "95%", "items", "published", "points"]);
        let numbers = header.len() - 5;
        let rows = Rows::new(header, numbers, rows);
        self.table(
            out,
            Rows { spare: &["published", "items"], wrapped: Some("points"), whole_names: true, ..rows },
        )?;
        let more = all.len() - shown.len();
        if more > 0 {
            self.text(out, &format!("and {more} more configurations with -v"))?;
        }
        let systems: Vec<_> = systems.into_iter().collect();
        if (1..=SYSTEMS).contains(&systems.len()) {
            self.text(out, &format!("published: {}", systems.join(", ")))?;
        }
        Ok(())
    }
}

/// Returns the words with which all labels end: `paper seed 0`. Empty for a single one.
fn common_ending(report: &Report) -> String {
    let rows = headlines(report);
    let mut labels = rows.iter().map(|one| one.label.split_whitespace().collect::<Vec<_>>());
    let Some(mut common) = labels.next().filter(|_| rows.len() > 1) else {
        return String::new();
    };
    let mut shortest = common.len();
    for label in labels {
        let equal =
            common.iter().rev().zip(label.iter().rev()).take_while(|(left, right)| left == right).count();
        common.drain(..common.len() - equal);
        shortest = shortest.min(label.len());
    }
    // Every label keeps its first word.
    common.drain(..common.len().saturating_sub(shortest.saturating_sub(1)));
    // Models are in brackets, which stay together.
    let is_cut =
        common.iter().any(|word| word.ends_with(']')) && !common.iter().any(|word| word.starts_with('['));
    if is_cut { String::new() } else { common.join(" ") }
}

/// Describes the most frequent causes of units that are recorded and not correct.
fn causes(report: &Report) -> Option<String> {
    let mut counts: BTreeMap<Cause, u64> = BTreeMap::new();
    for (cause, count) in report.configurations.iter().flat_map(|one| &one.attribution) {
        if !matches!(cause, Cause::Correct | Cause::Outstanding) {
            *counts.entry(*cause).or_default() += count;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    // A stable sort: equal counts stay in the order of reports.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named =
        counts.iter().take(CAUSES).map(|(cause, count)| format!("{} {}", cause.name(), thousands(*count)));
    let named: Vec<_> = named.collect();
    let rest: u64 = counts.iter().skip(CAUSES).map(|(_, count)| count).sum();
    let rest = if rest > 0 { format!(", other {}", thousands(rest)) } else { String::new() };
    (!named.is_empty()).then(|| format!("not correct: {}{rest}", named.join(", ")))
}
