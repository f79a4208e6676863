//! Every format, against a run with every kind of ending.

use lumos_tasks::{Configuration, ToolBackend};
use proptest::prelude::*;

use super::html::escaped;
use super::*;
use crate::samples::{configuration, item, manifest_of, state};
use crate::walk::{UnitState, unit_of};

/// The report of two configurations over ten items; of the second only the first item is recorded.
fn sample() -> Report {
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    for (position, planned) in manifest.configurations.iter().enumerate() {
        for item in items.iter().take(if position == 0 { 10 } else { 1 }) {
            let unit = unit_of(planned, item);
            builder.add(position, item, &unit, &state(item.index, &unit));
        }
    }
    builder.finish()
}

#[test]
fn what_looked_things_up_is_named() {
    let tool = |tool: &str, backend: &str| ToolBackend {
        tool: tool.to_owned(),
        backend: backend.to_owned(),
        version: 1,
    };
    let with = |backend: &str| {
        let tools = vec![tool("maths", "native"), tool("rank", "bm25"), tool("wiki", backend)];
        let manifest = manifest_of(&[Configuration { tools, ..configuration(0) }], &[item(0)]);
        ReportBuilder::new(&manifest, &[]).unwrap().finish()
    };
    for format in [Format::Terminal, Format::Markdown, Format::Html] {
        let plain = rendered(format, &with("corpus:pages.jsonl#0123"));
        assert!(
            plain.contains("rank=bm25, wiki=corpus:pages.jsonl") && !plain.contains("own items"),
            "{plain}"
        );
        let warned = rendered(format, &with("corpus:pages.jsonl#0123+items"));
        assert!(warned.contains("own items and may hold what answers them"), "{warned}");
        assert!(!rendered(format, &sample()).contains("bm25"));
    }
}

#[test]
fn what_takes_a_browser_has_figures_only_where_there_was_one() {
    let with = |backend: &str| {
        let web = ToolBackend { tool: "web".to_owned(), backend: backend.to_owned(), version: 1 };
        let benchmark = "mind2web".to_owned();
        let manifest =
            manifest_of(&[Configuration { benchmark, tools: vec![web], ..configuration(0) }], &[item(0)]);
        ReportBuilder::new(&manifest, &[]).unwrap().finish()
    };
    let (read, shown) = (with("native"), with("chromedriver"));
    let names = |report: &Report| -> Vec<String> {
        let metrics = &report.configurations[0].scores[0].metrics;
        metrics.iter().map(|metric| metric.metric.clone()).collect()
    };
    let takes_a_browser = ["executable", "reachable"].map(str::to_owned);
    let with_browser = names(&shown);
    assert_eq!(with_browser[1..3], takes_a_browser);
    let others: Vec<_> = with_browser.into_iter().filter(|name| !takes_a_browser.contains(name)).collect();
    assert_eq!(names(&read), others);
    let splits = |report: &Report| report.configurations[0].ledger.splits.len();
    assert!(splits(&shown) > splits(&read));
    assert!(rendered(Format::Terminal, &shown).contains("executable"));
    assert!(!rendered(Format::Terminal, &read).contains("executable"));
}

fn rendered(format: Format, report: &Report) -> String {
    let mut out = Vec::new();
    format.renderer().render(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_sums_are_right() {
    let report = sample();
    let first = &report.configurations[0];
    assert_eq!(first.ledger.to_string(), "planned 10 = answered 7 + gave up 1 + faulted 1 + outstanding 1");
    first.ledger.check().unwrap();
    let full: Vec<_> = first.ledger.splits.iter().map(|split| (split.correct, split.wrong)).collect();
    assert_eq!(full, [(4, 3), (5, 2)], "paper compares texts, corrected compares values");
    assert_eq!(first.attribution.total(), 10);
    let causes: Vec<_> = first.attribution.counts().map(|(cause, count)| (cause.name(), count)).collect();
    assert_eq!(
        causes,
        [
            ("correct", 4),
            ("wrong answer", 2),
            ("grounder: unknown action", 1),
            ("limit", 1),
            ("faulted", 1),
            ("outstanding", 1),
        ]
    );
    let metric = first.main().unwrap();
    assert_eq!(metric.estimate.unwrap().value, 0.5);
    assert_eq!(metric.bounds, Some((4.0 / 9.0, 5.0 / 9.0)));
    assert_eq!(metric.groups.len(), 2);
    let published = &metric.published[0];
    assert!(
        (published.points.unwrap() + 13.6).abs() < 1e-9 && published.inside == Some(true),
        "{published:?}"
    );
    assert_eq!(first.usage.telemetry.seconds_median, Some(1.0));
    assert_eq!((report.total.planned, report.total.outstanding), (20, 10));
    assert!(report.configurations[1].main().unwrap().bounds.is_none());
}

#[test]
fn the_table_reads_well_at_a_hundred_columns() {
    let text = rendered(Format::Terminal, &sample());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn markdown() {
    insta::assert_snapshot!(rendered(Format::Markdown, &sample()));
}

#[test]
fn json_in_the_layout_of_lm_eval() {
    let text = rendered(Format::Json, &sample());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in ["results", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "task_hashes"]
    {
        let keys: Vec<_> = value[field].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["svamp_iterative_paper_seed0", "svamp_iterative_paper_seed1"], "{field}");
    }
    let results = &value["results"]["svamp_iterative_paper_seed0"];
    assert_eq!(results["exact_match,none"], 0.5);
    assert_eq!(results["exact_match,corrected"], 0.625);
    insta::assert_snapshot!(text);
}

#[test]
fn one_configuration_of_a_benchmark_has_its_plain_name() {
    let manifest = manifest_of(&[configuration(0)], &[item(0)]);
    let report = ReportBuilder::new(&manifest, &[]).unwrap().finish();
    let value: serde_json::Value = serde_json::from_str(&rendered(Format::Json, &report)).unwrap();
    assert_eq!(value["results"].as_object().unwrap().keys().collect::<Vec<_>>(), ["svamp"]);
    assert_eq!(value["n-samples"]["svamp"]["effective"], 1);
}

#[test]
fn csv() {
    insta::assert_snapshot!(rendered(Format::Csv, &sample()));
}

#[test]
fn html() {
    let text = rendered(Format::Html, &sample());
    assert!(!text.contains("<script"), "model text stays text");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for outside in ["http://", "https://", "src=", "url(", "@import", "<link", " on"] {
        let within =
            text.lines().find(|line| line.contains(outside) && line.contains('<') && outside != " on");
        assert!(within.is_none(), "{outside}: {within:?}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn formats_are_found_by_name() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert_eq!("md".parse(), Ok(Format::Markdown));
    assert!("xml".parse::<Format>().unwrap_err().contains("known are table"));
}

#[test]
fn nothing_recorded_is_a_report_too() {
    let manifest = manifest_of(&[configuration(0)], &[item(0), item(1)]);
    let report = ReportBuilder::new(&manifest, &[]).unwrap().finish();
    assert_eq!(report.total.outstanding, 2);
    for format in Format::ALL {
        assert!(!rendered(format, &report).contains("NaN"), "{}", format.name());
    }
}

proptest! {
    #[test]
    fn escaped_text_has_no_markup(text in any::<String>()) {
        let plain = escaped(&text);
        prop_assert!(!plain.contains(['<', '>', '"', '\'']));
        prop_assert!(!plain.chars().any(|character| character.is_control() && character != '\n' && character != '\t'));
    }

    #[test]
    fn the_order_of_units_changes_no_figure(order in Just((0..10u64).collect::<Vec<_>>()).prop_shuffle()) {
        let items: Vec<_> = (0..10).map(item).collect();
        let manifest = manifest_of(&[configuration(0)], &items);
        let add = |order: &[u64]| {
            let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
            for &index in order {
                let item = item(index);
                let unit = unit_of(&manifest.configurations[0], &item);
                let state: UnitState = state(index, &unit);
                builder.add(0, &item, &unit, &state);
            }
            let mut report = builder.finish();
            report.configurations[0].examples.clear();
            report
        };
        let in_order: Vec<u64> = (0..10).collect();
        prop_assert_eq!(add(&order), add(&in_order));
    }
}
