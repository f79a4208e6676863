//! HTML format: one self-contained page without network access and scripts.

use std::io::{self, Write};

use crate::display::thousands;

use super::attribution::Cause;
use super::model::{ConfigurationReport, Example, Report};
use super::numbers::{bounds, dash, distances, figure, interval, items, published};
use super::render::Render;
use super::rows::{
    COMPARED, INTERVALS, SPLITS, attributions, faults, groups, ledgers, lines, splits, usages,
};
use super::svg;

/// Renders a report as one self-contained page.
#[derive(Debug, Clone, Copy)]
pub struct Html;

const STYLE: &str = include_str!("page.css");

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

/// Writes a table. The first column contains row names; the columns from `numbers` on contain numbers.
fn table(
    out: &mut dyn Write,
    caption: &str,
    header: &[&str],
    numbers: usize,
    rows: &[Vec<String>],
) -> io::Result<()> {
    let class = |column: usize| if column >= numbers { " class=\"number\"" } else { "" };
    writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table>",
        escaped(caption)
    )?;
    writeln!(out, "<caption>{}</caption>", escaped(caption))?;
    write!(out, "<thead><tr>")?;
    for (column, name) in header.iter().enumerate() {
        write!(out, "<th scope=\"col\"{}>{}</th>", class(column), escaped(name))?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for row in rows {
        write!(out, "<tr>")?;
        for (column, cell) in row.iter().enumerate() {
            let names_row = column == 0 && !cell.is_empty();
            let (open, close) = if names_row { ("<th scope=\"row\"", "</th>") } else { ("<td", "</td>") };
            write!(out, "{open}{}>{}{close}", class(column), escaped(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

impl Render for Html {
    fn render(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        head(report, out)?;
        section_figures(report, out)?;
        section_ledger(report, out)?;
        let rows = groups(report);
        if !rows.is_empty() {
            writeln!(out, "<h2>Groups</h2>")?;
            let header = ["configuration", "scoring", "group", "value", "95 % interval", "items"];
            table(out, "Figures by group", &header, 3, &rows)?;
        }
        writeln!(out, "<h2>Tokens and time</h2>")?;
        let header = ["configuration", "prompt tokens", "reply tokens", "median time", "90 % within"];
        table(out, "Per item; times depend on the machine", &header, 1, &usages(report))?;
        section_examples(report, out)?;
        section_origin(report, out)?;
        writeln!(out, "</main></body></html>")
    }
}

fn head(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let name = escaped(&report.manifest.spec.name);
    writeln!(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    writeln!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>{name} – lumos</title>\n<style>\n{STYLE}</style></head><body><main>")?;
    writeln!(out, "<h1>{name}</h1>")?;
    writeln!(
        out,
        "<p class=\"quiet\">Run <code>{}</code>, planned {}. {}.</p>",
        report.manifest.identity.short(),
        report.manifest.created,
        escaped(&report.total.to_string())
    )
}

fn section_figures(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>Figures</h2>")?;
    writeln!(out, "<div class=\"scroll\" tabindex=\"0\">{}</div>", svg::figures(report))?;
    writeln!(
        out,
        "<p class=\"quiet\">Dots with bars: our figures. Diamonds: published figures of the same formulation. {} {}</p>",
        escaped(INTERVALS),
        escaped(COMPARED)
    )?;
    let mut rows = Vec::new();
    for configuration in &report.configurations {
        for scores in &configuration.scores {
            for metric in &scores.metrics {
                let published: Vec<_> = metric.published.iter().map(published).collect();
                rows.push(vec![
                    configuration.label.clone(),
                    scores.scoring.to_string(),
                    metric.metric.clone(),
                    figure(metric.estimate.as_ref(), metric.unit),
                    interval(metric.estimate.as_ref(), metric.unit),
                    thousands(items(metric.estimate.as_ref())),
                    bounds(metric),
                    if published.is_empty() { dash() } else { published.join("\n") },
                    distances(metric),
                ]);
            }
        }
    }
    let header = [
        "configuration",
        "scoring",
        "metric",
        "value",
        "95 % interval",
        "items",
        "if faulted were wrong or right",
        "published",
        "difference",
    ];
    table(out, "Figures", &header, 3, &rows)
}

fn section_ledger(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>Results of units</h2>")?;
    writeln!(out, "<div class=\"scroll\" tabindex=\"0\">{}</div>", svg::attributions(report))?;
    writeln!(out, "<ul class=\"legend\">")?;
    let occurs = |cause: &Cause| report.configurations.iter().any(|one| one.attribution.of(*cause) > 0);
    for cause in Cause::all().filter(occurs) {
        writeln!(
            out,
            "<li><svg class=\"swatch\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"{}\" width=\"10\" \
             height=\"10\"/></svg>{}</li>",
            svg::class(cause),
            cause.name()
        )?;
    }
    writeln!(out, "</ul>")?;
    for configuration in &report.configurations {
        if let Err(error) = configuration.ledger.check() {
            writeln!(
                out,
                "<p class=\"alarm\"><strong>The ledger of {} does not balance:</strong> {}</p>",
                escaped(&configuration.label),
                escaped(&error.to_string())
            )?;
        }
    }
    for line in faults(report) {
        writeln!(out, "<p class=\"alarm\">{}</p>", escaped(&line))?;
    }
    for line in lines(report) {
        writeln!(out, "<p>{}</p>", escaped(&line))?;
    }
    let header = ["configuration", "planned", "answered", "gave up", "faulted", "outstanding"];
    table(out, "Ledger: planned = answered + gave up + faulted + outstanding", &header, 1, &ledgers(report))?;
    table(out, "Answered = correct + wrong", &SPLITS, 3, &splits(report))?;
    let header = ["configuration", "result", "units", "%"];
    table(out, "Attribution under the main scoring", &header, 2, &attributions(report))
}

fn section_examples(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>First incorrect items</h2>")?;
    for configuration in report.configurations.iter().filter(|one| !one.examples.is_empty()) {
        writeln!(out, "<details><summary>{}</summary>", escaped(&configuration.label))?;
        examples(configuration, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn examples(configuration: &ConfigurationReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>")?;
    for name in ["item", "task", "prediction", "gold", "result"] {
        write!(out, "<th scope=\"col\">{name}</th>")?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for Example { item, name, unit, task, prediction, gold, cause, detail } in &configuration.examples {
        let name = name.as_deref().unwrap_or(unit);
        let cause = match detail {
            Some(detail) => format!("{cause}\n{detail}"),
            None => cause.clone(),
        };
        write!(out, "<tr><th scope=\"row\">{item}<br><code>{}</code></th>", escaped(name))?;
        for text in [task, prediction.as_deref().unwrap_or("–"), gold, cause.as_str()] {
            write!(out, "<td class=\"text\">{}</td>", escaped(text))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn section_origin(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let manifest = &report.manifest;
    writeln!(out, "<h2>Data, models and versions</h2>")?;
    let data: Vec<_> = manifest
        .data
        .iter()
        .map(|data| {
            vec![
                data.benchmark.clone(),
                data.source.clone(),
                data.sha256.short().to_owned(),
                thousands(data.records),
                thousands(data.selected),
                thousands(data.invalid),
            ]
        })
        .collect();
    let header = ["benchmark", "source", "SHA-256", "records", "selected", "malformed"];
    table(out, "Data", &header, 3, &data)?;
    let models: Vec<_> = manifest
        .models
        .iter()
        .map(|model| {
            let identity = &model.identity;
            let dtype = identity.dtype.clone().unwrap_or_else(dash);
            let roles = manifest.roles_of(identity);
            vec![identity.name.clone(), roles, identity.content.short().to_owned(), dtype]
        })
        .collect();
    table(out, "Models", &["model", "role", "content", "type"], 4, &models)?;
    let versions: Vec<_> =
        manifest.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    writeln!(
        out,
        "<p class=\"quiet\">{}{}; {} cores, {} {}.</p>",
        escaped(&versions.join(", ")),
        manifest
            .git_revision
            .as_ref()
            .map(|revision| format!(" ({})", escaped(revision)))
            .unwrap_or_default(),
        manifest.machine.cores,
        escaped(&manifest.machine.os),
        escaped(&manifest.machine.architecture)
    )
}
