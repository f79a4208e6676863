//! Tests of every format with a run that contains every kind of ending.

use std::sync::Arc;

use lumos_benchmarks::{IntervalMethod, MetricDefinition, MetricKind};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::samples::{configuration, item, manifest_of, state};
use lumos_coordinator::spec::ItemChoice;
use lumos_coordinator::unit_of;
use lumos_tasks::outcome::{SqlEvidence, Value};
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Ending, Evidence, Fault, FaultKind, Item, Sampling, ToolBackend,
};
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::build::{ReportBuilder, is_split};
use super::model::PublishedComparison;
use super::*;
use crate::results::tests::add_named;
use crate::results::{Matrix, MatrixCell, MatrixColumn, MatrixRow};
use crate::viewer::escaped;

const TABLE: Format = Format::Terminal { width: 80, detail: ReportDetail::Full };
const SUMMARY: Format = Format::Terminal { width: 80, detail: ReportDetail::Summary };

/// Returns a report of two configurations over ten items. Only the first item of the second configuration is
/// recorded.
fn sample() -> Report {
    sampled(&[configuration(0), configuration(1)], |position| if position == 0 { 10 } else { 1 })
}

/// Returns a report over ten items, of which `recorded` are recorded for the configuration at a position.
fn sampled(configurations: &[Configuration], recorded: impl Fn(usize) -> usize) -> Report {
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(configurations, &items);
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    for (position, planned) in manifest.configurations.iter().enumerate() {
        for item in items.iter().take(recorded(position)) {
            let unit = unit_of(planned, item);
            builder.add(position, item, &unit, state(item.index, &unit).as_ref());
        }
    }
    let mut report = builder.finish();
    report.seconds = Some(12.5);
    report
}

fn tool(tool: &str, backend: &str) -> ToolBackend {
    ToolBackend { tool: tool.to_owned(), backend: backend.to_owned(), version: 1 }
}

/// Returns a report of a run over the published items of SVAMP with the published settings, modified by
/// `change`. All items are correct except the first `wrong` ones.
fn published(wrong: u64, change: impl FnOnce(&mut Manifest)) -> Report {
    let svamp = lumos_benchmarks::find("svamp").unwrap();
    let items: Vec<_> = (0..1000).map(item).collect();
    let configuration = Configuration { prompts: svamp.prompts_hash(), ..configuration(0) };
    let mut manifest = manifest_of(&[configuration], &items);
    manifest.spec.data = Some("data".into());
    manifest.data[0].sha256 = serde_json::from_value(svamp.downloads()[0].sha256.into()).unwrap();
    change(&mut manifest);
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    for item in &items {
        let unit = unit_of(&manifest.configurations[0], item);
        let Some(mut record) = state(0, &unit) else { panic!("the first is answered") };
        let Some(Evidence::Maths(evidence)) = &mut record.outcome.evidence else { panic!("a prediction") };
        let answer = if item.index < wrong { "wrong".to_owned() } else { item.target.text().to_owned() };
        evidence.prediction = Some(Value::Text(answer));
        builder.add(0, item, &unit, Some(&record));
    }
    builder.finish()
}

/// Returns the comparison of each scoring's main metric with its first published figure.
fn compared(report: &Report) -> Vec<&PublishedComparison> {
    report.configurations[0].scores.iter().map(|scores| &scores.metrics[0].published[0]).collect()
}

#[test]
fn published_figures_are_compared_over_their_items_and_settings() {
    let report = published(364, |_| {});
    let [paper, corrected] = compared(&report)[..] else { panic!("two scorings") };
    assert_eq!((paper.percent, paper.inside, paper.not_compared.as_slice()), (63.6, Some(true), &[][..]));
    assert!(paper.points.unwrap().abs() < 1e-9, "{paper:?}");
    assert_eq!((corrected.points, corrected.inside), (None, None));
    assert_eq!(corrected.not_compared, ["corrected scoring"]);
    assert_eq!(compared(&published(500, |_| {}))[0].inside, Some(false));
    assert!(rendered(TABLE, &report).contains("0.0, inside"));
    assert!(rendered(Format::HTML, &report).contains("class=\"published\""));
}

#[test]
fn other_items_and_settings_are_no_comparison_but_a_reason() {
    let change = |change: fn(&mut Configuration)| {
        let report = published(364, |manifest| {
            change(Arc::make_mut(&mut manifest.configurations[0].configuration));
        });
        let paper = compared(&report)[0].clone();
        assert_eq!((paper.points, paper.inside), (None, None), "{paper:?}");
        paper.not_compared.join("; ")
    };
    assert_eq!(change(|one| one.behaviour = Behaviour::Corrected), "corrected behaviour");
    let sampling = Sampling::Random { temperature: 0.7, top_p: None, top_k: None };
    assert_eq!(change(|one| one.max_rounds = 8), "at most 8 rounds instead of 2");
    assert_eq!(
        change(|one| one.generation.max_new_tokens = 64),
        "replies of at most 64 tokens instead of 512"
    );
    assert_eq!(change(|one| one.prompts = ContentHash::of_bytes(b"mine")), "different prompts");
    assert_eq!(
        change(|one| {
            one.tools = vec![tool("maths", "native"), tool("rank", "bm25"), tool("wiki", "live")];
        }),
        "rank=bm25 instead of rank=dpr"
    );
    let sampled = published(364, |manifest| {
        Arc::make_mut(&mut manifest.configurations[0].configuration).generation.sampling = sampling;
    });
    assert_eq!(compared(&sampled)[0].not_compared, ["sampling at temperature 0.7"]);
    let data = |change: fn(&mut Manifest)| compared(&published(364, change))[0].not_compared.join("; ");
    let file = "data with a different checksum instead of the published file";
    assert_eq!(data(|manifest| manifest.data[0].sha256 = ContentHash::of_bytes(b"mine")), file);
    assert_eq!(data(|manifest| manifest.data[0].invalid = 2), "2 malformed records skipped");
    let chosen = data(|manifest| {
        let chosen = ItemChoice::Chosen("1-1000".parse().unwrap());
        manifest.spec.items.insert("svamp".to_owned(), chosen);
    });
    assert_eq!(chosen, "not the first 1,000 items");
    // In every format, the number of items is the first reason.
    let few = sample();
    let paper = compared(&few)[0];
    assert_eq!((paper.points, paper.inside), (None, None), "{paper:?}");
    assert_eq!(paper.not_compared[0], "8 of 1,000 items");
    for format in Format::all() {
        let text = rendered(format, &few);
        assert!(text.replace("&#x27;", "'").contains("8 of 1,000"), "{}: {text}", format.name());
        assert!(
            !text.contains(", inside") && !text.contains("\"inside\": true"),
            "{}: {text}",
            format.name()
        );
    }
    assert!(!rendered(Format::HTML, &few).contains("class=\"published\""));
}

/// Returns a report of three items of InterCode SQL that took 4, 8 and 10 turns.
fn turns() -> Report {
    let configuration = Configuration { benchmark: "intercode_sql".to_owned(), ..configuration(0) };
    let items: Vec<_> = (0..3).map(item).collect();
    let manifest = manifest_of(&[configuration], &items);
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    for (item, turns) in items.iter().zip([4, 8, 10]) {
        let unit = unit_of(&manifest.configurations[0], item);
        let Some(mut record) = state(0, &unit) else { panic!("the first is answered") };
        record.outcome.evidence = Some(Evidence::Sql(SqlEvidence { turns, ..SqlEvidence::default() }));
        builder.add(0, item, &unit, Some(&record));
    }
    builder.finish()
}

#[test]
fn every_metric_has_its_unit_and_its_interval() {
    let report = turns();
    let metrics = &report.configurations[0].scores[0].metrics;
    let kinds: Vec<_> = metrics.iter().map(|one| (one.metric.as_str(), one.kind.name())).collect();
    assert_eq!(
        kinds[..3],
        [("success_rate", "proportion"), ("reward", "bounded_mean"), ("turns", "bounded_mean")]
    );
    let turns = metrics[2].estimate.unwrap();
    assert_eq!((turns.interval, turns.method), (Some((0.0, 10.0)), Some(IntervalMethod::StudentT)));
    assert_eq!(metrics[0].estimate.unwrap().method, Some(IntervalMethod::Wilson));
    let split = |metric: &str| report.configurations[0].ledger.splits.iter().any(|one| one.metric == metric);
    assert!(split("success_rate") && !split("turns"), "turns are neither right nor wrong");
    let points =
        MetricDefinition { kind: MetricKind::UnboundedMean, ..MetricDefinition::proportion("points", "") };
    assert!(!is_split(&points), "without bounds, no value is the full score");
    for format in [TABLE, Format::MARKDOWN, Format::HTML] {
        let text = rendered(format, &report);
        assert!(text.contains("7.33 turns") && !text.contains("733"), "{}: {text}", format.name());
    }
    let csv = rendered(Format::Document(csv::FORMAT), &report);
    assert!(csv.contains(",turns,,bounded_mean,turns,7.33"), "{csv}");
    assert!(csv.contains(",0,10,student_t,22,3,3,"), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&rendered(Format::JSON, &report)).unwrap();
    let shown = &json["lumos"]["configurations"]["intercode_sql"]["scores"][0]["metrics"][2];
    assert_eq!((&shown["kind"], &shown["unit"]), (&"bounded_mean".into(), &"turns".into()), "{shown}");
    assert_eq!(shown["estimate"]["method"], "student_t");
    let listed = &json["configs"]["intercode_sql"]["metric_list"][2];
    assert_eq!((&listed["metric"], &listed["unit"]), (&"turns".into(), &"turns".into()), "{listed}");
}

#[test]
fn the_first_failure_has_its_name_if_names_may_be_numbers() {
    assert_eq!(sample().first_failure(), Some(("svamp".to_owned(), "4".to_owned())));
    // The name of each item is the position of the next one.
    let name = |item: Item| Item { name: Some((item.index + 1).to_string()), ..item };
    let items: Vec<Item> = (0..10).map(|index| name(item(index))).collect();
    let own = Configuration { benchmark: "own".to_owned(), ..configuration(0) };
    let mut manifest = manifest_of(&[own], &items);
    add_named(&mut manifest, "own");
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    // The seventh is the first without the gold answer in both scorings.
    for item in &items[6..] {
        let unit = unit_of(&manifest.configurations[0], item);
        builder.add(0, item, &unit, state(item.index, &unit).as_ref());
    }
    assert_eq!(builder.finish().first_failure(), Some(("own".to_owned(), "7".to_owned())));
}

#[test]
fn the_page_describes_how_to_continue_an_incomplete_run() {
    let mut report = sample();
    let check = |report: &Report, next: &str| {
        let page = rendered(Format::HTML, report);
        assert!(page.contains(&format!("10 units are outstanding and 1 faulted: {next}.")), "{page}");
    };
    check(&report, "`lumos resume` continues the run");
    report.queue = Some("nats://head:4222".to_owned());
    check(&report, "`lumos resume` with the same --queue continues the run");
    report.in_progress = true;
    check(&report, "the run is in progress");
}

#[test]
fn time_and_models_are_in_every_report() {
    let report = sample();
    for format in [TABLE, Format::MARKDOWN, Format::HTML] {
        let text = rendered(format, &report);
        assert!(text.contains("wall time 12.5 s: 0.7 items/s, 158 tokens/s"), "{text}");
        assert!(text.contains("models: planner candle:models/planner, grounder"), "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&rendered(Format::JSON, &report)).unwrap();
    assert_eq!(json["total_evaluation_time_seconds"], "12.5");
    assert_eq!(json["model_name"], "lumos/planner+grounder");
    let models =
        "pretrained=lumos/planner+grounder,planner=candle:models/planner,grounder=candle:models/grounder";
    assert_eq!(json["config"]["model_args"], models);
    assert_eq!(json["lumos"]["telemetry"]["throughput"]["items_per_second"], 9.0 / 12.5);
}

#[test]
fn the_most_frequent_faults_are_told() {
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let mut builder = ReportBuilder::new(&manifest, &[]).unwrap();
    for item in &items {
        let unit = unit_of(&manifest.configurations[0], item);
        let Some(mut record) = state(8, &unit) else { panic!("the ninth is faulted") };
        let message = match item.index {
            0..3 => "no such model: tiny".to_owned(),
            3..5 => "too many requests".to_owned(),
            index => format!("request {index}"),
        };
        record.outcome.ending = Ending::Faulted(Fault { kind: FaultKind::Model, message });
        builder.add(0, item, &unit, Some(&record));
    }
    let report = builder.finish();
    let told: Vec<_> = report.configurations[0].fault_messages.iter().map(|one| one.count).collect();
    assert_eq!(told, [3, 2, 1]);
    for format in [TABLE, Format::MARKDOWN, Format::HTML] {
        let text = rendered(format, &report);
        assert!(text.contains("3 of 10 faulted: model: no such model: tiny"), "{}: {text}", format.name());
    }
    let json: serde_json::Value = serde_json::from_str(&rendered(Format::JSON, &report)).unwrap();
    let first = &json["lumos"]["configurations"]["svamp"]["fault_messages"][0];
    assert_eq!(first["count"], 3, "{first}");
}

/// Returns a table of two models with long names and all benchmarks.
fn wide_matrix() -> Matrix {
    let cell = MatrixCell { value: 0.471, interval: Some((0.444, 0.498)), items: 1319, seeds: 3 };
    let column = |metric: &MetricDefinition, benchmark: &str| MatrixColumn {
        benchmark: benchmark.to_owned(),
        metric: metric.name.to_owned(),
        unit: metric.unit,
        best: Some(0),
        is_distinguishable: true,
        note: None,
    };
    let benchmarks = lumos_benchmarks::all().iter();
    let columns: Vec<_> =
        benchmarks.map(|benchmark| column(&benchmark.metrics()[0], benchmark.name())).collect();
    let row = |label: &str| MatrixRow { label: label.to_owned(), cells: vec![Some(cell); columns.len()] };
    let rows = vec![row("llama-2-7b-lumos-unified-iterative"), row("llama-2-13b-lumos-unified-iterative")];
    Matrix { columns, rows }
}

#[test]
fn a_wide_table_of_benchmarks_is_printed_in_parts() {
    let report = Report { matrix: Some(wide_matrix()), ..sample() };
    let names: Vec<_> = lumos_benchmarks::all().iter().map(|benchmark| benchmark.name()).collect();
    for (width, count) in [(40, 7), (80, 2), (100, 1), (160, 1)] {
        let text = rendered(Format::Terminal { width, detail: ReportDetail::Full }, &report);
        assert!(text.lines().all(|line| line.width() <= usize::from(width)), "{width} columns:\n{text}");
        let lines: Vec<_> = text.lines().collect();
        let headers = lines.windows(2).filter(|pair| pair[1].starts_with('─')).map(|pair| pair[0]);
        let parts: Vec<_> = headers
            .map(|header| header.split_whitespace().filter(|word| names.contains(word)).collect::<Vec<_>>())
            .filter(|part| !part.is_empty())
            .collect();
        assert_eq!((parts.len(), parts.concat()), (count, names.clone()), "{text}");
    }
}

#[test]
fn tables_fit_eighty_columns_and_break_between_words() {
    let reports = [
        sample(),
        published(364, |_| {}),
        {
            let benchmark = "mind2web".to_owned();
            let long = Configuration { benchmark, ..configuration(0) };
            ReportBuilder::new(&manifest_of(&[long], &[item(0)]), &[]).unwrap().finish()
        },
        turns(),
        Report { matrix: Some(wide_matrix()), ..sample() },
    ];
    for report in &reports {
        for width in [80, 100, 160] {
            let mut out = Vec::new();
            let detail = ReportDetail::Full;
            report.render(Format::Terminal { width, detail }, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(widest <= usize::from(width), "{widest} columns:\n{text}");
            for word in ["configuration", "outstanding", "corrected"] {
                assert!(text.split_whitespace().any(|found| found == word), "{word} is broken:\n{text}");
            }
            let is_broken = |line: &str| ["%", "turns"].contains(&line.trim());
            assert!(!text.lines().any(is_broken), "a unit stands alone:\n{text}");
            for metric in report.configurations[0].scores.iter().flat_map(|scores| &scores.metrics).skip(1) {
                assert!(text.contains(&metric.metric), "{}:\n{text}", metric.metric);
            }
        }
    }
}

#[test]
fn what_looked_things_up_is_named() {
    let with = |backend: &str| {
        let tools = vec![tool("maths", "native"), tool("rank", "bm25"), tool("wiki", backend)];
        let manifest = manifest_of(&[Configuration { tools, ..configuration(0) }], &[item(0)]);
        ReportBuilder::new(&manifest, &[]).unwrap().finish()
    };
    for format in [TABLE, SUMMARY, Format::MARKDOWN, Format::HTML] {
        let plain = unwrapped(&rendered(format, &with("corpus:pages.jsonl#0123")));
        assert!(
            plain.contains("rank=bm25, wiki=corpus:pages.jsonl") && !plain.contains("own items"),
            "{plain}"
        );
        let warned = unwrapped(&rendered(format, &with("corpus:pages.jsonl#0123+items")));
        assert!(warned.contains("own items and may contain their answers"), "{warned}");
        assert!(!rendered(format, &sample()).contains("bm25"));
    }
}

#[test]
fn what_takes_a_browser_has_figures_only_where_there_was_one() {
    let with = |backend: &str| {
        let (benchmark, tools) = ("mind2web".to_owned(), vec![tool("web", backend)]);
        let manifest = manifest_of(&[Configuration { benchmark, tools, ..configuration(0) }], &[item(0)]);
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
    assert!(rendered(TABLE, &shown).contains("executable"));
    assert!(!rendered(TABLE, &read).contains("executable"));
}

/// Returns a text without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn rendered(format: Format, report: &Report) -> String {
    let mut out = Vec::new();
    report.render(format, &mut out).unwrap();
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
    assert_eq!(first.attribution.values().sum::<u64>(), 10);
    let causes: Vec<_> = first.attribution.iter().map(|(cause, count)| (cause.name(), *count)).collect();
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
    assert_eq!(first.usage.telemetry.seconds_median, Some(1.0));
    assert_eq!((report.total.planned, report.total.outstanding), (20, 10));
    assert!(report.configurations[1].main().unwrap().bounds.is_none());
}

#[test]
fn the_table_reads_well_at_eighty_columns() {
    let text = rendered(TABLE, &sample());
    assert!(text.lines().all(|line| line.width() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_summary_fits_a_screen() {
    let configurations: Vec<_> = (0..12).map(configuration).collect();
    for count in [1, 6, 12] {
        let text = rendered(SUMMARY, &sampled(&configurations[..count], |_| 10));
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        // The path of the report and the next command follow.
        assert!(count > 6 || text.lines().count() <= 21, "{} lines:\n{text}", text.lines().count());
        assert_eq!(text.contains("and 2 more configurations with -v"), count == 12, "{text}");
        assert!(text.contains("svamp iterative paper seed 0 "), "seeds differ: {text}");
        if count == 1 {
            insta::assert_snapshot!(text);
        }
    }
}

#[test]
fn settings_that_all_configurations_share_are_named_once() {
    let items: Vec<_> = (0..2).map(item).collect();
    let onetime = Configuration { formulation: lumos_tasks::Formulation::OneTime, ..configuration(0) };
    let manifest = manifest_of(&[configuration(0), onetime], &items);
    let text = rendered(SUMMARY, &ReportBuilder::new(&manifest, &[]).unwrap().finish());
    assert!(text.contains("), paper seed 0, paper scoring\n"), "{text}");
    assert!(text.contains("\n svamp iterative  ") && text.contains("\n svamp onetime  "), "{text}");
}

#[test]
fn markdown() {
    insta::assert_snapshot!(rendered(Format::MARKDOWN, &sample()));
}

#[test]
fn json_in_the_layout_of_lm_eval() {
    let text = rendered(Format::JSON, &sample());
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
    let value: serde_json::Value = serde_json::from_str(&rendered(Format::JSON, &report)).unwrap();
    assert_eq!(value["results"].as_object().unwrap().keys().collect::<Vec<_>>(), ["svamp"]);
    assert_eq!(value["n-samples"]["svamp"]["effective"], 0, "nothing is settled");
}

#[test]
fn csv() {
    insta::assert_snapshot!(rendered(Format::Document(csv::FORMAT), &sample()));
}

#[test]
fn html() {
    let text = rendered(Format::HTML, &sample());
    assert!(!text.contains("<script"), "model text stays text");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for outside in ["http://", "https://", "src=", "url(", "@import", "<link", " on"] {
        let within =
            text.lines().find(|line| line.contains(outside) && line.contains('<') && outside != " on");
        assert!(within.is_none(), "{outside}: {within:?}");
    }
    // The style is an asset, and its hash changes with it.
    let (head, rest) = text.split_once("<meta name=\"viewport\"").unwrap();
    assert!(head.contains("default-src 'none'; style-src 'sha256-"), "{head}");
    let (title, body) = rest.split_once("<style>").unwrap();
    insta::assert_snapshot!(format!("{title}{}", body.split_once("</style>").unwrap().1));
}

#[test]
fn formats_are_found_by_name() {
    for format in Format::all() {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert_eq!("md".parse(), Ok(Format::MARKDOWN));
    assert!("xml".parse::<Format>().unwrap_err().contains("expected one of table"));
}

#[test]
fn nothing_recorded_is_a_report_too() {
    let manifest = manifest_of(&[configuration(0)], &[item(0), item(1)]);
    let report = ReportBuilder::new(&manifest, &[]).unwrap().finish();
    assert_eq!(report.total.outstanding, 2);
    for format in Format::all() {
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
                builder.add(0, &item, &unit, state(index, &unit).as_ref());
            }
            let mut report = builder.finish();
            report.configurations[0].examples.clear();
            report
        };
        let in_order: Vec<u64> = (0..10).collect();
        prop_assert_eq!(add(&order), add(&in_order));
    }
}
