//! Tests of passes over a run.

use lumos_benchmarks::Scoring;
use lumos_coordinator::fleet::run_token;
use lumos_coordinator::manifest::{Manifest, ModelRecord};
use lumos_coordinator::samples::{configuration, item, manifest_of, samples_files};
use lumos_coordinator::{Checkpoint, Record, unit_of};
use lumos_tasks::outcome::PlanEvidence;
use lumos_tasks::{
    AnswerForm, ChatReply, Configuration, ContentHash, Device, Ending, Evidence, Fault, FaultKind, Item,
    ModelIdentity, NanoDollars, Outcome, Placement, Step, Target, Task, Telemetry, ToolCall, ToolReply,
};
use serde_json::Value;

use super::*;
use crate::export;
use crate::report::report;
use crate::results::tests::add_judged_first;
use crate::results::{Cause, RunTable, pooled, seed_groups};

struct Stage {
    folder: tempfile::TempDir,
    manifest: Manifest,
    items: Vec<Item>,
    checkpoint: Checkpoint,
}

fn question(index: u64) -> Item {
    Item {
        task: Task::Qa { question: format!("Who is number {index}?"), answer: AnswerForm::Entity },
        target: Target::Text { answer: format!("Number {index}") },
        ..item(index)
    }
}

fn outcome(prediction: Option<&str>) -> Outcome {
    let evidence = PlanEvidence { prediction: prediction.map(Into::into), ..PlanEvidence::default() };
    Outcome { ending: Ending::Answered, evidence: Some(Evidence::Qa(evidence)), steps: Vec::new() }
}

fn judge() -> Asked {
    let identity = ModelIdentity {
        name: "openai:judge@http://host/v1".to_owned(),
        content: ContentHash::of_bytes(b"judge"),
        dtype: None,
    };
    let model = ModelRecord { identity, files: Vec::new() };
    Asked { model, device: Placement::on(Device::Cuda(1)), memory: None }
}

impl Stage {
    /// Creates a run with two repetitions over some items and no records.
    fn new(count: u64) -> Self {
        Self::of("hotpotqa", count)
    }

    /// The same for a benchmark, which may be `own`, whose first metric is judged.
    fn of(benchmark: &str, count: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..count).map(question).collect();
        let qa = |seed| Configuration { benchmark: benchmark.to_owned(), ..configuration(seed) };
        let mut manifest = manifest_of(&[qa(0), qa(1)], &items);
        add_judged_first(&mut manifest);
        for planned in &mut manifest.configurations {
            planned.planned = count;
        }
        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items(benchmark, &items).unwrap();
        Self { folder, manifest, items, checkpoint }
    }

    async fn settle(&self, position: usize, item: usize, outcome: Outcome) {
        let unit = unit_of(&self.manifest.configurations[position], &self.items[item]);
        let record = Record {
            unit,
            configuration: u32::try_from(position).unwrap(),
            item: item as u64,
            attempt: 1,
            outcome,
            telemetry: Telemetry::default(),
        };
        self.checkpoint.record(record).await.unwrap();
    }

    fn plan(&self) -> Pass {
        plan(self.folder.path(), &self.manifest, &self.checkpoint, judge()).unwrap()
    }
}

/// Records a judge's reply to a question of a pass, as the dispatch does.
async fn reply(pass: &Pass, item: &Item, text: Option<&str>) {
    let Task::Judge { messages, max_new_tokens } = &item.task else { panic!("{:?}", item.task) };
    let call = ToolCall::Chat {
        role: lumos_tasks::Role::Judge,
        messages: messages.clone(),
        max_new_tokens: *max_new_tokens,
    };
    let outcome = match text {
        Some(text) => {
            let reply = ChatReply {
                prompt_tokens: Some(90),
                completion_tokens: Some(2),
                ..ChatReply::recorded(text)
            };
            Outcome {
                ending: Ending::Answered,
                evidence: Some(Evidence::Judge { reply: text.to_owned() }),
                steps: vec![Step::Call { turn: 1, call, reply: ToolReply::Chat(reply) }],
            }
        }
        None => Outcome {
            ending: Ending::Faulted(Fault { kind: FaultKind::Model, message: "503".to_owned() }),
            evidence: None,
            steps: Vec::new(),
        },
    };
    let record = Record {
        unit: unit_of(&pass.manifest.configurations[0], item),
        configuration: 0,
        item: item.index,
        attempt: 1,
        outcome,
        telemetry: Telemetry { cost: text.map(|_| NanoDollars(1_500_000)), ..Telemetry::default() },
    };
    pass.checkpoint.record(record).await.unwrap();
}

fn questions(pass: &Pass) -> Vec<Item> {
    pass.checkpoint.items(BENCHMARK).collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn equal_questions_are_asked_once_and_verdicts_reach_report_and_samples() {
    let stage = Stage::new(3);
    stage.settle(0, 0, outcome(Some("Number 0"))).await;
    stage.settle(1, 0, outcome(Some("Number 0"))).await;
    stage.settle(0, 1, outcome(Some("nobody"))).await;
    stage.settle(1, 1, outcome(Some("somebody"))).await;
    stage.settle(0, 2, outcome(None)).await;
    assert_eq!(report(&stage.manifest, &stage.checkpoint, &[]).unwrap().judge, None);

    let pass = stage.plan();
    assert_eq!((pass.manifest.planned(), pass.unasked), (3, 1));
    let asked = questions(&pass);
    reply(&pass, &asked[0], Some("CORRECT")).await;
    reply(&pass, &asked[1], Some("who knows")).await;
    reply(&pass, &asked[2], None).await;
    pass.checkpoint.close().unwrap();

    let report = report(&stage.manifest, &stage.checkpoint, &Scoring::ALL).unwrap();
    let judged = report.judge.clone().unwrap();
    assert_eq!((judged.questions, judged.verdicts, judged.unclear), (3, 2, 1));
    assert_eq!((judged.prompt_tokens, judged.completion_tokens, judged.cost), (180, 4, Some(0.003)));
    let accuracy = |position: usize| {
        let metrics = &report.configurations[position].scores[0].metrics;
        let metric = metrics.iter().find(|metric| metric.metric == "llm_accuracy").unwrap();
        metric.estimate.map(|estimate| (estimate.numerator, estimate.items)).unwrap()
    };
    // The unit without a prediction counts; the one whose question faulted does not.
    assert_eq!((accuracy(0), accuracy(1)), ((1.0, 3), (1.0, 1)));
    export::export(stage.folder.path(), &stage.manifest, &stage.checkpoint, &[], jiff::Timestamp::UNIX_EPOCH)
        .unwrap();
    let samples = samples_files(stage.folder.path());
    let samples = samples.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
    let samples: Vec<Value> = samples.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let judged: Vec<Value> = samples
        .iter()
        .map(|sample| serde_json::from_str(sample["judge"].as_str().unwrap()).unwrap_or(Value::Null))
        .collect();
    let replies: Vec<_> = judged.iter().map(|judge| judge["verdict"]["reply"].as_str()).collect();
    assert_eq!(replies, [Some("CORRECT"), Some("who knows"), None, Some("CORRECT"), None]);
    assert_eq!(judged[0]["judgement"]["paper"], "correct");
    assert_eq!(judged[1]["judgement"]["corrected"], "unclear");
    assert_eq!(judged[2]["judgement"]["paper"], "incorrect");
    assert_eq!(judged[4], Value::Null);
    assert_eq!((&samples[0]["llm_accuracy"], &samples[0]["exact_match"]), (&1.0.into(), &1.0.into()));
}

#[tokio::test]
async fn another_metric_is_the_main_one_until_the_run_is_judged() {
    let stage = Stage::of("own", 4);
    for item in 0..4 {
        let prediction = if item < 2 { format!("Number {item}") } else { "nobody".to_owned() };
        stage.settle(0, item, outcome(Some(&prediction))).await;
        stage.settle(1, item, outcome(Some(&prediction))).await;
    }
    let main = || {
        let report = report(&stage.manifest, &stage.checkpoint, &[]).unwrap();
        let table = RunTable::read(&stage.manifest, &stage.checkpoint, Scoring::Paper).unwrap();
        let correct = table.cells[0].rows.iter().filter(|row| row.cause == Cause::Correct).count() as u64;
        let one = &report.configurations[0];
        assert_eq!(one.attribution.get(&Cause::Correct), Some(&correct), "{:?}", one.attribution);
        let column = &report.matrix.as_ref().unwrap().columns[0];
        assert_eq!(one.main().unwrap().metric, column.metric);
        (column.metric.clone(), correct)
    };
    assert_eq!(main(), ("exact_match".to_owned(), 2));
    let pass = stage.plan();
    for (at, item) in questions(&pass).iter().enumerate() {
        reply(&pass, item, Some(if at == 0 { "INCORRECT" } else { "CORRECT" })).await;
    }
    pass.checkpoint.close().unwrap();
    assert_eq!(main(), ("llm_accuracy".to_owned(), 3));
}

#[tokio::test]
async fn a_seed_without_verdicts_has_the_metrics_of_the_others() {
    let stage = Stage::of("own", 3);
    for item in 0..3 {
        stage.settle(0, item, outcome(Some(&format!("Number {item}")))).await;
        stage.settle(1, item, outcome(Some("nobody"))).await;
    }
    let pass = stage.plan();
    // The questions of the first seed come first.
    for item in questions(&pass).iter().take(3) {
        reply(&pass, item, Some("CORRECT")).await;
    }
    pass.checkpoint.close().unwrap();
    let table = RunTable::read(&stage.manifest, &stage.checkpoint, Scoring::Paper).unwrap();
    let groups = seed_groups(&table);
    assert_eq!((groups.len(), table.cells[0].metrics.len()), (1, 2));
    assert_eq!(table.cells[0].metrics, table.cells[1].metrics);
    let [judged, exact] = [0, 1].map(|metric| pooled(&table, &groups[0], metric));
    assert_eq!((judged.units, exact.units), (3, 6));
    assert_eq!(exact.estimate.unwrap().value, 0.5);
}

#[tokio::test]
async fn a_pass_goes_on_where_it_stood_and_takes_in_what_is_settled_since() {
    let stage = Stage::new(3);
    stage.settle(0, 1, outcome(Some("a"))).await;
    let pass = stage.plan();
    // Questions and replies are readable by their owner only.
    #[cfg(unix)]
    for private in [stage.folder.path().join("judge"), pass.folder.join("checkpoint")] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(private).unwrap().permissions().mode() & 0o077, 0);
    }
    reply(&pass, &questions(&pass)[0], Some("CORRECT")).await;
    let folder = pass.folder.clone();
    pass.checkpoint.close().unwrap();
    // Precedes the other one in the order of questions.
    stage.settle(0, 0, outcome(Some("b"))).await;
    let pass = stage.plan();
    assert_eq!((&pass.folder, pass.manifest.planned(), pass.checkpoint.settled()), (&folder, 2, 1));
    let open: Vec<_> = questions(&pass)
        .into_iter()
        .filter(|item| {
            let unit = unit_of(&pass.manifest.configurations[0], item);
            pass.checkpoint.records_of(&unit).unwrap().is_empty()
        })
        .collect();
    assert_eq!(open.len(), 1);
    let Task::Judge { messages, .. } = &open[0].task else { panic!() };
    assert!(messages[0].content.contains("Model prediction: b"));
    pass.checkpoint.close().unwrap();
}

#[tokio::test]
async fn a_pass_keeps_its_token_until_its_questions_change() {
    let stage = Stage::new(2);
    stage.settle(0, 0, outcome(Some("a"))).await;
    let token = || {
        let pass = stage.plan();
        pass.checkpoint.close().unwrap();
        run_token(&pass.manifest)
    };
    let first = token();
    assert_eq!([token(), token()], [first.clone(), first.clone()]);
    stage.settle(0, 1, outcome(Some("b"))).await;
    assert_ne!(token(), first);
}

#[tokio::test]
async fn another_judge_is_another_pass_and_a_run_without_judged_metrics_has_none() {
    let stage = Stage::new(1);
    stage.settle(0, 0, outcome(Some("a"))).await;
    let pass = stage.plan();
    let folder = pass.folder.clone();
    pass.checkpoint.close().unwrap();
    let mut other = judge();
    other.model.identity.content = ContentHash::of_bytes(b"other");
    let pass = plan(stage.folder.path(), &stage.manifest, &stage.checkpoint, other).unwrap();
    assert_ne!(pass.folder, folder);
    let written = Manifest::read(&pass.folder).unwrap();
    assert_eq!(written.spec.device, Placement::on(Device::Cuda(1)), "the judge's, not the run's");
    pass.checkpoint.close().unwrap();

    let items = [item(0)];
    let manifest = manifest_of(&[configuration(0)], &items);
    let error = plan(stage.folder.path(), &manifest, &stage.checkpoint, judge()).unwrap_err().to_string();
    assert!(error.contains("svamp"), "{error}");
}

#[tokio::test]
async fn verdicts_survive_a_damaged_journal() {
    let stage = Stage::new(3);
    for item in 0..3 {
        stage.settle(0, item, outcome(Some(&format!("Number {item}")))).await;
    }
    let pass = stage.plan();
    for item in questions(&pass) {
        reply(&pass, &item, Some("CORRECT")).await;
    }
    let folder = pass.folder.join("checkpoint");
    pass.checkpoint.close().unwrap();
    let whole = report(&stage.manifest, &stage.checkpoint, &[]).unwrap();
    let journal = folder.join("journal");
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() * 2 / 3]).unwrap();
    assert_eq!(report(&stage.manifest, &stage.checkpoint, &[]).unwrap(), whole);
    assert_eq!(std::fs::read(&journal).unwrap().len(), bytes.len() * 2 / 3, "a report repairs nothing");
    // The same judge repairs the pass when run again, and repeats no question.
    let pass = stage.plan();
    assert!(std::fs::read(&journal).unwrap().len() > bytes.len() * 2 / 3, "outcomes are restored");
    assert_eq!(pass.checkpoint.settled(), 3);
    assert_eq!(pass_folders(stage.folder.path()).unwrap(), std::slice::from_ref(&pass.folder));
    pass.checkpoint.close().unwrap();
    assert_eq!(report(&stage.manifest, &stage.checkpoint, &[]).unwrap(), whole);
}
