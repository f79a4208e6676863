//! Table rows shared by several formats.

use std::collections::{BTreeMap, BTreeSet};

use lumos_benchmarks::{Estimate, Unit};
use lumos_coordinator::Computing;
use lumos_coordinator::manifest::PlannedConfiguration;
use lumos_tasks::{Device, DraftCounts, Role, ServerUse};

use crate::display::thousands;
use crate::judge::JudgeReport;
use crate::model_id::models_by_role;
use crate::results::{GroupFigure, Matrix, MatrixCell, MatrixColumn, MatrixRow};

use super::model::{
    ConfigurationReport, FaultMessage, MetricReport, PublishedComparison, Report, ScoringReport,
};
use super::numbers::{
    bounds, dash, distance, duration, figure, interval, items, number, published, range, seconds,
};

/// Returns every metric with its configuration and scoring, in the order of reports.
pub(super) fn metrics(
    report: &Report,
) -> impl Iterator<Item = (&ConfigurationReport, &ScoringReport, &MetricReport)> {
    report.configurations.iter().flat_map(|configuration| {
        let scores = configuration.scores.iter();
        scores
            .flat_map(move |scores| scores.metrics.iter().map(move |metric| (configuration, scores, metric)))
    })
}

/// Inserts the label of a row's configuration as the first cell, in the first row of each configuration only.
/// Configurations may have the same label.
pub(super) fn labelled_once<'a>(
    rows: impl Iterator<Item = (&'a ConfigurationReport, Vec<String>)>,
) -> Vec<Vec<String>> {
    let mut before: Option<&ConfigurationReport> = None;
    let once = rows.map(|(configuration, mut row)| {
        let is_same = before.replace(configuration).is_some_and(|before| std::ptr::eq(before, configuration));
        row.insert(0, if is_same { String::new() } else { configuration.label.clone() });
        row
    });
    once.collect()
}

/// A configuration, or several that differ only in their seed, with its main figures.
pub(super) struct Headline<'a> {
    /// Name for display; configurations with several seeds are named once.
    pub(super) label: String,
    /// The first configuration.
    pub(super) configuration: &'a ConfigurationReport,
    /// Figures pooled over seeds, by metric; empty for a single seed.
    pooled: Vec<&'a GroupFigure>,
}

impl<'a> Headline<'a> {
    /// Returns the main figure under the main scoring, pooled over seeds.
    pub(super) fn estimate(&self, metric: &'a MetricReport) -> Option<&'a Estimate> {
        match self.pooled.iter().find(|figure| figure.metric == metric.metric) {
            Some(figure) => figure.pooled.estimate.as_ref(),
            None => metric.estimate.as_ref(),
        }
    }

    /// Returns the comparison with the first published figure. Published figures are of single runs: for several seeds,
    /// only the reasons why the figures are not comparable are returned.
    pub(super) fn published(&self, metric: &'a MetricReport) -> Option<&'a PublishedComparison> {
        metric.published.first().filter(|one| self.pooled.is_empty() || one.points.is_none())
    }
}

/// Returns the rows of tables of main figures.
pub(super) fn headlines<'a>(report: &'a Report) -> Vec<Headline<'a>> {
    let configurations = report.configurations.iter().enumerate();
    let headline = |(position, configuration): (usize, &'a ConfigurationReport)| {
        let pooled: Vec<_> = report.groups.iter().filter(|group| group.cells.contains(&position)).collect();
        let label = match pooled.first() {
            None => configuration.label.clone(),
            Some(group) if group.cells.first() == Some(&position) => {
                format!("{} {} seeds", group.group, group.seeds.len())
            }
            Some(_) => return None,
        };
        Some(Headline { label, configuration, pooled })
    };
    configurations.filter_map(headline).collect()
}

pub(super) fn figures(report: &Report) -> Vec<Vec<String>> {
    labelled_once(metrics(report).map(|(configuration, scores, metric)| {
        let (estimate, compared) = (metric.estimate.as_ref(), metric.published.first());
        let row = vec![
            scores.scoring.to_string(),
            metric.metric.clone(),
            figure(estimate, metric.unit),
            interval(estimate, metric.unit),
            thousands(items(estimate)),
            compared.map_or_else(dash, published),
            compared.map_or_else(dash, distance),
        ];
        (configuration, row)
    }))
}

pub(super) fn ledgers(report: &Report) -> Vec<Vec<String>> {
    let row = |label: &str, ledger: &crate::ledger::Ledger| {
        let counts = [ledger.planned, ledger.answered, ledger.gave_up, ledger.faulted, ledger.outstanding];
        std::iter::once(label.to_owned()).chain(counts.map(thousands)).collect()
    };
    let mut rows: Vec<_> = report.configurations.iter().map(|one| row(&one.label, &one.ledger)).collect();
    if rows.len() > 1 {
        rows.push(row("all", &report.total));
    }
    rows
}

/// Returns the rows of correct and wrong answered units, by scoring and metric.
pub(super) fn splits(report: &Report) -> Vec<Vec<String>> {
    labelled_once(report.configurations.iter().flat_map(|configuration| {
        configuration.ledger.splits.iter().map(move |split| {
            let row = vec![
                split.scoring.to_string(),
                split.metric.clone(),
                thousands(configuration.ledger.answered),
                thousands(split.correct),
                thousands(split.wrong),
            ];
            (configuration, row)
        })
    }))
}

/// Returns the table of models and benchmarks: its column names and rows. A star marks a figure that differs from every
/// other one in its column.
pub(crate) fn matrix(matrix: &Matrix) -> (Vec<String>, Vec<Vec<String>>) {
    let names = matrix.columns.iter().map(|column| column.benchmark.clone());
    let header = std::iter::once("configuration".to_owned()).chain(names).collect();
    let cell = |row: usize, (column, cell): (&MatrixColumn, &Option<MatrixCell>)| {
        let Some(cell) = cell else { return dash() };
        let star = if column.is_distinguishable && column.best == Some(row) { "*" } else { "" };
        let seeds = if cell.seeds > 1 { format!(" × {}", cell.seeds) } else { String::new() };
        let interval = cell.interval.map(|interval| format!(" ({})", range(interval, column.unit)));
        format!(
            "{}{star}{} n {}{seeds}",
            number(cell.value, column.unit),
            interval.unwrap_or_default(),
            thousands(cell.items)
        )
    };
    let row = |(at, row): (usize, &MatrixRow)| {
        let cells = matrix.columns.iter().zip(&row.cells).map(|pair| cell(at, pair));
        std::iter::once(row.label.clone()).chain(cells).collect()
    };
    (header, matrix.rows.iter().enumerate().map(row).collect())
}

/// Returns the notes on the table of models and benchmarks: its metrics, and the columns without a distinguishable best
/// figure.
pub(crate) fn matrix_notes(matrix: &Matrix) -> Vec<String> {
    let metric = |column: &MatrixColumn| {
        let unit = if column.unit == Unit::Percent { "%" } else { column.unit.name() };
        format!("{} {} ({unit})", column.benchmark, column.metric)
    };
    let metrics = matrix.columns.iter().map(metric).collect::<Vec<_>>().join(", ");
    let marked = "* differs from every other figure of its column (p < 0.05 after Holm's correction)";
    let note = |column: &MatrixColumn| Some(format!("{}: {}", column.benchmark, column.note.as_ref()?));
    std::iter::once(format!("{metrics}; {marked}")).chain(matrix.columns.iter().filter_map(note)).collect()
}

/// Note on how intervals are computed.
pub(super) const INTERVALS: &str = "95 % intervals: Wilson's for shares, Student's t for means.";
/// Note on when figures are compared with published ones.
pub(super) const COMPARED: &str = "The difference from the published figure is in percentage points; inside: our interval \
                                   contains the published figure. Figures are compared only on the published items and \
                                   settings.";

/// Column names of [`ledgers`].
pub(super) const LEDGERS: [&str; 6] =
    ["configuration", "planned", "answered", "gave up", "faulted", "outstanding"];
/// Column names of [`splits`].
pub(super) const SPLITS: [&str; 6] = ["configuration", "scoring", "metric", "answered", "correct", "wrong"];
/// Column names of [`attributions`].
pub(super) const ATTRIBUTIONS: [&str; 4] = ["configuration", "result", "units", "%"];
/// Column names of [`groups`].
pub(super) const GROUPS: [&str; 6] = ["configuration", "scoring", "group", "value", "95 % interval", "items"];
/// Column names of [`usages`].
pub(super) const USAGES: [&str; 5] =
    ["configuration", "prompt tokens", "reply tokens", "median time", "90 % within"];

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub(super) fn attributions(report: &Report) -> Vec<Vec<String>> {
    labelled_once(report.configurations.iter().flat_map(|configuration| {
        let planned = configuration.ledger.planned.max(1) as f64;
        configuration.attribution.iter().map(move |(cause, &count)| {
            let share = super::numbers::percent(count as f64 / planned);
            (configuration, vec![cause.name().to_owned(), thousands(count), share])
        })
    }))
}

pub(super) fn groups(report: &Report) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for configuration in &report.configurations {
        for scores in &configuration.scores {
            let Some(metric) = scores.metrics.first() else { continue };
            for group in &metric.groups {
                let estimate = Some(&group.estimate);
                let row = vec![
                    scores.scoring.to_string(),
                    group.group.clone(),
                    figure(estimate, metric.unit),
                    interval(estimate, metric.unit),
                    thousands(items(estimate)),
                ];
                rows.push((configuration, row));
            }
        }
    }
    labelled_once(rows.into_iter())
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub(super) fn usages(report: &Report) -> Vec<Vec<String>> {
    let row = |configuration: &ConfigurationReport| {
        let usage = &configuration.usage;
        let each = |tokens: u64| format!("{:.1}", tokens as f64 / usage.units.max(1) as f64);
        vec![
            configuration.label.clone(),
            each(usage.prompt_tokens),
            each(usage.completion_tokens),
            seconds(usage.telemetry.seconds_median),
            seconds(usage.telemetry.seconds_p90),
        ]
    };
    report.configurations.iter().map(row).collect()
}

/// Returns the notes about the run, one line each.
pub(super) fn lines(report: &Report) -> Vec<String> {
    std::iter::once(models(report))
        .chain(wall_time(report))
        .chain(costs(report))
        .chain(stops(report))
        .chain(tools(report).into_iter().map(|(line, _)| line))
        .chain(formats(report))
        .chain(computing(report))
        .chain(servers(report))
        .chain(drafts(report))
        .collect()
}

/// Returns a line about lookup decoding, if a configuration used it.
fn drafts(report: &Report) -> Option<String> {
    let mut drafts = DraftCounts::default();
    let mut tokens = 0;
    for usage in report.configurations.iter().map(|configuration| &configuration.usage) {
        if let Some(counts) = usage.telemetry.drafts {
            drafts += counts;
            tokens += usage.completion_tokens;
        }
    }
    (drafts.drafted > 0).then(|| {
        format!(
            "lookup decoding: {} of {} drafted tokens accepted ({:.1} %), which saved {} of {} passes",
            thousands(drafts.accepted),
            thousands(drafts.drafted),
            100.0 * drafts.acceptance(),
            thousands(drafts.accepted),
            thousands(tokens),
        )
    })
}

/// Returns one line per configuration whose models have a cost, and one for the judge.
fn costs(report: &Report) -> Vec<String> {
    let line = |configuration: &ConfigurationReport| {
        let cost = configuration.usage.telemetry.cost?;
        let units = thousands(configuration.usage.units);
        Some(format!("{}: models cost {cost:.4} US dollars for {units} items", configuration.label))
    };
    report.configurations.iter().filter_map(line).chain(report.judge.iter().map(judged)).collect()
}

/// Describes the judge and its verdicts.
fn judged(judge: &JudgeReport) -> String {
    let mut line = format!(
        "judged by {}: {} of {} questions",
        judge.model.name,
        thousands(judge.verdicts),
        thousands(judge.questions)
    );
    if judge.unclear > 0 {
        line.push_str(&format!(", {} unclear replies", thousands(judge.unclear)));
    }
    if let Some(cost) = judge.cost {
        line.push_str(&format!(", {cost:.4} US dollars"));
    }
    line
}

/// Formats the models by role: `planner a, grounder b`.
fn models(report: &Report) -> String {
    let named = models_by_role(&report.manifest);
    let named: Vec<_> = named.iter().map(|(role, names)| format!("{role} {}", names.join(" or "))).collect();
    format!("models: {}", named.join(", "))
}

/// Describes duration and speed of the run; `None` if they were not measured.
fn wall_time(report: &Report) -> Option<String> {
    let (items, tokens) = report.throughput()?;
    let wall = duration(report.seconds?);
    Some(format!("wall time {wall}: {items:.1} items/s, {tokens:.0} tokens/s"))
}

/// For each configuration with faults: the failed components, the resulting bounds, and the most frequent
/// messages.
pub(super) fn faults(report: &Report) -> Vec<String> {
    report
        .configurations
        .iter()
        .filter(|configuration| configuration.ledger.faulted > 0)
        .flat_map(|configuration| {
            let kinds: Vec<_> =
                configuration.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            let bounds = configuration.main().map_or_else(dash, bounds);
            let faulted = thousands(configuration.ledger.faulted);
            let sum = format!(
                "{}: {faulted} faulted ({}); if all wrong or all right: {bounds}",
                configuration.label,
                kinds.join(", "),
            );
            let message = move |one: &FaultMessage| {
                format!("{} of {faulted} faulted: {}", thousands(one.count), one.message)
            };
            std::iter::once(sum).chain(configuration.fault_messages.iter().map(message))
        })
        .collect()
}

/// Returns the lines of [`lines`] that readers of a figure must see.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    let of_tools = tools(report).into_iter().filter_map(|(line, is_warning)| is_warning.then_some(line));
    stops(report).into_iter().chain(of_tools).collect()
}

/// Returns one line per configuration that a stop rule ended.
fn stops(report: &Report) -> Vec<String> {
    let configurations = &report.manifest.configurations;
    let line = |planned: &PlannedConfiguration| {
        Some(format!("{}: {}", planned.label, planned.stopped.as_ref()?.describe()))
    };
    configurations.iter().filter_map(line).collect()
}

/// Describes the backends for retrieval and ranking, if there are any, because figures depend on them. Each line
/// comes with whether it is a warning.
fn tools(report: &Report) -> Vec<(String, bool)> {
    let mut lines: Vec<(String, bool)> = Vec::new();
    for planned in &report.manifest.configurations {
        let configuration = &planned.configuration;
        let used: Vec<_> = configuration.tools.iter().filter(|tool| tool.tool != "maths").collect();
        let named: Vec<_> = used.iter().map(|tool| format!("{}={}", tool.tool, tool.backend)).collect();
        let warned = used.iter().filter(|tool| tool.is_made_of_items()).map(|tool| {
            format!(
                "{}: {}={} was built from a benchmark's own items and may contain their answers. \
                 These figures only show that the pipeline works; they are not results.",
                configuration.benchmark, tool.tool, tool.backend
            )
        });
        let named = (!named.is_empty()).then(|| format!("{}: {}", configuration.benchmark, named.join(", ")));
        for line in named.map(|line| (line, false)).into_iter().chain(warned.map(|line| (line, true))) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// Describes the interface of models on servers, and the template of conversations that are not in Lumos's layout.
fn formats(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let interfaces = interfaces(report);
    if !interfaces.is_empty() {
        let named: Vec<_> =
            interfaces.iter().map(|(role, interface)| format!("{role} {interface}")).collect();
        lines.push(format!("interface: {}", named.join(", ")));
    }
    let formats: BTreeSet<String> = report
        .manifest
        .configurations
        .iter()
        .map(|planned| &planned.configuration.format)
        .filter(|format| !format.is_default())
        .map(|format| match format.exemplars {
            Some(number) => format!("{}, {number} worked examples per prompt", format.template),
            None => format.template.to_string(),
        })
        .collect();
    lines.extend(formats.into_iter().map(|format| format!("prompt template: {format}")));
    lines
}

/// Returns the interface of each role's models on servers: `chat` or `completions`.
pub(super) fn interfaces(report: &Report) -> BTreeMap<Role, &'static str> {
    let mut interfaces = BTreeMap::new();
    for planned in &report.manifest.configurations {
        for (role, model) in &planned.configuration.models {
            // The tool's and the judge's models always take messages.
            if planned.configuration.is_chat(*role) {
                interfaces.insert(*role, "chat");
            } else if model.name.starts_with("openai:") && !matches!(role, Role::Qa | Role::Judge) {
                interfaces.insert(*role, "completions");
            }
        }
    }
    interfaces
}

/// Describes how many requests model servers received at the same time, one line per server.
fn servers(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    for servers in report.computing.iter().map(|one| &one.servers) {
        ServerUse::merge(&mut all, servers);
    }
    for servers in report.workers.iter().map(|one| &one.servers) {
        ServerUse::merge(&mut all, servers);
    }
    let line = |one: &ServerUse| {
        if one.least == one.most {
            return format!("server {}: {} requests at once", one.server, thousands(one.most));
        }
        let guide = if one.has_load { "by its reported load and responses" } else { "by its responses" };
        format!(
            "server {}: {} to {} requests at once within {} to {}, {guide}; {} decreases, {} rejected requests",
            one.server,
            thousands(one.lowest),
            thousands(one.highest),
            thousands(one.least),
            thousands(one.most),
            thousands(one.decreases),
            thousands(one.rejections),
        )
    };
    all.iter().map(line).collect()
}

/// Describes where the models were computed and the cost of swapping them, one line per setup of sessions or
/// workers.
fn computing(report: &Report) -> Vec<String> {
    let roles: BTreeSet<Role> = report
        .manifest
        .configurations
        .iter()
        .flat_map(|planned| &planned.configuration.models)
        // Only models of engines have a data type. Models on a server are computed elsewhere.
        .filter(|(_, model)| model.dtype.is_some())
        .map(|(role, _)| *role)
        .collect();
    let line = |one: &Computing| {
        let devices: BTreeSet<Device> = roles.iter().map(|role| one.device.of(*role)).collect();
        let mut line = match devices.first() {
            Some(device) if devices.len() == 1 => format!("models computed on {device}"),
            _ => {
                let by_role: Vec<_> =
                    roles.iter().map(|role| format!("{role} on {}", one.device.of(*role))).collect();
                format!("models computed: {}", by_role.join(", "))
            }
        };
        if one.in_phases {
            line.push_str(&format!(
                "; loaded in turns, {} episodes at once: {} loads in {:.1} s",
                thousands(one.concurrency),
                thousands(one.loads),
                one.load_seconds
            ));
            if one.ended < one.sessions {
                let lost = one.sessions - one.ended;
                line.push_str(&format!(", plus unknown loads of {} interrupted sessions", thousands(lost)));
            }
        }
        line
    };
    // Without roles, all models are computed on servers.
    let here = report.computing.iter().filter(|_| !roles.is_empty());
    here.map(line).chain(super::workers::lines(&report.workers)).collect()
}
