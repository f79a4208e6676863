//! A comparison as a page: values of the template `compare.html.jinja`. [`crate::viewer`] adds the list of items.

use std::fmt::Write as _;
use std::io;

use lumos_benchmarks::Unit;
use minijinja::{Value, context};

use super::rows::{COLUMNS, FIGURES, figures, heading, items, lists, notes, settings};
use crate::compare::model::{Comparison, FlippedItem, PairComparison, SideUsage};
use crate::display::{shortened, thousands};
use crate::report::svg::{LEFT, RIGHT, ROW, dot, grid_line, interval_bar, tick_text};
use crate::viewer::{CHANGED_ITEMS, PageMode, escaped, render_page};

/// Maximum length of the texts of a changed item, in characters.
const TEXT: usize = 200;

const USAGE: [&str; 6] = ["pair", "side", "prompt tokens", "reply tokens", "time", "cost"];
const SECTIONS: [(&str, &str); 6] = [
    ("differences", "Differences"),
    ("changes", "Changed items"),
    ("items", "Items"),
    ("usage", "Tokens, time and cost"),
    ("settings", "Settings that differ"),
    ("provenance", "Runs"),
];

/// Renders the page of a comparison. `index` is the packed list of items.
///
/// # Errors
/// If the template is invalid.
pub(crate) fn page(comparison: &Comparison, index: Option<&str>, mode: PageMode) -> io::Result<String> {
    render_page("compare.html.jinja", contents(comparison), index, mode)
}

fn contents(comparison: &Comparison) -> Value {
    let mut runs = vec![run("A", &comparison.a)];
    for pair in &comparison.comparisons {
        let row = run("B", &pair.b);
        if !runs.contains(&row) {
            runs.push(row);
        }
    }
    let names: Vec<&str> = runs.iter().skip(1).map(|row| row[1].as_str()).collect();
    let name = match comparison.comparisons.first() {
        // Configurations of one run.
        Some(pair) if pair.b.identity == comparison.a.identity && pair.b.folder == comparison.a.folder => {
            format!("{}: {} compared with {}", comparison.a.label, pair.pair.1, pair.pair.0)
        }
        _ => format!("{} compared with {}", names.join(", "), comparison.a.label),
    };
    let chart = chart(&comparison.comparisons);
    context! {
        name,
        scoring => comparison.scoring.to_string(),
        columns => COLUMNS,
        sections => SECTIONS,
        warnings => &comparison.warnings,
        chart => chart.map(Value::from_safe_string),
        figures_header => FIGURES,
        pairs => comparison.comparisons.iter().map(pair).collect::<Value>(),
        usage_header => USAGE,
        usage => comparison.comparisons.iter().flat_map(usage).collect::<Vec<_>>(),
        runs,
    }
}

fn run(side: &str, run: &crate::compare::RunReference) -> Vec<String> {
    let identity = run.identity.short().to_owned();
    vec![side.to_owned(), run.label.clone(), identity, run.folder.display().to_string()]
}

fn pair(pair: &PairComparison) -> Value {
    let flips = pair.metrics.iter().filter_map(|metric| {
        let flips = metric.flips?;
        let row = |name: &str, right, wrong| vec![name.to_owned(), thousands(right), thousands(wrong)];
        let rows =
            [row("A right", flips.both_right, flips.only_a), row("A wrong", flips.only_b, flips.both_wrong)];
        Some(context! { caption => format!("{}: items by result", metric.metric), rows })
    });
    // The first notes are these tables as text.
    let notes: Vec<String> =
        notes(pair).into_iter().skip(pair.metrics.iter().filter(|one| one.flips.is_some()).count()).collect();
    let lists = lists(pair).map(|(heading, items)| {
        let rows: Vec<Value> = items.iter().take(CHANGED_ITEMS).filter_map(item).collect();
        let more = items.len() - rows.len();
        context! { heading, more => (more > 0).then(|| thousands(more as u64)), rows }
    });
    context! {
        heading => heading(pair),
        items => items(pair),
        figures => figures(pair),
        flips => flips.collect::<Value>(),
        notes,
        settings => settings(pair),
        lists,
        run => pair.sides.1,
    }
}

/// Returns the row of a changed item whose texts were read.
fn item(flipped: &FlippedItem) -> Option<Value> {
    let texts = flipped.texts.as_ref()?;
    let said = |prediction: &Option<String>, cause: &str| match prediction {
        Some(text) => format!("{}\n{cause}", shortened(text.trim(), TEXT)),
        None => cause.to_owned(),
    };
    Some(context! {
        item => flipped.item,
        task => shortened(&texts.task, TEXT),
        gold => shortened(&texts.gold, TEXT),
        a => said(&texts.prediction_a, flipped.cause_a),
        b => said(&texts.prediction_b, flipped.cause_b),
        unit_a => flipped.unit_a.as_str(),
        unit_b => flipped.unit_b.as_str(),
    })
}

fn usage(pair: &PairComparison) -> [Vec<String>; 2] {
    let row = |side: &str, name: &str, usage: &SideUsage| {
        let cost = usage.cost.map_or_else(|| "–".to_owned(), |cost| format!("{cost:.6} US dollars"));
        vec![
            if side == "A" { heading(pair) } else { String::new() },
            format!("{side}: {name}"),
            format!("{:.1}", usage.prompt_tokens),
            format!("{:.1}", usage.completion_tokens),
            format!("{:.2} s", usage.seconds),
            cost,
        ]
    };
    [row("A", &pair.pair.0, &pair.usage.0), row("B", &pair.pair.1, &pair.usage.1)]
}

/// Draws the difference of the first metric of every pair with its interval, in percentage points. `None` if there is
/// none in percent.
fn chart(pairs: &[PairComparison]) -> Option<String> {
    let shown: Vec<_> = pairs
        .iter()
        .filter_map(|pair| Some((pair, pair.metrics.first().filter(|metric| metric.unit == Unit::Percent)?)))
        .collect();
    let ends = shown.iter().flat_map(|(_, metric)| [metric.interval.0, metric.interval.1, metric.difference]);
    let largest = ends.filter(|end| end.is_finite()).fold(0.0_f64, |largest, end| largest.max(end.abs()));
    // Half of the axis has a whole number of points.
    let widest = [0.02, 0.04, 0.1, 0.2, 0.4].into_iter().find(|end| largest <= *end).unwrap_or(1.0);
    let at =
        |value: f64| f64::midpoint(LEFT, RIGHT) + (RIGHT - LEFT) / 2.0 * (value / widest).clamp(-1.0, 1.0);
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let bottom = 12.0 + ROW * shown.len() as f64;
    let mut svg = format!(
        r#"<svg viewBox="0 0 960 {}" role="img" aria-label="Differences with their 95 % intervals">"#,
        bottom + 24.0
    );
    for tick in [-1.0, -0.5, 0.0, 0.5, 1.0] {
        let x = at(tick * widest);
        grid_line(&mut svg, x, bottom);
        let sign = match tick {
            tick if tick < 0.0 => "−",
            tick if tick > 0.0 => "+",
            _ => "",
        };
        tick_text(&mut svg, x, bottom, &format!("{sign}{:.0}", (tick * widest * 100.0).abs()));
    }
    let mut y = 12.0 + ROW / 2.0;
    for (pair, metric) in &shown {
        let name = heading(pair);
        let _ = write!(
            svg,
            r#"<text class="label" x="0" y="{:.1}"><title>{}</title>{}</text>"#,
            y + 4.0,
            escaped(&name),
            escaped(&shortened(&name, 42))
        );
        interval_bar(&mut svg, y, at(metric.interval.0), at(metric.interval.1));
        dot(&mut svg, at(metric.difference), y);
        y += ROW;
    }
    svg.push_str("</svg>");
    (!shown.is_empty()).then_some(svg)
}
