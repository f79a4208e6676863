//! Tables of a comparison for a terminal.

use std::io::{self, Write};

use super::rows::{COLUMNS, FIGURES, figures, heading, item, items, notes, settings, short_lists};
use crate::compare::model::Comparison;
use crate::report::terminal::{Rows, Terminal};

/// Writes every pair with its figures, differing settings and changed items.
pub(super) fn render(comparison: &Comparison, width: u16, out: &mut dyn Write) -> io::Result<()> {
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
