//! SVG charts of the HTML page. Colours are CSS classes, defined by the page's style.

use std::fmt::Write;

use lumos_benchmarks::Unit;
use lumos_tasks::Stage;

use super::model::Report;
use super::numbers::{distance, figure, interval, percent};
use crate::display::{shortened, thousands};
use crate::results::Cause;
use crate::viewer::escaped;

const WIDTH: f64 = 960.0;
/// Left edge of the plot; labels are to the left of it.
pub(crate) const LEFT: f64 = 330.0;
/// Right edge of the plot.
pub(crate) const RIGHT: f64 = 940.0;
/// Height of a row.
pub(crate) const ROW: f64 = 28.0;
const LABEL: usize = 40;

/// Horizontal position of a fraction on the axis.
fn at(share: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
}

fn open(svg: &mut String, height: f64, title: &str) {
    let _ = write!(
        svg,
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}"><title>{title}</title>"#,
        title = escaped(title)
    );
}

fn axis(svg: &mut String, bottom: f64) {
    for tick in 0..=10u32 {
        let x = at(f64::from(tick) / 10.0);
        grid_line(svg, x, bottom);
        if tick % 2 == 0 {
            tick_text(svg, x, bottom, &format!("{} %", tick * 10));
        }
    }
}

/// Draws a line of the grid.
pub(crate) fn grid_line(svg: &mut String, x: f64, bottom: f64) {
    let _ = write!(svg, r#"<line class="grid" x1="{x:.1}" y1="6" x2="{x:.1}" y2="{bottom}"/>"#);
}

/// Writes a text below a line of the grid.
pub(crate) fn tick_text(svg: &mut String, x: f64, bottom: f64, text: &str) {
    let y = bottom + 16.0;
    let _ = write!(svg, r#"<text class="tick" x="{x:.1}" y="{y:.1}" text-anchor="middle">{text}</text>"#);
}

/// Draws an interval in a row.
pub(crate) fn interval_bar(svg: &mut String, y: f64, low: f64, high: f64) {
    let top = y - 5.0;
    let _ = write!(
        svg,
        r#"<path class="interval" d="M{low:.1} {y:.1}H{high:.1}M{low:.1} {top:.1}v10M{high:.1} {top:.1}v10"/>"#
    );
}

/// Draws a figure in a row.
pub(crate) fn dot(svg: &mut String, x: f64, y: f64) {
    let _ = write!(svg, r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="5"/>"#);
}

fn label(svg: &mut String, y: f64, text: &str, class: &str, x: f64, anchor: &str) {
    let _ = write!(
        svg,
        r#"<text class="{class}" x="{x}" y="{:.1}" text-anchor="{anchor}"><title>{}</title>{}</text>"#,
        y + 4.0,
        escaped(text),
        escaped(&shortened(text, LABEL))
    );
}

/// Draws the main metric of every configuration with its interval, and published figures.
pub(super) fn figures(report: &Report) -> String {
    let rows: usize = report.configurations.iter().map(|configuration| configuration.scores.len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let bottom = 12.0 + ROW * rows as f64;
    let mut svg = String::new();
    open(
        &mut svg,
        bottom + 24.0,
        "Figures with their 95 % intervals; published figures where they may be compared",
    );
    axis(&mut svg, bottom);
    let mut next = 12.0 + ROW / 2.0;
    for configuration in &report.configurations {
        for (row, scores) in configuration.scores.iter().enumerate() {
            let y = next;
            next += ROW;
            if row == 0 {
                label(&mut svg, y, &configuration.label, "label", 0.0, "start");
            }
            label(&mut svg, y, scores.scoring.name(), "tick", LEFT - 10.0, "end");
            // The axis is in percent.
            let Some(metric) = scores.metrics.first().filter(|metric| metric.unit == Unit::Percent) else {
                continue;
            };
            for compared in metric.published.iter().filter(|compared| compared.not_compared.is_empty()) {
                let x = at(compared.percent / 100.0);
                let _ = write!(
                    svg,
                    r#"<path class="published" d="M{x:.1} {:.1}l6 6l-6 6l-6 -6z"><title>{} {:.1} % ({})</title></path>"#,
                    y - 6.0,
                    escaped(&compared.system),
                    compared.percent,
                    escaped(&distance(compared)),
                );
            }
            if let Some(estimate) = &metric.estimate {
                let words = format!(
                    "{}, {}",
                    figure(Some(estimate), metric.unit),
                    interval(Some(estimate), metric.unit)
                );
                let _ = write!(svg, "<g><title>{}</title>", escaped(&words));
                if let Some((low, high)) = estimate.interval {
                    interval_bar(&mut svg, y, at(low), at(high));
                }
                dot(&mut svg, at(estimate.value), y);
                svg.push_str("</g>");
            }
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Returns the CSS class of a cause.
pub(crate) fn class(cause: Cause) -> &'static str {
    match cause {
        Cause::Correct => "correct",
        Cause::WrongAnswer => "wrong",
        Cause::Stage(Stage::Planner) => "planner",
        Cause::Stage(Stage::GrounderUnparsable) => "unparsable",
        Cause::Stage(Stage::GrounderUnknownAction) => "unknown",
        Cause::Stage(Stage::GrounderBadArgument) => "argument",
        Cause::Stage(Stage::Tool) => "tool",
        Cause::Stage(Stage::Limit) => "limit",
        Cause::Faulted => "faulted",
        Cause::Outstanding => "outstanding",
    }
}

/// Draws the numbers of units by cause of every configuration.
#[expect(clippy::cast_precision_loss, reason = "counts of items are far below 2^52")]
pub(super) fn attributions(report: &Report) -> String {
    let bottom = 12.0 + ROW * report.configurations.len() as f64;
    let mut svg = String::new();
    open(&mut svg, bottom + 24.0, "Results of the planned units");
    axis(&mut svg, bottom);
    for (row, configuration) in report.configurations.iter().enumerate() {
        let middle = 12.0 + ROW * (row as f64 + 0.5);
        label(&mut svg, middle, &configuration.label, "label", 0.0, "start");
        let total = configuration.attribution.values().sum::<u64>().max(1) as f64;
        let mut before = 0.0;
        for (&cause, &count) in &configuration.attribution {
            let (start, end) = (at(before / total), at((before + count as f64) / total));
            let width = (end - start - 1.0).max(0.5);
            let _ = write!(
                svg,
                r#"<rect class="{}" x="{start:.1}" y="{:.1}" width="{width:.1}" height="18"><title>{}: {} ({} %)</title></rect>"#,
                class(cause),
                middle - 9.0,
                cause.name(),
                thousands(count),
                percent(count as f64 / total)
            );
            let text = thousands(count);
            if width > 9.0 * text.len() as f64 + 6.0 {
                let _ = write!(
                    svg,
                    r#"<text class="count on-{}" x="{:.1}" y="{:.1}" text-anchor="middle">{text}</text>"#,
                    class(cause),
                    f64::midpoint(start, start + width),
                    middle + 4.5
                );
            }
            before += count as f64;
        }
    }
    svg.push_str("</svg>");
    svg
}
