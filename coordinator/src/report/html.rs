//! HTML format: one self-contained page without network access and scripts.
//!
//! The page is the template `report.html.jinja`. This module passes it formatted texts, rows and charts.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, context};

use crate::display::thousands;

use super::model::{Example, Report};
use super::numbers::{bounds, dash, distances, figure, interval, items, published};
use super::rows::{
    COMPARED, INTERVALS, SPLITS, attributions, faults, groups, ledgers, lines, metrics, splits, usages,
};
use super::svg;
use crate::results::Cause;

/// The style sheet of pages: colours, tables and text in light and dark.
pub const PAGE_STYLE: &str = include_str!("page.css");

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, _, value| {
        let text = value.to_string();
        let text = if value.is_safe() { text } else { escaped(&text) };
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_global("style", Value::from_safe_string(PAGE_STYLE.to_owned()));
    let added = environment.add_template("page", include_str!("report.html.jinja"));
    added.expect("the shipped template is well-formed");
    environment
});

/// Escapes a text for use in an element or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            // Browsers reject or replace other control characters, and bidirectional controls could disguise
            // a text.
            '\n' | '\t' => plain.push(character),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => plain.push('\u{fffd}'),
            character if character.is_control() => plain.push('\u{fffd}'),
            character => plain.push(character),
        }
    }
    plain
}

/// Writes a report as one self-contained page.
pub(super) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let page = TEMPLATES.get_template("page").and_then(|page| page.render(contents(report)));
    writeln!(out, "{}", page.map_err(io::Error::other)?)
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
    let versions: Vec<_> =
        manifest.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    context! {
        name => &manifest.spec.name,
        run => manifest.identity.short(),
        created => manifest.created.to_string(),
        total => report.total.to_string(),
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
        groups => groups(report),
        usages => usages(report),
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

fn models(report: &Report) -> Vec<Vec<String>> {
    let models = report.manifest.models.iter().map(|model| {
        let identity = &model.identity;
        let dtype = identity.dtype.clone().unwrap_or_else(dash);
        let roles = report.manifest.roles_of(identity);
        vec![identity.name.clone(), roles, identity.content.short().to_owned(), dtype]
    });
    models.collect()
}
