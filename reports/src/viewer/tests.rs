//! Tests of the viewer's files: the page, its list of items and its chunks.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use lumos_coordinator::samples::{configuration, item, manifest_of, state};
use lumos_coordinator::{Checkpoint, Record, unit_of};
use lumos_tasks::{Configuration, Evidence, Finish, Item, Role, Step};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::compare::{CompareOptions, Side, compare};
use crate::report::report;
use crate::results::RunTable;
use crate::results::tests::{add_judged_first, recorded};

fn unpacked(text: &str) -> Value {
    let packed = STANDARD.decode(text.trim()).unwrap();
    serde_json::from_reader(GzDecoder::new(&packed[..])).unwrap()
}

/// Returns the text between the only element that starts with `start` and its end.
fn between<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    let (_, after) = page.split_once(start).unwrap_or_else(|| panic!("`{start}` not found"));
    assert!(!after.contains(start), "`{start}` occurs twice");
    after.split_once(end).unwrap().0
}

fn index_of(page: &str) -> Value {
    unpacked(between(page, r#"<script type="application/json+gzip" id="index">"#, "</script>"))
}

/// Returns the units of a chunk.
fn chunk(folder: &Path, name: &str) -> Vec<Value> {
    let script = fs::read_to_string(folder.join(format!("data/{name}.js"))).unwrap();
    let packed = between(&script, &format!("lumosChunk(\"{name}\",\""), "\");\n");
    unpacked(packed).as_array().unwrap().clone()
}

/// Records units of two configurations, changed by `change`, and writes a viewer to `report` in a folder.
async fn written(folder: &Path, items: u64, change: impl Fn(&mut Record)) -> (Manifest, ViewerSize) {
    let (manifest, checkpoint) = recorded(folder, items, change).await;
    let source = ViewerSource { manifest: &manifest, checkpoint: &checkpoint, scorings: &[] };
    let report = report(&manifest, &checkpoint, &[]).unwrap();
    let single = folder.join("report.html");
    let size = write_viewer(&folder.join("report"), Some(&single), &report, &source).unwrap();
    let mut page = Vec::new();
    write_page(&mut page, &report, &source).unwrap();
    assert_eq!(fs::read(single).unwrap(), page, "the page that `lumos report` prints");
    (manifest, size)
}

#[tokio::test]
async fn scores_are_of_another_metric_until_the_run_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let items: Vec<Item> = (0..6).map(item).collect();
    let own = Configuration { benchmark: "own".to_owned(), ..configuration(0) };
    let mut manifest = manifest_of(&[own], &items);
    add_judged_first(&mut manifest);
    let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
    checkpoint.store_items("own", &items).unwrap();
    for item in &items {
        let unit = unit_of(&manifest.configurations[0], item);
        checkpoint.record(state(item.index, &unit).unwrap()).await.unwrap();
    }
    let source = ViewerSource { manifest: &manifest, checkpoint: &checkpoint, scorings: &[] };
    let mut page = Vec::new();
    write_page(&mut page, &report(&manifest, &checkpoint, &[]).unwrap(), &source).unwrap();
    let index = index_of(&String::from_utf8(page).unwrap());
    assert_eq!(index["rows"]["score"], serde_json::json!([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]));
    let causes = index["rows"]["cause"].as_array().unwrap();
    assert!(causes[..5].iter().all(|cause| *cause == causes[0]) && causes[5] != causes[0], "{causes:?}");
}

#[tokio::test]
async fn every_unit_is_listed_with_its_trajectory() {
    let folder = tempfile::tempdir().unwrap();
    let (manifest, size) = written(folder.path(), 10, |_| {}).await;
    let viewer = folder.path().join("report");
    let page = fs::read_to_string(viewer.join(PAGE)).unwrap();
    assert_eq!((size.page, size.chunks), (page.len() as u64, 2));
    let index = index_of(&page);
    let rows = index["rows"].as_object().unwrap();
    assert!(rows.values().all(|column| column.as_array().unwrap().len() == 20), "{index:#}");
    assert_eq!(index["items"]["svamp"]["task"].as_array().unwrap().len(), 10, "items are stored once");
    assert_eq!(index["groups"], serde_json::json!(["Addition", "Subtraction"]));
    let causes: Vec<&str> = rows["cause"].as_array().unwrap()[..10]
        .iter()
        .map(|cause| index["causes"][cause.as_u64().unwrap() as usize]["name"].as_str().unwrap())
        .collect();
    assert_eq!(causes[..4], ["correct"; 4]);
    assert_eq!(causes[4..6], ["wrong answer"; 2]);
    assert_eq!(causes[6..], ["limit", "grounder: unknown action", "faulted", "outstanding"]);
    assert_eq!((&rows["turn"][6], &rows["turn"][7], &rows["turn"][8]), (&1.into(), &1.into(), &0.into()));
    assert_eq!(
        (&rows["score"][0], &rows["score"][5], &rows["score"][8]),
        (&1.0.into(), &0.0.into(), &Value::Null)
    );
    assert_eq!((&rows["tokens"][0], &rows["ms"][3]), (&220.into(), &1000.into()));
    for (cell, entry) in index["cells"].as_array().unwrap().iter().enumerate() {
        assert_eq!(entry["label"], manifest.configurations[cell].label);
        let [first, count, name] = &entry["chunks"][0].as_array().unwrap()[..] else { panic!("{entry}") };
        assert_eq!((first.as_u64(), count.as_u64()), (Some(10 * cell as u64), Some(10)));
        let units = chunk(&viewer, name.as_str().unwrap());
        for (at, unit) in units.iter().enumerate() {
            let short = rows["unit"][10 * cell + at].as_str().unwrap();
            assert!(short.len() == 12 && unit["unit"].as_str().unwrap().starts_with(short), "{unit}");
        }
        assert_eq!(units[0]["scores"]["paper"]["exact_match"], serde_json::json!([1.0, 1.0]));
        let record = &units[5]["records"][0];
        assert_eq!(record["ending"], "answered: <script>alert(1)</script>");
        let kinds: Vec<_> = record["steps"].as_array().unwrap().iter().map(|step| &step["k"]).collect();
        assert_eq!(kinds, ["g", "g", "c", "a"]);
        assert_eq!(record["steps"][0]["reply"], "Subgoal 1: <b>Add</b> & 'count'");
        assert_eq!(record["steps"][2]["call"], "maths: 5 + 2");
        let exhausted = units[6]["records"][0]["ending"].as_str().unwrap();
        assert!(exhausted.ends_with("its rounds were used up"), "{exhausted}");
        assert_eq!(
            units[7]["records"][0]["ending"],
            "gave up: grounder: unknown action in turn 1: unknown action `Sum`"
        );
        assert!(units[9]["records"].as_array().unwrap().is_empty());
    }
    // The page in one file has the same rows and no chunks.
    let single = index_of(&fs::read_to_string(folder.path().join("report.html")).unwrap());
    assert_eq!(single["rows"], index["rows"]);
    assert_eq!(single["cells"][0]["chunks"], serde_json::json!([]));
    // A filter of the table of causes names a cell and a cause of the list.
    assert!(
        page.contains(r#"data-filter="cell=0&amp;cause=grounder: unknown action&amp;turn=1">1</a>"#),
        "{page}"
    );
}

#[tokio::test]
async fn a_page_runs_and_loads_only_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 10, |_| {}).await;
    let page = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    for (path, chunks, images) in
        [("report/index.html", "'self' ", "; img-src 'self'"), ("report.html", "", "")]
    {
        let page = page(path);
        let (style, script) =
            (between(&page, "<style>", "</style>"), between(&page, "<script>", "</script>"));
        let policy = format!(
            "content=\"default-src 'none'; script-src {chunks}{}; style-src {}{images}; base-uri 'none'; form-action 'none'\"",
            hash(script),
            hash(style)
        );
        assert!(page.contains(&policy), "{path}: {policy}");
        assert_eq!(page.matches("</script>").count(), 2, "texts of models are packed or escaped");
        assert!(!page.contains(" style=") && !page.contains(" onclick="), "the policy would block them");
    }
}

#[test]
fn the_script_writes_texts_as_text_nodes_only() {
    let script = page::SCRIPT;
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "setAttribute(\"style",
        "fetch(",
        "XMLHttpRequest",
        "localStorage",
        "javascript:",
        "</script",
        "<!--",
    ] {
        assert!(!script.contains(forbidden), "{forbidden}");
    }
    assert!(!page::PAGE_STYLE.contains("url(") && !page::PAGE_STYLE.contains("@import"));
}

#[tokio::test]
async fn long_texts_are_cut_and_hidden_characters_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = "a\u{202e}b\u{1b}[31m\u{0}</script><script>window.hit=1</script>";
    written(folder.path(), 2, |record| {
        let Step::Generate { reply, .. } = &mut record.outcome.steps[0] else { panic!("a query") };
        *reply = format!("{hostile}{}", "ä".repeat(1 << 16));
        let query = || Step::Generate {
            turn: 2,
            role: Role::Planner,
            prompt: "p".repeat(70 << 10),
            reply: String::new(),
            finish: Finish::Length,
            prompt_tokens: None,
            completion_tokens: None,
        };
        record.outcome.steps.extend(std::iter::repeat_with(query).take(80));
    })
    .await;
    let viewer = folder.path().join("report");
    let files: Vec<_> = fs::read_dir(viewer.join("data")).unwrap().collect();
    assert_eq!(files.len(), 4, "4 MB of texts end a chunk");
    let units = chunk(&viewer, "0000");
    let steps = units[0]["records"][0]["steps"].as_array().unwrap();
    let reply = steps[0]["reply"].as_str().unwrap();
    assert!(reply.starts_with("a\u{fffd}b\u{fffd}[31m\u{fffd}</script>"), "{}", &reply[..40]);
    let unit = &units[0]["unit"].as_str().unwrap()[..12];
    let command = format!(" more bytes: lumos show RUN {unit} --json]");
    assert!(reply.ends_with(&command), "{}", &reply[reply.len() - 60..]);
    assert!(reply.len() <= (64 << 10) + 100);
    assert_eq!(steps[10]["cut"], true);
    let lengths: Vec<usize> = steps[4..].iter().map(|step| step["prompt"].as_str().unwrap().len()).collect();
    assert!(lengths[0] > 60_000 && lengths[79] < 600, "{lengths:?}");
    let script = fs::read_to_string(viewer.join("data/0000.js")).unwrap();
    assert!(!script.contains('<'), "chunks are packed");
}

#[tokio::test]
async fn chunks_have_two_hundred_units() {
    let folder = tempfile::tempdir().unwrap();
    let (_, size) = written(folder.path(), 250, |_| {}).await;
    assert_eq!(size.chunks, 4);
    let viewer = folder.path().join("report");
    let index = index_of(&fs::read_to_string(viewer.join(PAGE)).unwrap());
    let chunks = serde_json::json!([[250, 200, "0002"], [450, 50, "0003"]]);
    assert_eq!(index["cells"][1]["chunks"], chunks);
    let last = chunk(&viewer, "0003");
    assert_eq!((last.len(), &last[49]["item"]), (50, &249.into()));
}

/// Texts that cannot be compressed to less than half.
fn noise(index: u64, part: &str, length: usize) -> String {
    (0..)
        .map(|at| hex::encode(Sha256::digest(format!("{index} {part} {at}"))))
        .take(length / 64 + 1)
        .collect()
}

/// Adds the sample unit of an item to a cell of a list.
fn add_sample(index: &mut ItemIndex, cell: usize, manifest: &Manifest, scorer: &Scorer<'_>, item: &Item) {
    let configuration = &manifest.configurations[0];
    let unit = unit_of(configuration, item);
    let record = state(item.index, &unit);
    let view = UnitView { position: 0, configuration, item, unit, record, earlier: Vec::new() };
    let scored = scorer.score(&view);
    index.add(cell, &view, &scored);
}

#[test]
fn a_page_of_twenty_thousand_items_is_below_two_megabytes() {
    let manifest = manifest_of(&[configuration(0)], &[item(0)]);
    let scorer = Scorer::new(&manifest, &[Scoring::Paper], None).unwrap();
    let mut index = ItemIndex::new(20_000);
    index.add_cells(&manifest, "", None);
    for number in 0..20_000u64 {
        let mut item = item(number);
        item.task = lumos_tasks::Task::Maths { question: noise(number, "task", 128) };
        item.target = lumos_tasks::Target::Number { answer: noise(number, "gold", 64) };
        add_sample(&mut index, 0, &manifest, &scorer, &item);
    }
    let packed = index.pack().unwrap();
    assert!(packed.len() < 1_900_000, "{} bytes", packed.len());
    assert_eq!(index.pack().unwrap(), packed, "notes are not repeated");
    let index = unpacked(&packed);
    let note = index["notes"][0].as_str().unwrap();
    assert!(note.contains("shortened") && note.contains("the first 40 characters of "), "{note}");
    let units = index["rows"]["unit"].as_array().unwrap();
    let distinct: BTreeSet<&str> = units.iter().map(|unit| unit.as_str().unwrap()).collect();
    assert_eq!(distinct.len(), 20_000);
}

#[test]
fn a_list_says_how_much_of_its_texts_the_search_covers() {
    let manifest = manifest_of(&[configuration(0)], &[item(0)]);
    let scorer = Scorer::new(&manifest, &[Scoring::Paper], None).unwrap();
    let mut index = ItemIndex::new(2);
    index.add_cells(&manifest, "", None);
    add_sample(&mut index, 0, &manifest, &scorer, &item(0));
    assert_eq!(unpacked(&index.pack().unwrap())["notes"], serde_json::json!([]));
    let mut long = item(1);
    long.task = lumos_tasks::Task::Maths { question: noise(1, "task", 128) };
    add_sample(&mut index, 0, &manifest, &scorer, &long);
    let note = "The search covers the first 100 characters of a task and 60 of an answer or a name.";
    assert_eq!(unpacked(&index.pack().unwrap())["notes"], serde_json::json!([note]));
}

#[test]
fn a_list_without_room_for_all_units_has_as_many_of_each_run() {
    assert_eq!([(100_000, 3), (100_001, 1)].map(|(units, runs)| rows_per_run(units, runs)), [100_000; 2]);
    assert_eq!(rows_per_run(100_001, 2), 50_000);
    let manifest = manifest_of(&[configuration(0)], &[item(0)]);
    let scorer = Scorer::new(&manifest, &[Scoring::Paper], None).unwrap();
    let mut index = ItemIndex::new(2);
    for run in 0..2 {
        let cell = index.add_cells(&manifest, "", Some(run));
        for number in 0..3 {
            if index.has_room() {
                add_sample(&mut index, cell, &manifest, &scorer, &item(number));
            }
        }
    }
    let index = unpacked(&index.pack().unwrap());
    assert_eq!(index["rows"]["cell"], serde_json::json!([0, 0, 1, 1]));
    assert_eq!(index["left_out"], 2);
    let note = "The list has the first 2 units of each run; 2 further units are left out.";
    assert_eq!(index["notes"], serde_json::json!([note]));
}

#[tokio::test]
async fn runs_with_equal_units_keep_their_screenshots() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let (a, of_a) = recorded(&first, 1, |_| {}).await;
    let (b, of_b) = recorded(&second, 1, |_| {}).await;
    let unit = unit_of(&a.configurations[0], &item(0));
    let shot = format!("{}/0001.png", unit.as_str());
    let pictures =
        [(&first, "A"), (&second, "B")].map(|(run, text)| (run.join("screenshots").join(&shot), text));
    for (path, picture) in &pictures {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, picture).unwrap();
    }
    let source_a = ViewerSource { manifest: &a, checkpoint: &of_a, scorings: &[] };
    let source_b = ViewerSource { manifest: &b, checkpoint: &of_b, scorings: &[] };
    let runs = [("A: ", source_a), ("B, second: ", source_b), ("B, first: ", source_a)];
    let viewer = folder.path().join("compared");
    write_runs(&viewer, None, &runs, &|index, _| Ok(index.to_owned())).unwrap();
    for (path, picture) in &pictures {
        assert_eq!(fs::read_to_string(path).unwrap(), *picture);
    }
    let shown = |run: u64| fs::read_to_string(viewer.join(format!("screenshots/{run}/{shot}"))).unwrap();
    assert_eq!([0, 1, 2].map(shown), ["A", "B", "A"]);
    // The script finds them by the position of the run.
    let index = unpacked(&fs::read_to_string(viewer.join(PAGE)).unwrap());
    let cells = index["cells"].as_array().unwrap();
    let positions: Vec<_> = cells.iter().map(|cell| cell["run"].as_u64().unwrap()).collect();
    assert_eq!(positions, [0, 0, 1, 1, 2, 2]);
    assert_eq!(chunk(&viewer, "1-0000")[0]["shots"], serde_json::json!([1]));
}

#[tokio::test]
async fn items_of_two_runs_are_listed_once() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let (a, _) = written(&first, 4, |_| {}).await;
    let (b, _) = written(&second, 6, |_| {}).await;
    let readers = [&first, &second].map(|run| CheckpointReader::open(&run.join("checkpoint")).unwrap());
    let source = |manifest, checkpoint| ViewerSource { manifest, checkpoint, scorings: &[] };
    let runs = [("A: ", source(&a, &readers[0])), ("B: ", source(&b, &readers[1]))];
    let viewer = folder.path().join("both");
    let size = write_runs(&viewer, None, &runs, &|index, _| Ok(index.to_owned())).unwrap();
    let index = unpacked(&fs::read_to_string(viewer.join(PAGE)).unwrap());
    assert_eq!(index["items"]["svamp"]["task"].as_array().unwrap().len(), 6, "four are in both runs");
    assert_eq!((size.chunks, index["rows"]["cell"].as_array().unwrap().len()), (4, 2 * 4 + 2 * 6));
    let labels: Vec<_> = index["cells"].as_array().unwrap().iter().map(|cell| &cell["label"]).collect();
    assert_eq!(labels[0].as_str().unwrap(), format!("A: {}", a.configurations[0].label));
    assert_eq!(labels[2].as_str().unwrap(), format!("B: {}", b.configurations[0].label));
    assert_eq!(index["cells"][3]["chunks"], serde_json::json!([[14, 6, "1-0001"]]));
    assert_eq!(chunk(&viewer, "1-0001").len(), 6);
}

#[test]
fn only_a_viewer_or_an_empty_folder_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(may_replace(folder) && may_replace(&folder.join("new")));
    fs::write(folder.join("index.html"), "<!doctype html>\n<title>mine</title>").unwrap();
    assert!(!may_replace(folder));
    fs::write(folder.join("index.html"), format!("<!doctype html>\n{}", page::GENERATOR)).unwrap();
    assert!(may_replace(folder));
    assert!(!may_replace(&folder.join("index.html")), "a file");
}

#[tokio::test]
async fn a_comparison_lists_changed_items_and_has_both_trajectories() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("before"), folder.path().join("after"));
    let (a, _) = written(&first, 10, |_| {}).await;
    let (b, _) = written(&second, 10, |record| {
        if let (0, Some(Evidence::Maths(evidence))) = (record.item, &mut record.outcome.evidence) {
            evidence.prediction = Some("<b>41</b>".into());
        }
    })
    .await;
    let readers = [&first, &second].map(|run| CheckpointReader::open(&run.join("checkpoint")).unwrap());
    let side = |name: &str, manifest, checkpoint| Side {
        name: name.to_owned(),
        folder: folder.path().join(name),
        table: RunTable::read(manifest, checkpoint, Scoring::Paper).unwrap(),
    };
    let sides = [side("before", &a, &readers[0]), side("after", &b, &readers[1])];
    let mut comparison = compare(&sides, &CompareOptions::default()).unwrap();
    comparison.read_texts(&[&readers[0], &readers[1]], 10, false).unwrap();
    let viewer = folder.path().join("compared");
    let opened = [(&sides[0], &readers[0]), (&sides[1], &readers[1])];
    let size = write_comparison(&viewer, &comparison, &opened).unwrap();
    assert_eq!(size.chunks, 4);
    let page = fs::read_to_string(viewer.join(PAGE)).unwrap();
    assert!(page.contains("<title>after compared with before – lumos</title>"), "{page}");
    assert!(page.contains("newly wrong: 1<") && page.contains("newly right: 0<"), "{page}");
    assert!(page.contains("&lt;b&gt;41&lt;/b&gt;"), "{page}");
    // The link of the changed item names units of both sides that are in the list.
    let index = index_of(&page);
    let units = index["rows"]["unit"].as_array().unwrap();
    for attribute in ["data-unit", "data-other"] {
        let unit = between(&page, &format!("{attribute}=\""), "\"");
        assert_eq!(
            units.iter().filter(|short| unit.starts_with(short.as_str().unwrap())).count(),
            2,
            "{unit}"
        );
    }
    // Both runs have equal units: the link also names the run of B.
    assert_eq!(between(&page, "data-run=\"", "\""), "1");
    assert_eq!((&index["cells"][1]["run"], &index["cells"][2]["run"]), (&0.into(), &1.into()));
    let labels: Vec<_> =
        index["cells"].as_array().unwrap().iter().map(|cell| cell["label"].as_str().unwrap()).collect();
    assert!(labels[0].starts_with("A: svamp") && labels[3].starts_with("B: svamp"), "{labels:?}");
    assert!(page.contains("aria-label=\"Differences with their 95 % intervals\""), "{page}");
}
