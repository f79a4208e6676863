//! Every wait in the sources of the coordinator, the worker, the queue and the program is registered in
//! `waits.txt`, with what ends it or the warning that names it.
//!
//! Waits are found by function, by searching for the words that start one (see [`PRIMITIVES`]). A new sleep,
//! channel, lock or `select!` in a function without one of its kind fails this test until it is registered.
//! Limits: the search matches words, not types. It does not find waits inside libraries (a request of
//! async-nats, sqlx, reqwest or fantoccini, the reply of an engine), which have their own time limits or are
//! awaited in functions that are listed, nor a second wait of the same kind in a function that is already
//! listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// Folders that are searched.
const ROOTS: [&str; 9] = [
    "coordinator/src/checkpoint",
    "coordinator/src/dispatch",
    "coordinator/src/fleet",
    "http/src",
    "models/src",
    "queue/src",
    "tools/src",
    "worker/src",
    "src",
];

/// Words that start a wait: methods, functions and macros.
const PRIMITIVES: &str = r"\.(recv|recv_many|recv_timeout|blocking_recv|changed|notified|cancelled|acquire|acquire_owned|join_next|tick|wait_for|wait_timeout|park)\(|\b(sleep|sleep_until|pending|park)\(|\b(select)!";

/// Files with the enumerations of waits that warnings can name.
const NAMED: [(&str, &str); 2] =
    [("coordinator", "coordinator/src/fleet/stall.rs"), ("worker", "worker/src/stall.rs")];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Collects the Rust files below a folder of the repository.
pub(crate) fn sources(folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            sources(&path, found);
        } else if path.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Returns the waits in the sources: file and function, with the words found.
fn waits() -> BTreeMap<String, BTreeSet<String>> {
    let primitive = Regex::new(PRIMITIVES).unwrap();
    let function = Regex::new(r"\bfn (\w+)").unwrap();
    let mut paths = Vec::new();
    ROOTS.iter().for_each(|root| sources(root, &mut paths));
    let mut waits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths.iter().filter(|path| !path.contains("tests")) {
        let source = read(path);
        let mut within = "";
        // Tests come last in a file.
        for line in source.lines().take_while(|line| !line.trim_start().starts_with("#[cfg(test)]")) {
            let code = line.split("//").next().unwrap();
            if let Some(found) = function.captures(code) {
                within = found.get(1).unwrap().as_str();
            }
            for found in primitive.captures_iter(code) {
                let word = found.iter().skip(1).flatten().next().unwrap().as_str();
                // Skip the definition of a function with that name.
                if word != within || !code.contains(&format!("fn {word}(")) {
                    waits.entry(format!("{path} {within}")).or_default().insert(word.to_owned());
                }
            }
        }
    }
    waits
}

/// Returns the variants of an enumeration `Wait`.
fn variants(path: &str) -> BTreeSet<String> {
    let source = read(path);
    let body = source.split("enum Wait {").nth(1).unwrap().split("\n}").next().unwrap();
    let variant = Regex::new(r"(?m)^    ([A-Z]\w+)").unwrap();
    variant.captures_iter(body).map(|found| found[1].to_owned()).collect()
}

#[test]
fn every_wait_in_the_sources_is_registered_with_what_ends_or_names_it() {
    let mut registered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let list = read("tests/it/waits.txt");
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = line.split(" | ");
        let [Some(place), Some(words), Some(verdict)] = [fields.next(), fields.next(), fields.next()] else {
            panic!("expected three fields: {line}")
        };
        let words: BTreeSet<String> = words.split(' ').map(str::to_owned).collect();
        assert!(registered.insert(place.to_owned(), words).is_none(), "duplicate: {line}");
        let (kind, what) = verdict.split_once(": ").unwrap_or_else(|| panic!("missing kind: {line}"));
        match kind {
            // It ends within a time limit, or is the idle state of a task that ends with its owner.
            "bounded" | "idle" => assert!(what.len() > 2, "{line}"),
            "coordinator" | "worker" => {
                named.entry(kind).or_default().extend(what.split(", ").map(str::to_owned));
            }
            _ => panic!("unknown kind `{kind}`: {line}"),
        }
    }
    let found = waits();
    for (place, words) in &found {
        let known = registered.get(place);
        assert_eq!(known, Some(words), "{place}: register this wait in tests/it/waits.txt");
    }
    for place in registered.keys() {
        assert!(found.contains_key(place), "{place} no longer waits: remove it from tests/it/waits.txt");
    }
    for (kind, path) in NAMED {
        assert_eq!(named[kind], variants(path), "every wait of {path} is registered");
    }
}
