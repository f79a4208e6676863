//! A comparison for people who read it from top to bottom: tables for a terminal, and Markdown.

use std::io::{self, Write};

use lumos_tasks::shell::quoted_path;

use super::rows::{COLUMNS, FIGURES, figures, heading, item, items, notes, settings, short_lists};
use crate::compare::model::Comparison;
use crate::report::markdown::{escaped, table};
use crate::report::terminal::{Rows, Terminal};

/// Writes tables for a terminal: every pair with its figures, differing settings and changed items.
pub(super) fn terminal(comparison: &Comparison, width: u16, out: &mut dyn Write) -> io::Result<()> {
    let terminal = Terminal { width };
    for pair in &comparison.comparisons {
        terminal.text(out, &heading(pair))?;
        terminal.text(out, &items(pair))?;
        writeln!(out)?;
        let mut rows = Rows::new(FIGURES.to_vec(), 1, figures(pair));
        rows.spare = &["detects"];
        terminal.table(out, rows)?;
        for note in notes(pair) {
            terminal.text(out, &note)?;
        }
        let settings = settings(pair);
        if !settings.is_empty() {
            writeln!(out)?;
            terminal.table(out, Rows::new(vec!["setting", "A", "B"], 3, settings))?;
        }
        for (heading, items) in short_lists(pair) {
            let shown: Vec<String> = items.iter().filter_map(item).collect();
            if !shown.is_empty() {
                terminal.text(out, &heading)?;
                for line in shown {
                    terminal.text(out, &format!("- {line}"))?;
                }
            }
        }
        writeln!(out)?;
    }
    terminal.text(out, &format!("B minus A, {} scoring. {COLUMNS}", comparison.scoring))?;
    for warning in &comparison.warnings {
        terminal.text(out, &format!("warning: {warning}"))?;
    }
    Ok(())
}

/// Writes Markdown with the same contents, and the commands that show the changed items.
pub(super) fn markdown(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# Comparison\n")?;
    writeln!(out, "B minus A, {} scoring. {COLUMNS}\n", comparison.scoring)?;
    for warning in &comparison.warnings {
        writeln!(out, "- **Warning:** {}\n", escaped(warning))?;
    }
    for pair in &comparison.comparisons {
        writeln!(out, "## {}\n", escaped(&heading(pair)))?;
        writeln!(out, "{}.\n", escaped(&items(pair)))?;
        table(out, &FIGURES, 1, &figures(pair))?;
        let notes: Vec<String> = notes(pair).iter().map(|note| escaped(note)).collect();
        list(out, &notes)?;
        let settings = settings(pair);
        if !settings.is_empty() {
            writeln!(out, "### Settings\n")?;
            table(out, &["setting", "A", "B"], 3, &settings)?;
        }
        for (heading, items) in short_lists(pair) {
            let shown = items.iter().filter_map(|flipped| {
                let text = item(flipped)?;
                let folder = quoted_path(&pair.b.folder);
                let command = format!("lumos show {folder} {} --task {}", flipped.argument_b, pair.benchmark);
                Some(format!("{} (`{}`)", escaped(&text), command.replace('`', "'")))
            });
            let shown: Vec<String> = shown.collect();
            if !shown.is_empty() {
                writeln!(out, "### {}\n", escaped(&heading))?;
                list(out, &shown)?;
            }
        }
    }
    Ok(())
}

/// Writes a Markdown list, and a blank line as after a table. Writes nothing without entries.
fn list(out: &mut dyn Write, entries: &[String]) -> io::Result<()> {
    for entry in entries {
        writeln!(out, "- {entry}")?;
    }
    if entries.is_empty() { Ok(()) } else { writeln!(out) }
}
