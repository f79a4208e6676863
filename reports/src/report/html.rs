//! HTML format: values of the template `report.html.jinja`, as formatted texts, rows and charts.
//!
//! [`crate::viewer`] renders the page, adds the list of items and writes the folder of the item viewer.

use std::collections::BTreeSet;
use std::io::{self, Write};

use minijinja::{Value, context};

use crate::display::thousands;
use crate::viewer::{PageMode, render_page};
use lumos_coordinator::manifest::{Manifest, settings};
use lumos_tasks::{ModelIdentity, Role};

use super::model::{ConfigurationReport, Example, Report};
use super::numbers::{bounds, dash, distance, distances, figure, interval, items, number, published};
use super::render::DocumentFormat;
use super::rows::{
    self, COMPARED, Headline, INTERVALS, SPLITS, attributions, faults, groups, headlines, ledgers, lines,
    metrics, splits, usages,
};
use super::svg;
use crate::results::{Cause, detectable_from};

/// Columns of [`usage_rows`].
const USAGES: [&str; 8] = [
    "configuration",
    "prompt tokens",
    "reply tokens",
    "median time",
    "90 % within",
    "tokens per correct item",
    "cost",
    "cost per correct item",
];

pub(super) const FORMAT: DocumentFormat = DocumentFormat { name: "html", write: render };

/// Writes a report as one page without a list of items.
fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", page(report, None, PageMode::Single)?)
}

/// Renders the page of a report. `index` is the packed list of items.
///
/// # Errors
/// If the template is invalid.
pub(crate) fn page(report: &Report, index: Option<&str>, mode: PageMode) -> io::Result<String> {
    render_page("report.html.jinja", contents(report), index, mode)
}

/// Returns the values that the template uses.
fn contents(report: &Report) -> Value {
    let manifest = &report.manifest;
    let causes: BTreeSet<Cause> =
        report.configurations.iter().flat_map(|one| one.attribution.keys().copied()).collect();
    let causes =
        causes.into_iter().map(|cause| context! { class => svg::class(cause), name => cause.name() });
    let unbalanced = report.configurations.iter().filter_map(|one| {
        let error = one.ledger.check().err()?;
        Some(context! { label => &one.label, error => error.to_string() })
    });
    let examples = report.configurations.iter().filter(|one| !one.examples.is_empty()).map(|one| {
        context! { label => &one.label, rows => one.examples.iter().map(example).collect::<Value>() }
    });
    let groups = groups(report);
    let mut sections = vec![("results", "Results"), ("causes", "Failure causes"), ("items", "Items")];
    sections.push(("usage", "Tokens, time and cost"));
    sections.extend((!groups.is_empty()).then_some(("groups", "Groups")));
    sections.extend([("settings", "Settings"), ("ledger", "Ledger"), ("provenance", "Provenance")]);
    let versions: Vec<_> =
        manifest.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    context! {
        name => &manifest.spec.name,
        run => manifest.identity.short(),
        created => manifest.created.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        total => report.total.to_string(),
        sections,
        unfinished => unfinished(report),
        matrix => report.matrix.as_ref().map(|matrix| {
            let (header, rows) = rows::matrix(matrix);
            context! { header, rows, notes => rows::matrix_notes(matrix) }
        }),
        heads => headlines(report).iter().filter_map(head).collect::<Value>(),
        failures => report.configurations.iter().enumerate().filter_map(failures).collect::<Value>(),
        figures_chart => Value::from_safe_string(svg::figures(report)),
        intervals => INTERVALS,
        compared => COMPARED,
        figures => figures(report),
        results_chart => Value::from_safe_string(svg::attributions(report)),
        causes => causes.collect::<Value>(),
        unbalanced => unbalanced.collect::<Value>(),
        faults => faults(report),
        lines => lines(report),
        ledgers => ledgers(report),
        splits_header => SPLITS,
        splits => splits(report),
        attributions => attributions(report),
        groups,
        usages_header => USAGES,
        usages => usage_rows(report),
        settings => settings(&manifest.spec, &manifest.spec),
        examples => examples.collect::<Value>(),
        data => data(report),
        models => models(report),
        versions => versions.join(", "),
        revision => &manifest.git_revision,
        cores => manifest.machine.cores,
        os => &manifest.machine.os,
        architecture => &manifest.machine.architecture,
    }
}

/// Describes what is missing from a run that is not complete.
fn unfinished(report: &Report) -> Option<String> {
    let total = &report.total;
    let next = match (report.in_progress, &report.queue) {
        (true, _) => "the run is in progress",
        (false, Some(_)) => "`lumos resume` with the same --queue continues the run",
        (false, None) => "`lumos resume` continues the run",
    };
    (!total.is_complete()).then(|| {
        let (outstanding, faulted) = (thousands(total.outstanding), thousands(total.faulted));
        format!("{outstanding} units are outstanding and {faulted} faulted: {next}.")
    })
}

/// Returns the main figure of a row.
fn head(headline: &Headline<'_>) -> Option<Value> {
    let configuration = headline.configuration;
    let (scores, metric) = (configuration.scores.first()?, configuration.main()?);
    let (estimate, compared) = (headline.estimate(metric), headline.published(metric));
    let published = compared.map(|one| format!("published {}: {}", published(one), distance(one)));
    Some(context! {
        label => &headline.label,
        metric => &metric.metric,
        scoring => scores.scoring.to_string(),
        value => figure(estimate, metric.unit),
        interval => interval(estimate, metric.unit),
        size => format!("{} of {} items", thousands(items(estimate)), thousands(configuration.ledger.planned)),
        detects => estimate.and_then(detectable_from).map(|value| number(value, metric.unit)),
        published,
    })
}

/// Returns the numbers of units that are not correct by cause and turn, with the filter that lists them.
fn failures((cell, configuration): (usize, &ConfigurationReport)) -> Option<Value> {
    let turns: BTreeSet<u32> = configuration.failed_turns.keys().map(|(_, turn)| *turn).collect();
    let failed = configuration.attribution.iter().filter(|(cause, _)| **cause != Cause::Correct);
    let rows: Vec<Value> = failed
        .map(|(&cause, &count)| {
            let filter = format!("cell={cell}&cause={}", cause.name());
            let of_turn = |turn: &u32| {
                let count = configuration.failed_turns.get(&(cause, *turn)).copied().map(thousands);
                context! { count, filter => format!("{filter}&turn={turn}") }
            };
            let all = context! { count => thousands(count), filter => &filter };
            let cells = turns.iter().map(of_turn).chain([all]).collect::<Value>();
            context! { cause => cause.name(), class => svg::class(cause), cells }
        })
        .collect();
    let turns: Vec<u32> = turns.iter().copied().collect();
    (!rows.is_empty()).then(|| context! { label => &configuration.label, turns, rows })
}

/// Returns usage per item and per correct item.
fn usage_rows(report: &Report) -> Vec<Vec<String>> {
    let mut rows = usages(report);
    for (row, configuration) in rows.iter_mut().zip(&report.configurations) {
        let usage = &configuration.usage;
        let correct = configuration.attribution.get(&Cause::Correct).copied().filter(|count| *count > 0);
        let tokens = usage.prompt_tokens + usage.completion_tokens;
        let cost = usage.telemetry.cost;
        #[expect(clippy::cast_precision_loss, reason = "a count of items")]
        let per_correct = cost.zip(correct).map(|(cost, correct)| cost / correct as f64);
        let dollars = |cost: Option<f64>| cost.map_or_else(dash, |cost| format!("{cost:.4} US dollars"));
        row.push(correct.map_or_else(dash, |correct| thousands(tokens.div_ceil(correct))));
        row.extend([dollars(cost), dollars(per_correct)]);
    }
    rows
}

fn figures(report: &Report) -> Vec<Vec<String>> {
    let figures = metrics(report).map(|(configuration, scores, metric)| {
        let estimate = metric.estimate.as_ref();
        let published: Vec<_> = metric.published.iter().map(published).collect();
        vec![
            configuration.label.clone(),
            scores.scoring.to_string(),
            metric.metric.clone(),
            figure(estimate, metric.unit),
            interval(estimate, metric.unit),
            thousands(items(estimate)),
            bounds(metric),
            if published.is_empty() { dash() } else { published.join("\n") },
            distances(metric),
        ]
    });
    figures.collect()
}

fn example(example: &Example) -> Value {
    let Example { item, name, unit, task, prediction, gold, cause, detail } = example;
    let cause = match detail {
        Some(detail) => format!("{cause}\n{detail}"),
        None => cause.clone(),
    };
    let name = name.as_ref().unwrap_or(unit);
    let prediction = prediction.as_deref().unwrap_or("–");
    context! { item, name, task, prediction, gold, cause }
}

fn data(report: &Report) -> Vec<Vec<String>> {
    let data = report.manifest.data.iter().map(|data| {
        vec![
            data.benchmark.clone(),
            data.source.clone(),
            data.sha256.short().to_owned(),
            thousands(data.records),
            thousands(data.selected),
            thousands(data.invalid),
        ]
    });
    data.collect()
}

/// Returns the roles of a model: `planner, grounder`.
fn roles_of(manifest: &Manifest, identity: &ModelIdentity) -> String {
    let models = manifest.configurations.iter().flat_map(|planned| &planned.configuration.models);
    let roles: BTreeSet<_> = models.filter(|(_, model)| *model == identity).map(|(role, _)| *role).collect();
    roles.into_iter().map(Role::name).collect::<Vec<_>>().join(", ")
}

fn models(report: &Report) -> Vec<Vec<String>> {
    let models = report.manifest.models.iter().map(|model| {
        let identity = &model.identity;
        let dtype = identity.dtype.clone().unwrap_or_else(dash);
        let roles = roles_of(&report.manifest, identity);
        vec![identity.name.clone(), roles, identity.content.short().to_owned(), dtype]
    });
    models.collect()
}
