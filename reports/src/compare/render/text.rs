//! A comparison for people who read it from top to bottom: tables for a terminal, and Markdown.

use std::io::{self, Write};

use lumos_tasks::shell::quoted;

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
        for note in notes(pair) {
            writeln!(out, "- {}", escaped(&note))?;
        }
        let settings = settings(pair);
        if !settings.is_empty() {
            writeln!(out, "\n### Settings\n")?;
            table(out, &["setting", "A", "B"], 3, &settings)?;
        }
        for (heading, items) in short_lists(pair) {
            let shown = items.iter().filter_map(|flipped| Some((flipped, item(flipped)?)));
            for (at, (flipped, text)) in shown.enumerate() {
                if at == 0 {
                    writeln!(out, "\n### {}\n", escaped(&heading))?;
                }
                let folder = quoted(&pair.b.folder.display().to_string());
                let command = format!("lumos show {folder} {} --task {}", flipped.item_b, pair.benchmark);
                writeln!(out, "- {} (`{}`)", escaped(&text), command.replace('`', "'"))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
