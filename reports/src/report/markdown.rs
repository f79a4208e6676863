//! Markdown format.

use std::io::{self, Write};

use super::model::Report;
use super::render::DocumentFormat;
use super::rows::{
    self, ATTRIBUTIONS, COMPARED, GROUPS, INTERVALS, LEDGERS, SPLITS, USAGES, attributions, faults, figures,
    groups, ledgers, lines, splits, usages,
};

/// Escapes a text for Markdown.
pub(crate) fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '#' | '~' | '&' | '!' => {
                plain.push('\\');
                plain.push(character);
            }
            character if character.is_control() => plain.push(' '),
            character => plain.push(character),
        }
    }
    plain
}

/// Writes a table whose columns from `numbers` on are right-aligned.
pub(crate) fn table(
    out: &mut dyn Write,
    header: &[&str],
    numbers: usize,
    rows: &[Vec<String>],
) -> io::Result<()> {
    writeln!(out, "| {} |", header.join(" | "))?;
    let marks: Vec<_> =
        (0..header.len()).map(|column| if column < numbers { "---" } else { "---:" }).collect();
    writeln!(out, "| {} |", marks.join(" | "))?;
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| escaped(cell)).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    writeln!(out)
}

pub(super) const FORMAT: DocumentFormat = DocumentFormat { name: "markdown", write: render };

/// Writes a report as Markdown with tables.
fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let manifest = &report.manifest;
    writeln!(out, "# {}\n", escaped(&manifest.spec.name))?;
    writeln!(out, "Run `{}`, planned {}.", manifest.identity.short(), manifest.created)?;
    if let Some(matrix) = &report.matrix {
        writeln!(out, "\n## Models and benchmarks\n")?;
        let (header, rows) = rows::matrix(matrix);
        let header: Vec<String> = header.iter().map(|name| escaped(name)).collect();
        table(out, &header.iter().map(String::as_str).collect::<Vec<_>>(), 1, &rows)?;
        for note in rows::matrix_notes(matrix) {
            writeln!(out, "- {}", escaped(&note))?;
        }
    }
    writeln!(out, "\n## Figures\n")?;
    let header =
        ["configuration", "scoring", "metric", "value", "95 % interval", "items", "published", "difference"];
    table(out, &header, 3, &figures(report))?;
    writeln!(out, "{INTERVALS} {COMPARED}\n")?;
    writeln!(out, "## Ledger\n")?;
    table(out, &LEDGERS, 1, &ledgers(report))?;
    table(out, &SPLITS, 3, &splits(report))?;
    for configuration in &report.configurations {
        if let Err(error) = configuration.ledger.check() {
            writeln!(out, "**The ledger of {} does not balance:** {error}\n", escaped(&configuration.label))?;
        }
    }
    for line in faults(report).iter().chain(&lines(report)) {
        writeln!(out, "- {}\n", escaped(line))?;
    }
    writeln!(out, "## Results of units\n")?;
    table(out, &ATTRIBUTIONS, 2, &attributions(report))?;
    let rows = groups(report);
    if !rows.is_empty() {
        writeln!(out, "## Groups\n")?;
        table(out, &GROUPS, 3, &rows)?;
    }
    writeln!(out, "## Tokens and time per item\n")?;
    table(out, &USAGES, 1, &usages(report))?;
    writeln!(out, "## First incorrect items\n")?;
    for configuration in &report.configurations {
        for example in &configuration.examples {
            writeln!(
                out,
                "- {}, item {}{}: {}. Predicted {}, gold {}. {}",
                escaped(&configuration.label),
                example.item,
                example.name.as_ref().map(|name| format!(" ({})", escaped(name))).unwrap_or_default(),
                example.cause,
                example.prediction.as_deref().map_or_else(|| "nothing".to_owned(), escaped),
                escaped(&example.gold),
                escaped(example.detail.as_deref().unwrap_or_default()),
            )?;
        }
    }
    Ok(())
}
