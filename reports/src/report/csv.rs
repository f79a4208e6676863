//! CSV format: one line per figure.

use std::io::{self, Write};

use lumos_benchmarks::Estimate;
use lumos_tasks::Configuration;

use super::model::Report;
use super::render::DocumentFormat;

const HEADER: &str = "benchmark,formulation,behaviour,seed,models,scoring,metric,group,kind,unit,value,\
                      standard_error,low,high,interval_method,numerator,denominator,items,planned,answered,\
                      gave_up,faulted,outstanding,published_percent,published_system,published_points,\
                      published_inside,not_compared";

pub(super) const FORMAT: DocumentFormat = DocumentFormat { name: "csv", write: render };

/// Writes a report as CSV.
fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(HEADER.split(','))?;
    for (planned, configuration) in report.manifest.configurations.iter().zip(&report.configurations) {
        let cell = &planned.configuration;
        for scores in &configuration.scores {
            for metric in &scores.metrics {
                let overall = ("", metric.estimate.as_ref());
                let groups = metric.groups.iter().map(|group| (group.group.as_str(), Some(&group.estimate)));
                for (group, estimate) in std::iter::once(overall).chain(groups) {
                    let ledger = &configuration.ledger;
                    let counts =
                        |count: u64| if group.is_empty() { count.to_string() } else { String::new() };
                    let published = metric.published.first().filter(|_| group.is_empty());
                    writer.write_record([
                        cell.benchmark.clone(),
                        cell.formulation.to_string(),
                        cell.behaviour.to_string(),
                        cell.seed.to_string(),
                        models_of(cell),
                        scores.scoring.to_string(),
                        metric.metric.clone(),
                        group.to_owned(),
                        metric.kind.name().to_owned(),
                        metric.unit.name().to_owned(),
                        number(estimate.map(|estimate| estimate.value)),
                        number(estimate.and_then(|estimate| estimate.standard_error)),
                        number(interval(estimate).map(|(low, _)| low)),
                        number(interval(estimate).map(|(_, high)| high)),
                        estimate
                            .and_then(|estimate| estimate.method)
                            .map_or_else(String::new, |method| method.name().to_owned()),
                        number(estimate.map(|estimate| estimate.numerator)),
                        number(estimate.map(|estimate| estimate.denominator)),
                        estimate.map_or(0, |estimate| estimate.items).to_string(),
                        counts(ledger.planned),
                        counts(ledger.answered),
                        counts(ledger.gave_up),
                        counts(ledger.faulted),
                        counts(ledger.outstanding),
                        number(published.map(|published| published.percent)),
                        published.map(|published| published.system.clone()).unwrap_or_default(),
                        number(published.and_then(|published| published.points)),
                        published
                            .and_then(|published| published.inside)
                            .map_or_else(String::new, |inside| inside.to_string()),
                        published.map(|published| published.not_compared.join("; ")).unwrap_or_default(),
                    ])?;
                }
            }
        }
    }
    writer.flush()
}

/// Formats `planner=a grounder=b`.
fn models_of(cell: &Configuration) -> String {
    let named: Vec<_> = cell.models.iter().map(|(role, model)| format!("{role}={}", model.name)).collect();
    named.join(" ")
}

fn interval(estimate: Option<&Estimate>) -> Option<(f64, f64)> {
    estimate.and_then(|estimate| estimate.interval)
}

fn number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
