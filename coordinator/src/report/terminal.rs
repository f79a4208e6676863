//! Tables for a terminal.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent};

use crate::words::thousands;

use super::model::Report;
use super::numbers::{dash, distance, figure, interval, items};
use super::render::Render;
use super::rows::{
    SPLITS, attributions, computing, costs, faults, groups, label, ledgers, splits, tools, usages,
};

/// Tables of a given width.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// The columns of the terminal.
    pub width: u16,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { width: 100 }
    }
}

impl Terminal {
    /// Writes a table whose columns from `numbers` on are aligned to the right.
    fn table(
        self,
        out: &mut dyn Write,
        header: &[&str],
        numbers: usize,
        rows: Vec<Vec<String>>,
    ) -> io::Result<()> {
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_style(TableComponent::HeaderLines, '─')
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width)
            .set_header(header.to_vec());
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(numbers) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)
    }

    /// The figures, in few columns: a metric other than the main one is named beside its scoring.
    fn figures(self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = Vec::new();
        let (mut mains, mut systems) = (BTreeSet::new(), BTreeSet::new());
        for configuration in &report.configurations {
            let mut row = 0;
            for scores in &configuration.scores {
                for (index, metric) in scores.metrics.iter().enumerate() {
                    let named = if index == 0 {
                        mains.insert(metric.metric.as_str());
                        scores.scoring.to_string()
                    } else {
                        format!("{} {}", scores.scoring, metric.metric)
                    };
                    let compared = metric.published.first();
                    systems.extend(compared.map(|figure| format!("{} ({})", figure.system, figure.source)));
                    let estimate = metric.estimate.as_ref();
                    rows.push(vec![
                        label(configuration, row),
                        named,
                        figure(estimate),
                        interval(estimate).replace(" to ", "–"),
                        thousands(items(estimate)),
                        compared.map_or_else(dash, |figure| format!("{:.1}", figure.percent)),
                        compared.map_or_else(dash, distance),
                    ]);
                    row += 1;
                }
            }
        }
        let main = if mains.len() == 1 { mains.into_iter().next().unwrap_or("%") } else { "%" };
        let header = ["configuration", "scoring", main, "95 %", "items", "published", "points"];
        self.table(out, &header, 2, rows)?;
        if !systems.is_empty() {
            let systems: Vec<_> = systems.into_iter().collect();
            writeln!(out, " published: {}\n", systems.join(", "))?;
        }
        Ok(())
    }
}

impl Render for Terminal {
    fn render(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let manifest = &report.manifest;
        writeln!(out, " run {} ({})\n", manifest.spec.name, manifest.identity.short())?;
        self.figures(report, out)?;
        let header = ["configuration", "planned", "answered", "gave up", "faulted", "outstanding"];
        self.table(out, &header, 1, ledgers(report))?;
        self.table(out, &SPLITS, 3, splits(report))?;
        for configuration in &report.configurations {
            if let Err(error) = configuration.ledger.check() {
                writeln!(out, " THE LEDGER OF {} DOES NOT BALANCE: {error}\n", configuration.label)?;
            }
        }
        let rows = attributions(report);
        if !rows.is_empty() {
            self.table(out, &["configuration", "came to", "units", "%"], 2, rows)?;
        }
        let rows = groups(report);
        if !rows.is_empty() {
            let header = ["configuration", "scoring", "group", "%", "95 % interval", "items"];
            self.table(out, &header, 3, rows)?;
        }
        let header = ["configuration", "prompt tokens", "reply tokens", "median time", "90 % within"];
        self.table(out, &header, 1, usages(report))?;
        for line in
            faults(report).iter().chain(&costs(report)).chain(&tools(report)).chain(&computing(report))
        {
            writeln!(out, " {line}")?;
        }
        if report.duplicates > 0 {
            writeln!(out, " {} late outcomes were dropped as duplicates", thousands(report.duplicates))?;
        }
        Ok(())
    }
}
