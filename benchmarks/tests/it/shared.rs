//! Replays the original's recorded behaviour and loads the real data sets, if `LUMOS_SHARED` names a folder
//! that contains both. Otherwise these tests are skipped with a message.

use std::collections::BTreeMap;
use std::path::Path;

use lumos_benchmarks::replay::read_cases;
use lumos_benchmarks::{DataSource, find};
use lumos_capabilities::shared;

/// Results for a file: numbers of passed, failed and skipped rows, and descriptions of the failures.
#[derive(Default)]
struct Tally {
    passed: u32,
    skipped: u32,
    failures: Vec<String>,
}

fn replay_file(path: &Path) -> Tally {
    let mut tally = Tally::default();
    for row in read_cases(path).unwrap() {
        let row = row.unwrap();
        let verdict = row.replay();
        let tags = row.case().map_or_else(String::new, |case| case.tags.join(" "));
        match (verdict.skipped, verdict.difference) {
            (Some(_), _) => tally.skipped += 1,
            (None, None) => tally.passed += 1,
            (None, Some(difference)) => tally.failures.push(format!("{} [{tags}]: {difference}", verdict.id)),
        }
    }
    tally
}

#[test]
fn recorded_episodes_of_the_original_replay() {
    let Some(golden) = shared("golden") else { return };
    let mut failures = Vec::new();
    for benchmark in ["gsm8k", "svamp", "hotpotqa", "strategyqa"] {
        for (formulation, rows) in [("iterative", 120), ("onetime", 120), ("cot", 40), ("direct", 40)] {
            let name = format!("{benchmark}_{formulation}.jsonl.gz");
            let tally = replay_file(&golden.join(&name));
            println!("{name}: {} passed, {} failed", tally.passed, tally.failures.len());
            assert_eq!(tally.passed as usize + tally.failures.len(), rows, "{name}");
            failures.extend(tally.failures);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn recorded_shopping_of_the_original_replays() {
    let Some(golden) = shared("golden") else { return };
    let (mut passed, mut all) = (0, 0);
    for (name, rows) in [("lumos_iterative", 72), ("real_lumos_iterative", 30)] {
        let tally = replay_file(&golden.join(format!("webshop/{name}.jsonl.gz")));
        println!("{name}: {} passed, {} failed", tally.passed, tally.failures.len());
        tally.failures.iter().for_each(|failure| println!("{failure}"));
        assert_eq!(tally.passed as usize + tally.failures.len(), rows, "{name}");
        assert!(tally.failures.iter().all(|failure| !failure.contains("[good")), "{name}");
        (passed, all) = (passed + tally.passed as usize, all + rows);
    }
    assert_eq!(passed, all);
}

#[test]
fn recorded_functions_of_the_original_replay() {
    let Some(golden) = shared("golden") else { return };
    let mut failures = BTreeMap::new();
    for name in [
        "math_parse_actions",
        "parse_func_args",
        "isfunc",
        "isalphain",
        "examine_ops",
        "parse_equation",
        "process_frac",
        "findvariables",
        "parse_subgoals",
        "math_execute",
        "math_actions",
        "gsm8k_gold_answer",
        "gsm8k_cot_answer",
        "gsm8k_direct_answer",
        "python_str",
        "qa_parse_actions",
        "clean_str",
        "get_page_obs",
        "search_step",
        "get_max_idx",
        "normalize_answer",
        "f1_score",
        "hotpotqa_cot_pred",
        "hotpotqa_direct_pred",
        "strategyqa_cot_answer",
    ] {
        let tally = replay_file(&golden.join(format!("unit_{name}.jsonl.gz")));
        println!("{name}: {} passed, {} failed", tally.passed, tally.failures.len());
        assert_eq!((tally.passed as usize + tally.failures.len(), tally.skipped), (300, 0), "{name}");
        if !tally.failures.is_empty() {
            failures.insert(name, tally.failures);
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn recorded_episodes_of_intercode_replay() {
    let Some(golden) = shared("golden/intercode_sql") else { return };
    for (name, rows) in [("episodes", 60), ("published_episodes", 120)] {
        let tally = replay_file(&golden.join(format!("{name}.jsonl.gz")));
        println!("{name}: {} passed, {} failed", tally.passed, tally.failures.len());
        assert_eq!((tally.passed as usize + tally.failures.len(), tally.skipped), (rows, 0), "{name}");
        assert!(tally.failures.is_empty(), "{name}: {}", tally.failures.join("\n"));
    }
}

#[test]
fn rows_of_other_families_are_skipped() {
    let Some(golden) = shared("golden") else { return };
    let tally = replay_file(&golden.join("math_table.jsonl.gz"));
    assert_eq!((tally.passed, tally.failures.len(), tally.skipped), (0, 0, 600));
}

#[test]
fn the_real_data_sets_load() {
    let Some(data) = shared("data") else { return };
    for (name, count, first, last) in [("gsm8k", 1319, "18", "14"), ("svamp", 1000, "51", "11")] {
        let benchmark = find(name).unwrap();
        let items: Vec<_> =
            benchmark.open(benchmark.source(Some(&data))).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(items.len(), count);
        assert_eq!((items[0].target.text(), items[count - 1].target.text()), (first, last));
        let identities: std::collections::BTreeSet<_> = items.iter().map(|item| &item.id).collect();
        assert_eq!(identities.len(), count);
        let groups: std::collections::BTreeSet<_> =
            items.iter().filter_map(|item| item.group.as_deref()).collect();
        let expected = if name == "svamp" { 4 } else { 0 };
        assert_eq!(groups.len(), expected, "{groups:?}");
    }
}

#[test]
fn the_question_answering_files_load_in_every_form() {
    let Some(data) = shared("data") else { return };
    for (name, file, count, first) in [
        ("hotpotqa", "lumos_test.json", 7405, "yes"),
        ("hotpotqa", "dev_distractor_first100.json", 100, "yes"),
        ("hotpotqa", "dev_first500_titles.jsonl", 500, "yes"),
        ("hotpotqa", "sample_hard100.jsonl", 100, ""),
        ("strategyqa", "test.json", 2290, "True"),
        ("strategyqa", "strategy_qa.json", 2290, "True"),
        ("strategyqa", "official_train.jsonl", 2061, ""),
        ("strategyqa", "official_dev.jsonl", 229, "False"),
    ] {
        let source = DataSource::File(data.join(name).join(file));
        let items: Vec<_> = find(name).unwrap().open(source).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(items.len(), count, "{file}");
        assert!(first.is_empty() || items[0].target.text() == first, "{file}");
    }
    let read = |file: &str| {
        let source = DataSource::File(data.join("strategyqa").join(file));
        let items = find("strategyqa").unwrap().open(source).unwrap();
        items.map(|item| item.unwrap().target).collect::<Vec<_>>()
    };
    assert_eq!(read("test.json"), read("strategy_qa.json"));
}
