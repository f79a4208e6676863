//! Loading data files: messages for invalid files, and valid records next to invalid ones.

use std::fmt::Write as _;
use std::path::PathBuf;

use lumos_benchmarks::{Benchmark, DataError, DataSource, all, find};
use proptest::prelude::*;

/// A file in a benchmark's format.
struct Written {
    file: tempfile::NamedTempFile,
    benchmark: &'static dyn Benchmark,
}

impl Written {
    fn new(benchmark: &str, content: &[u8]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        Self { file, benchmark: find(benchmark).unwrap() }
    }

    fn source(&self) -> DataSource {
        DataSource::File(self.file.path().to_owned())
    }

    /// Formats every item and every error, one per line.
    fn report(&self) -> String {
        let mut report = String::new();
        match self.benchmark.open(self.source()) {
            Err(error) => report.push_str(&error.to_string()),
            Ok(items) => {
                for item in items {
                    match item {
                        Ok(item) => writeln!(
                            report,
                            "item {}: {} ({}, {})",
                            item.index,
                            item.target.text(),
                            item.name.as_deref().unwrap_or("-"),
                            item.group.as_deref().unwrap_or("-")
                        ),
                        Err(error) => {
                            writeln!(report, "{error} (skippable: {})", error.is_skippable())
                        }
                    }
                    .unwrap();
                }
            }
        }
        report.replace(&self.file.path().display().to_string(), "FILE")
    }
}

#[test]
fn bad_gsm8k_records() {
    let content = br#####"{"question": "a", "answer": "2+3=<<2+3=5>>5\n#### 5"}
{"question": "a", "answer": "#### 5"
{"question": "a"}
{"question": 7, "answer": "#### 5"}
["question"]

{"question": "a", "answer": "It is five.\nSo it is."}
{"question": "a", "answer": "#### 7 apples"}
{"question": "a", "answer": "#### 1,2,3"}
{"question": "a", "answer": "2-2\n#### 0"}
{"question": "a", "answer": "#### 1,234"}"#####;
    insta::assert_snapshot!(Written::new("gsm8k", content).report());
}

#[test]
fn bad_svamp_records() {
    let content = br#"[
  {"ID": "a-1", "Body": "A", "Question": "B", "Answer": 8.0, "Type": "Addition"},
  {"ID": "a-2", "Body": "A", "Question": "B", "Answer": "7.5", "Type": "Addition"},
  {"ID": "a-3", "Body": "A", "Question": "B", "Answer": "7 apples"},
  {"ID": "a-4", "Body": "A", "Question": "B", "Answer": "1,2,3"},
  {"ID": "a-5", "Body": "A", "Question": "B"},
  {"ID": "a-6", "Body": null, "Question": "B", "Answer": 1},
  {"ID": "a-7",
   "Body": "A",
   "Question" "B", "Answer": 1},
  {"ID": "a-8", "Body": "A", "Question": "B", "Answer": []},
  {"ID": "a-9", "Body": "A", "Question": "B", "Answer": " 12 ", "Type": "Common-Divison"}
]"#;
    insta::assert_snapshot!(Written::new("svamp", content).report());
}

#[test]
fn bad_question_answering_records() {
    let lines = br#"{"question": "a", "answer": "b", "type": "bridge", "level": "easy", "_id": "5a"}
{"question": "a", "answer": true}
{"question": "a", "answer": "b"
{"answer": "b"}
{"question": "a", "answer": "", "type": 3}"#;
    let array = br#"[{"question": "a", "answer": true}, {"question": "a", "answer": "yes"},
 {"question": "a", "answer": null}, {"question": ["a"], "answer": false}, {"question": "a"}]"#;
    let task_file = br#"{
  "name": "strategyqa", "metrics": ["examples"],
  "examples": [
    {"input": "a", "target_scores": {"Yes": 1, "No": 0}},
    {"input": "b", "target_scores": {"Yes": 0, "No": 1}},
    {"input": "c", "target_scores": {"Yes": 1}},
    {"input": "d", "target_scores": 1}
  ], "more": []
}"#;
    let other = b"{\n\"name\": \"strategyqa\"\n}\n";
    let reports = [
        Written::new("hotpotqa", lines).report(),
        Written::new("hotpotqa", array).report(),
        Written::new("strategyqa", array).report(),
        Written::new("strategyqa", task_file).report(),
        Written::new("strategyqa", other).report(),
    ];
    insta::assert_snapshot!(reports.join("---\n"));
}

#[test]
fn every_sample_corpus_is_one_of_pages() {
    for benchmark in all() {
        let Some(corpus) = benchmark.sample_corpus() else { continue };
        let lines: Vec<&[u8]> = corpus.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        assert!(lines.len() >= 20);
        for line in lines {
            let page: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert!(
                ["title", "text"]
                    .iter()
                    .all(|field| page[field].as_str().is_some_and(|text| !text.is_empty()))
            );
        }
    }
}

#[test]
fn files_that_cannot_be_used() {
    let mut report = String::new();
    let mut say = |case: &str, text: String| writeln!(report, "{case}: {text}").unwrap();
    let error = |benchmark: &str, path: PathBuf| {
        let error = find(benchmark).unwrap().open(DataSource::File(path)).err().unwrap();
        assert!(!error.is_skippable());
        error.to_string()
    };
    say("missing", error("gsm8k", PathBuf::from("/nowhere/gsm8k/test.jsonl")));
    say("default", error("gsm8k", PathBuf::from("data/gsm8k/test.jsonl")));
    say("space", error("svamp", PathBuf::from("my data/svamp/test.json")));
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    say("folder", error("svamp", folder.path().to_owned()).replace(&name, "FOLDER"));
    say("empty", Written::new("gsm8k", b"").report());
    say("blank", Written::new("gsm8k", b"\n \n").report());
    say("empty list", Written::new("svamp", b" [ ]\n").report());
    say("no list", Written::new("svamp", b"{\"ID\": 1}\n").report());
    say("cut", Written::new("svamp", b"[{\"ID\": 1},\n{\"ID\"").report());
    say("binary", Written::new("gsm8k", &[0x1f, 0x8b, 0, 0xff]).report());
    insta::assert_snapshot!(report);
}

#[test]
fn a_byte_order_mark_and_other_line_ends_do_no_harm() {
    let record = "\u{feff}{\"question\": \"a\", \"answer\": \"#### 5\"}\r\n";
    assert_eq!(Written::new("gsm8k", record.as_bytes()).report(), "item 0: 5 (-, -)\n");
}

#[test]
fn samples_load_and_their_gold_answers_follow_from_their_solutions() {
    for benchmark in all().iter().filter(|benchmark| benchmark.name() != "webshop") {
        let items: Vec<_> = benchmark.open(DataSource::Samples).unwrap().collect::<Result<_, _>>().unwrap();
        let expected = match benchmark.name() {
            "mind2web" => 10,
            "intercode_sql" => 20,
            _ if benchmark.sample_corpus().is_some() => 20,
            _ => 30,
        };
        assert_eq!(items.len(), expected, "{}", benchmark.name());
        assert!(items.iter().enumerate().all(|(index, item)| item.index == index as u64));
        for item in &items {
            assert!(item.id.occurrence == 0 && item.record.is_object());
        }
    }
    let groups: std::collections::BTreeSet<_> = find("svamp")
        .unwrap()
        .open(DataSource::Samples)
        .unwrap()
        .filter_map(|item| item.unwrap().group)
        .collect();
    assert_eq!(groups.len(), 4);
    for item in find("gsm8k").unwrap().open(DataSource::Samples).unwrap().map(Result::unwrap) {
        let solution = item.record["answer"].as_str().unwrap();
        let last = solution.rsplit("<<").next().unwrap();
        let value = last.split_once(">>").unwrap().0.rsplit('=').next().unwrap();
        assert_eq!(value, item.target.text(), "{solution}");
    }
}

#[test]
fn goals_are_made_of_a_catalogue() {
    let shop = find("webshop").unwrap();
    let items: Vec<_> = shop.open(DataSource::Samples).unwrap().map(Result::unwrap).collect();
    assert!(items.len() > 40 && items.iter().enumerate().all(|(index, item)| item.index == index as u64));
    for item in &items {
        let content = shop.read(&item.record).unwrap();
        assert_eq!((&content.task, &content.setup), (&item.task, &item.setup));
        assert!(!serde_json::to_string(&item.task).unwrap().contains(item.target.text()));
    }
    let report = Written::new("webshop", b"{}").report();
    assert!(report.contains("items_ins_v2_1000.json") && report.contains("docs/webshop.md"), "{report}");
}

#[test]
fn equal_records_are_counted_and_field_order_does_not_matter() {
    let content = br#####"{"question": "a", "answer": "#### 5"}
{"answer": "#### 5", "question": "a"}
{"question": "b", "answer": "#### 5"}"#####;
    let written = Written::new("gsm8k", content);
    let items: Vec<_> = written.benchmark.open(written.source()).unwrap().map(Result::unwrap).collect();
    assert_eq!(items[0].id.content, items[1].id.content);
    assert_eq!(items.iter().map(|item| item.id.occurrence).collect::<Vec<_>>(), [0, 1, 0]);
    assert_ne!(items[0].id.content, items[2].id.content);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for benchmark in all() {
            Written::new(benchmark.name(), &bytes).report();
        }
    }

    #[test]
    fn a_bad_record_costs_only_itself(bad in 0usize..30, rubbish in "[a-z{\":]{1,20}") {
        // Goals are generated from a catalogue, and a file with anything else is not a valid catalogue.
        for benchmark in all().iter().filter(|benchmark| benchmark.name() != "webshop") {
            let records = benchmark.open(DataSource::Samples).unwrap().map(|item| item.unwrap().record.to_string());
            let mut records: Vec<String> = records.collect();
            let (count, bad) = (records.len(), bad % records.len());
            // An unbalanced quote or brace would swallow the following elements of an array.
            records[bad] = rubbish.replace(['{', '"'], "x");
            let content = match benchmark.name() {
                "svamp" | "mind2web" => format!("[{}]", records.join(",\n")),
                _ => records.join("\n"),
            };
            let written = Written::new(benchmark.name(), content.as_bytes());
            let items: Vec<_> = benchmark.open(written.source()).unwrap().collect();
            prop_assert_eq!(items.len(), count);
            for (index, item) in items.iter().enumerate() {
                prop_assert_eq!(item.is_err(), index == bad);
            }
            prop_assert!(items[bad].as_ref().is_err_and(DataError::is_skippable));
        }
    }
}
