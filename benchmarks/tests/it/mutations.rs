//! Mutation test of the replay: changes one leaf of a recorded case that passes and replays it. The replay
//! must detect the change, unless the leaf is listed as irrelevant with a reason.
//!
//! Every change of a compared leaf must be detected. For a leaf that is only an input of the episode (a
//! model's reply, a page), at least one change must be detected. A few leaves of each path are changed for
//! each kind of case; `LUMOS_LEAVES` sets the number.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use lumos_benchmarks::replay::RecordedRow;
use serde_json::{Value, json};

mod exempt;

use exempt::EXEMPT;

/// Default number of leaves changed per path.
const LEAVES: usize = 2;

/// A recorded case and its folder.
struct Case {
    folder: PathBuf,
    value: Value,
}

/// A leaf of a case.
struct Leaf<'a> {
    case: &'a Case,
    pointer: String,
    value: &'a Value,
}

fn read(path: &Path) -> Vec<Case> {
    let file = std::fs::File::open(path).unwrap();
    let reader: Box<dyn Read> = if path.extension().is_some_and(|kind| kind == "gz") {
        Box::new(GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let folder = path.parent().unwrap().to_owned();
    let lines = BufReader::new(reader).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    lines.map(|value| Case { folder: folder.clone(), value }).collect()
}

/// Returns the replay's difference, or the error of reading the case.
fn difference(folder: &Path, value: Value) -> Option<String> {
    match RecordedRow::of(value, folder, 1) {
        Err(reason) => Some(reason),
        Ok(recorded) => recorded.replay().difference,
    }
}

/// Visits all leaves. `pointer` leads to a leaf; `pattern` is the pointer without list positions and variable
/// names.
fn leaves<'a>(
    value: &'a Value,
    pointer: &str,
    pattern: &str,
    found: &mut impl FnMut(String, String, &'a Value),
) {
    const NAMED: [&str; 2] = ["/results", "/goal_options"];
    match value {
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                leaves(entry, &format!("{pointer}/{index}"), &format!("{pattern}/*"), found);
            }
        }
        Value::Object(fields) => {
            let named = NAMED.iter().any(|end| pattern.ends_with(end));
            for (name, field) in fields {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let shown = if named { "*" } else { name };
                leaves(field, &format!("{pointer}/{escaped}"), &format!("{pattern}/{shown}"), found);
            }
        }
        leaf => found(pointer.to_owned(), pattern.to_owned(), leaf),
    }
}

/// Whether the leaf is compared with the episode's result; all other leaves are inputs.
fn is_compared(pattern: &str) -> bool {
    if pattern.contains("/scores/") {
        return false;
    }
    ["/expected", "/prompts", "/out", "/raises", "/turn_history", "/summary"]
        .iter()
        .any(|start| pattern.starts_with(start))
}

/// Returns other values for a leaf. For a compared leaf each must be detected, for an input at least one.
fn changes(pattern: &str, value: &Value) -> Vec<Value> {
    match (pattern, value) {
        ("/benchmark", Value::String(name)) => {
            vec![json!(if name == "gsm8k" { "svamp" } else { "gsm8k" })]
        }
        ("/formulation", Value::String(name)) => {
            vec![json!(if name == "onetime" { "iterative" } else { "onetime" })]
        }
        ("/catalogue", Value::String(name)) => {
            vec![json!(if name == "real_1000" { "synthetic" } else { "real_1000" })]
        }
        // Exceptions are compared by name.
        ("/expected/raises" | "/raises", Value::String(text)) => {
            vec![json!(format!("~{text}")), json!("Changed: it")]
        }
        (_, Value::String(text)) => {
            let shortened: String = text.chars().skip(1).collect();
            let mut changes = vec![json!(format!("{text}~")), json!(format!("~{text}")), json!("changed")];
            if !text.is_empty() && is_compared(pattern) {
                changes.push(json!(shortened));
            }
            if pattern == "/tools/*/output" {
                changes.push(json!(if text == "CORRECT" { "INCORRECT" } else { "CORRECT" }));
            }
            if pattern.starts_with("/script") {
                changes.push(json!(
                    "Answer is 4711. Based on these evidences and decomposed questions, the answer is 4711."
                ));
            }
            changes
        }
        (_, Value::Number(number)) => {
            let number = number.as_f64().unwrap();
            if value.is_u64() || value.is_i64() {
                let number = number as i64;
                vec![json!(number + 1), json!(number - 1), json!(number + 1000)]
            } else {
                vec![json!(number + 0.25), json!(number - 1000.0), json!(number + 1000.0)]
            }
        }
        (_, Value::Bool(value)) => vec![json!(!value)],
        (_, Value::Null) => vec![json!("changed"), json!(7)],
        (_, Value::Array(_) | Value::Object(_)) => unreachable!("not a leaf"),
    }
}

/// Returns the undetected changes: the leaf, the old and the new value.
fn unnoticed(leaf: &Leaf<'_>, pattern: &str) -> Vec<String> {
    let missed: Vec<String> = changes(pattern, leaf.value)
        .into_iter()
        .map(|change| {
            let mut changed = leaf.case.value.clone();
            *changed.pointer_mut(&leaf.pointer).unwrap() = change.clone();
            (difference(&leaf.case.folder, changed), change)
        })
        .filter(|(difference, _)| difference.is_none())
        .map(|(_, change)| change.to_string().chars().take(80).collect())
        .collect();
    let all = changes(pattern, leaf.value).len();
    if is_compared(pattern) || missed.len() == all { missed } else { Vec::new() }
}

/// Changes the leaves of the cases of a kind. Returns the undetected changes, and marks the exemptions that
/// were used.
fn mutate(kind: &str, cases: &[Case], used: &mut [bool]) -> Vec<String> {
    let mut by_pattern: BTreeMap<String, Vec<Leaf<'_>>> = BTreeMap::new();
    for case in cases {
        if let Some(difference) = difference(&case.folder, case.value.clone()) {
            panic!("{kind} {}: {difference}", case.value["id"]);
        }
        leaves(&case.value, "", "", &mut |pointer, pattern, value| {
            by_pattern.entry(pattern).or_default().push(Leaf { case, pointer, value });
        });
    }
    let most = std::env::var("LUMOS_LEAVES").map_or(LEAVES, |most| most.parse().unwrap());
    let (mut changed, mut missed) = (0, Vec::new());
    for (pattern, leaves) in &by_pattern {
        // Evenly spaced, including the first and the last.
        let count = leaves.len().min(most);
        for number in 0..count {
            let leaf = &leaves[if count < 2 { 0 } else { number * (leaves.len() - 1) / (count - 1) }];
            changed += 1;
            let unnoticed = unnoticed(leaf, pattern);
            if unnoticed.is_empty() {
                continue;
            }
            let exempt = EXEMPT
                .iter()
                .position(|exempt| exempt.covers(kind, pattern, &leaf.case.value, &leaf.pointer));
            match exempt {
                Some(index) => used[index] = true,
                None => missed.push(format!(
                    "{kind} {} {}: {} to {}",
                    leaf.case.value["id"],
                    leaf.pointer,
                    leaf.value.to_string().chars().take(160).collect::<String>(),
                    unnoticed.join(" or ")
                )),
            }
        }
    }
    println!("{kind}: {} cases, {} paths, {changed} leaves changed", cases.len(), by_pattern.len());
    missed
}

/// Groups the cases by kind: benchmark and formulation.
fn by_kind(cases: Vec<Case>) -> BTreeMap<String, Vec<Case>> {
    let mut kinds: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases {
        let part = |name: &str| case.value[name].as_str().unwrap_or("sql").to_owned();
        kinds.entry(format!("{} {}", part("benchmark"), part("formulation"))).or_default().push(case);
    }
    kinds
}

fn check(kinds: &[(String, Vec<Case>)]) -> Vec<bool> {
    let mut used = vec![false; EXEMPT.len()];
    let missed: Vec<String> = kinds.iter().flat_map(|(kind, cases)| mutate(kind, cases, &mut used)).collect();
    assert!(missed.is_empty(), "{} changes were not detected:\n{}", missed.len(), missed.join("\n"));
    used
}

#[test]
fn changes_to_shipped_cases_are_noticed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let cases = ["maths", "qa"].iter().flat_map(|name| read(&folder.join(format!("{name}.jsonl"))));
    let kinds: Vec<_> = by_kind(cases.collect()).into_iter().collect();
    check(&kinds);
}

#[test]
fn changes_to_recordings_of_the_original_are_noticed() {
    let Some(golden) = lumos_capabilities::shared("golden") else { return };
    let mut kinds = Vec::new();
    for benchmark in ["gsm8k", "svamp", "hotpotqa", "strategyqa"] {
        for formulation in ["iterative", "onetime", "cot", "direct"] {
            let file = format!("{benchmark}_{formulation}.jsonl.gz");
            kinds.push((format!("{benchmark} {formulation}"), read(&golden.join(file))));
        }
    }
    for (kind, file) in [
        ("mind2web", "mind2web/lumos_iterative"),
        ("webshop", "webshop/lumos_iterative"),
        ("webshop", "webshop/real_lumos_iterative"),
        ("sql episode", "intercode_sql/episodes"),
        ("sql log", "intercode_sql/published_episodes"),
    ] {
        kinds.push((kind.to_owned(), read(&golden.join(format!("{file}.jsonl.gz")))));
    }
    let used = check(&kinds);
    let unused: Vec<_> =
        EXEMPT.iter().zip(used).filter(|(_, used)| !used).map(|(exempt, _)| exempt.describe()).collect();
    println!("{} exemptions were not needed", unused.len());
    unused.iter().for_each(|unused| println!("{unused}"));
}
