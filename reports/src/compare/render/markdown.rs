//! A comparison in Markdown.

use std::io::{self, Write};

use super::rows::{COLUMNS, FIGURES, figures, heading, item, items, notes, settings, short_lists};
use crate::compare::model::Comparison;
use crate::report::markdown::{escaped, table};

/// Writes every pair with its figures, differing settings and changed items.
pub(super) fn render(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
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
                let folder = pair.b.folder.display();
                let command = format!("lumos show {folder} {} --task {}", flipped.item, pair.benchmark);
                writeln!(out, "- {} (`{}`)", escaped(&text), command.replace('`', "'"))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
