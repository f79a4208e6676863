use std::fs;

use lumos_tasks::outcome::{PlanEvidence, Value};
use lumos_tasks::{AnswerForm, Behaviour, Ending, Evidence, Item, Outcome, Task};
use proptest::prelude::*;

use super::*;
use crate::error::DataError;
use crate::score::Scoring;

fn with(family: TaskFamily, change: impl FnOnce(&mut TaskDefinition)) -> TaskDefinition {
    let mut definition = TaskDefinition::new("own", family, "items.jsonl");
    change(&mut definition);
    definition
}

/// Reads items from a data file with this text.
fn read(definition: TaskDefinition, text: &str) -> Vec<Result<Item, DataError>> {
    assert_eq!(definition.problems(), []);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(&definition.data.file), text).unwrap();
    let file = TaskFile { path: folder.path().join("task.toml"), definition };
    let benchmark = file.benchmark();
    benchmark.open(benchmark.source(None)).unwrap().collect()
}

fn messages(definition: TaskDefinition, text: &str) -> Vec<String> {
    let errors = read(definition, text).into_iter().filter_map(Result::err);
    errors.map(|error| error.to_string().rsplit_once("items.").unwrap().1.to_owned()).collect()
}

fn scored(definition: &TaskDefinition, prediction: &str, gold: &str) -> bool {
    let file = TaskFile { path: "task.toml".into(), definition: definition.clone() };
    let benchmark = file.benchmark();
    let record = serde_json::json!({"question": "How many?", "answer": gold});
    let target = benchmark.read(&record).unwrap().target;
    let plan = PlanEvidence { prediction: Some(Value::from(prediction)), ..PlanEvidence::default() };
    let outcome =
        Outcome { ending: Ending::Answered, evidence: Some(Evidence::Maths(plan)), steps: Vec::new() };
    let metric = &benchmark.metrics()[0];
    let full =
        Scoring::ALL.map(|scoring| benchmark.score(&target, &outcome, scoring).unwrap().is_full(metric));
    assert_eq!(full[0], full[1], "both scorings agree on own data");
    full[0]
}

#[test]
fn records_are_read_from_the_mapped_fields() {
    let definition = with(TaskFamily::Qa, |own| {
        own.fields = TaskFields {
            question: "query".to_owned(),
            answer: "gold.text".to_owned(),
            id: Some("key".to_owned()),
            group: Some("level".to_owned()),
            context: Some("story".to_owned()),
            cluster: Some("story".to_owned()),
            database: None,
        };
    });
    let record =
        r#"{"key": 7, "story": "Ada wrote it.", "query": "Who?", "gold": {"text": "Ada"}, "level": "easy"}"#;
    let items = read(definition.clone(), record);
    let item = items[0].as_ref().unwrap();
    assert_eq!((item.name.as_deref(), item.group.as_deref()), (Some("7"), Some("easy")));
    let question = "Ada wrote it. Who?".to_owned();
    assert_eq!(item.task, Task::Qa { question, answer: AnswerForm::Entity });
    assert_eq!(item.target.text(), "Ada");
    let benchmark = TaskFile { path: "task.toml".into(), definition }.benchmark();
    assert_eq!(benchmark.cluster(item).as_deref(), Some("Ada wrote it."));
    assert_eq!((benchmark.group_label(), benchmark.title()), (Some("level"), "own"));
}

#[test]
fn all_formats_give_the_same_tasks() {
    let rows = [("items.csv", "question,answer\nOne and one?,2\n\"A, b?\",1/2\n")];
    let json = r#"[{"question": "One and one?", "answer": 2}, {"question": "A, b?", "answer": "1/2"}]"#;
    let lines =
        "{\"question\": \"One and one?\", \"answer\": 2}\n{\"question\": \"A, b?\", \"answer\": \"1/2\"}\n";
    let texts = rows.into_iter().chain([("items.json", json), ("items.jsonl", lines)]);
    for (name, text) in texts {
        let definition = with(TaskFamily::Maths, |own| own.data.file = name.into());
        let items: Vec<Item> = read(definition, text).into_iter().map(Result::unwrap).collect();
        let read: Vec<_> = items.iter().map(|item| (&item.task, item.target.text())).collect();
        let task = |question: &str| Task::Maths { question: question.to_owned() };
        assert_eq!(read, [(&task("One and one?"), "2"), (&task("A, b?"), "1/2")], "{name}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn rows_of_parquet_are_the_same_items_as_lines() {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;

    let questions: ArrayRef = Arc::new(StringArray::from(vec!["One and one?", "A, b?", "Which?"]));
    let answers: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(3), None]));
    let batch = RecordBatch::try_from_iter([("question", questions), ("answer", answers)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.parquet");
    let mut writer = ArrowWriter::try_new(fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let definition = with(TaskFamily::Maths, |own| own.data.file = "items.parquet".into());
    let file = TaskFile { path: folder.path().join("task.toml"), definition };
    let benchmark = file.benchmark();
    let rows: Vec<_> = benchmark.open(benchmark.source(None)).unwrap().collect();
    let lines = "{\"answer\": 2, \"question\": \"One and one?\"}\n{\"question\": \"A, b?\", \"answer\": 3}\n";
    let lines = read(with(TaskFamily::Maths, |_| {}), lines);
    let ids = |items: &[Result<Item, DataError>]| {
        items.iter().filter_map(|item| Some(item.as_ref().ok()?.id.clone())).collect::<Vec<_>>()
    };
    assert_eq!((ids(&rows), rows.len()), (ids(&lines), 3));
    let error = rows[2].as_ref().unwrap_err();
    assert!(error.is_skippable());
    assert_eq!(
        error.to_string().rsplit_once("items.").unwrap().1,
        "parquet:3: field `answer`: expected a string or a number, found null"
    );
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so() {
    let definition = with(TaskFamily::Maths, |own| own.data.file = "items.parquet".into());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("items.parquet"), "PAR1").unwrap();
    let file = TaskFile { path: folder.path().join("task.toml"), definition };
    let benchmark = file.benchmark();
    let error = benchmark.open(benchmark.source(None)).map(drop).unwrap_err().to_string();
    assert!(error.contains("built without `parquet`; build it with `cargo build"), "{error}");
}

#[test]
fn errors_name_file_line_and_field() {
    let lines = [
        r#"{"question": "a", "answer": "1", "id": "x"}"#,
        r#"{"question": 7, "answer": "1", "id": "y"}"#,
        r#"{"question": "b", "id": "z"}"#,
        r#"{"question": "c", "answer": "seven", "id": "u"}"#,
        r#"{"question": "d", "answer": "1", "id": "x"}"#,
        "{",
    ];
    let definition = with(TaskFamily::Maths, |own| {
        own.fields.id = Some("id".to_owned());
        own.answer.kind = Some(AnswerKind::Number);
    });
    let found = messages(definition, &lines.join("\n"));
    let expected = [
        "jsonl:2: field `question`: expected a string, found the number 7",
        "jsonl:3: field `answer`: expected a string or a number, found no such field; the record has question, id",
        "jsonl:4: field `answer`: expected a number or a fraction, found the string \"seven\"",
        "jsonl:5: field `id`: expected a different value for each record, found `x`, as in line 1",
        "jsonl:6: expected a JSON object, found invalid JSON (EOF while parsing an object, column 1)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn gold_queries_pass_the_check_of_statements() {
    let lines = [
        r#"{"question": "a", "answer": "SELECT 1", "database": "zoo"}"#,
        r#"{"question": "b", "answer": "SELECT 1; SELECT 2", "database": "zoo"}"#,
    ];
    let found = messages(with(TaskFamily::Sql, |_| {}), &lines.join("\n"));
    let expected = "jsonl:2: field `answer`: expected a statement that an agent may run, found the string \
                    \"SELECT 1; SELECT 2\": rejected with `Only one statement at a time is carried out`";
    assert_eq!(found, [expected]);
}

#[test]
fn gold_answers_are_found_with_a_pattern() {
    let definition = with(TaskFamily::Maths, |own| own.answer.pattern = Some("#### (.*)".to_owned()));
    let items = read(definition.clone(), "{\"question\": \"q\", \"answer\": \"2+3=5\\n#### 5\"}");
    assert_eq!(items[0].as_ref().unwrap().target.text(), "5");
    let found = messages(definition, "{\"question\": \"q\", \"answer\": \"5\"}");
    assert_eq!(
        found,
        ["jsonl:1: field `answer`: expected a text that matches `#### (.*)`, found the string \"5\""]
    );
}

#[test]
fn answers_are_compared_by_their_kind() {
    let maths = with(TaskFamily::Maths, |_| {});
    assert!(scored(&maths, "18.0", "18") && scored(&maths, "0.5", "1/2"));
    assert!(scored(&maths, "the Red one", "red one") && !scored(&maths, "18", "red"));
    let near = with(TaskFamily::Maths, |own| own.answer.tolerance = Some(0.01));
    assert!(scored(&near, "101", "100") && scored(&near, "-99", "-100") && !scored(&near, "102", "100"));
    let yes = with(TaskFamily::Qa, |own| own.answer.kind = Some(AnswerKind::YesNo));
    assert!(scored(&yes, "Yes, it is", "true") && !scored(&yes, "No", "yes"));
}

#[test]
fn numbers_may_have_an_exponent() {
    let definition = with(TaskFamily::Maths, |own| own.answer.kind = Some(AnswerKind::Number));
    let lines = r#"{"question": "a", "answer": 0.000001}
{"question": "b", "answer": 1e21}
{"question": "c", "answer": 5.0}
{"question": "d", "answer": "2.5e-7"}"#;
    let items: Vec<Item> = read(definition.clone(), lines).into_iter().map(Result::unwrap).collect();
    let golds: Vec<&str> = items.iter().map(|item| item.target.text()).collect();
    assert_eq!(golds, ["0.000001", "1000000000000000000000", "5.0", "2.5e-7"]);
    assert!(scored(&definition, "0.00000025", "2.5e-7") && scored(&definition, "1e-06", "0.000001"));
    assert!(!scored(&definition, "2.5", "2.5e-7"));
    let maths = with(TaskFamily::Maths, |_| {});
    assert!(scored(&maths, "1e-6", "1e-6") && scored(&maths, "the E numbers", "E numbers"));
}

#[test]
fn blank_cells_are_no_group_and_no_cluster() {
    let definition = with(TaskFamily::Maths, |own| {
        own.data.file = "items.csv".into();
        own.fields.group = Some("kind".to_owned());
        own.fields.cluster = Some("story".to_owned());
    });
    let text = "question,answer,kind,story\nOne?,1,,\nTwo?,2, ,\nThree?,3,sums,apples\n";
    let items: Vec<Item> = read(definition.clone(), text).into_iter().map(Result::unwrap).collect();
    let groups: Vec<_> = items.iter().map(|item| item.group.as_deref()).collect();
    assert_eq!(groups, [None, None, Some("sums")]);
    let benchmark = TaskFile { path: "task.toml".into(), definition }.benchmark();
    let clusters: Vec<_> = items.iter().map(|item| benchmark.cluster(item)).collect();
    assert_eq!(clusters, [None, None, Some("apples".to_owned())]);
}

#[test]
fn null_is_ignored_and_a_missing_field_is_an_error() {
    let definition = with(TaskFamily::Maths, |own| {
        own.fields.group = Some("kind".to_owned());
        own.fields.cluster = Some("story".to_owned());
    });
    let lines = [
        r#"{"question": "a", "answer": "1", "kind": null, "story": null}"#,
        r#"{"question": "b", "answer": "1", "kind": 3, "story": "apples"}"#,
        r#"{"question": "c", "answer": "1", "story": "apples"}"#,
        r#"{"question": "d", "answer": "1", "kind": "sums"}"#,
        r#"{"question": "e", "answer": "1", "kind": "sums", "story": []}"#,
    ];
    let items = read(definition.clone(), &lines.join("\n"));
    let benchmark = TaskFile { path: "task.toml".into(), definition: definition.clone() }.benchmark();
    let valid = items.iter().filter_map(|item| item.as_ref().ok());
    let found: Vec<_> = valid.map(|item| (item.group.as_deref(), benchmark.cluster(item))).collect();
    assert_eq!(found, [(None, None), (Some("3"), Some("apples".to_owned()))]);
    assert_eq!(
        messages(definition, &lines.join("\n")),
        [
            "jsonl:3: field `kind`: expected a string or a number, found no such field; the record has \
             question, answer, story",
            "jsonl:4: field `story`: expected a string or a number, found no such field; the record has \
             question, answer, kind",
            "jsonl:5: field `story`: expected a string or a number, found a list",
        ]
    );
}

#[test]
fn problems_name_their_keys() {
    let keys = |definition: &TaskDefinition| {
        definition.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let bad = with(TaskFamily::Maths, |own| {
        own.name = "gsm8k".to_owned();
        own.data.file = "items.txt".into();
        own.max_rounds = Some(0);
        own.metrics = vec!["bleu".to_owned()];
        own.tools = BTreeMap::from([("wiki".to_owned(), "live".to_owned())]);
        own.fields.id = Some(String::new());
        own.answer.pattern = Some("(a)(b)".to_owned());
        own.answer.tolerance = Some(2.0);
        own.published = vec![TaskFigure {
            metric: Some("f1".to_owned()),
            formulation: Formulation::Iterative,
            system: "ours".to_owned(),
            percent: 101.0,
            source: String::new(),
        }];
    });
    assert_eq!(
        keys(&bad),
        [
            "name",
            "data.file",
            "max_rounds",
            "metrics",
            "tools",
            "fields.id",
            "answer.pattern",
            "answer.tolerance",
            "published.metric",
            "published.percent",
            "data.items",
        ]
    );
    assert_eq!(keys(&with(TaskFamily::Qa, |own| own.name = "../up".to_owned())), ["name"]);
}

#[test]
fn identity_follows_what_changes_items() {
    let hash = |change: fn(&mut TaskDefinition)| {
        let file = TaskFile { path: "task.toml".into(), definition: with(TaskFamily::Qa, change) };
        file.benchmark().prompts_hash()
    };
    let plain = hash(|_| {});
    assert_eq!(plain, hash(|own| own.title = Some("Own".to_owned())));
    assert_eq!(plain, hash(|own| own.answer.kind = Some(AnswerKind::Text)));
    assert_ne!(plain, hash(|own| own.answer.kind = Some(AnswerKind::YesNo)));
    assert_ne!(plain, hash(|own| own.fields.question = "q".to_owned()));
    assert_ne!(plain, hash(|own| own.fields.context = Some("story".to_owned())));
    let rounds =
        TaskFile { path: "a".into(), definition: with(TaskFamily::Qa, |own| own.max_rounds = Some(3)) };
    assert_eq!(Behaviour::ALL.map(|behaviour| rounds.benchmark().max_rounds(behaviour)), [3, 3]);
}

proptest! {
    #[test]
    fn arbitrary_records_never_panic(text in "(\\{\"(question|answer|id)\": (\"[a1/ ]{0,3}\"|[0-9]|\\[\\])[,}]?\n?){0,4}") {
        let definition = with(TaskFamily::Maths, |own| own.fields.id = Some("id".to_owned()));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("items.jsonl"), text).unwrap();
        let file = TaskFile { path: folder.path().join("task.toml"), definition };
        let benchmark = file.benchmark();
        if let Ok(items) = benchmark.open(benchmark.source(None)) {
            let _ = items.count();
        }
    }
}
