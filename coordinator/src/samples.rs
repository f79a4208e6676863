//! Values for tests of this crate and of `lumos-reports`. Compiled always, so that tests need no feature that other builds lack.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lumos_tasks::outcome::{Observation, PlanEvidence};
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Ending, Evidence, Fault, FaultKind, Finish, Formulation,
    GenerationSettings, Item, ItemId, MathsReply, ModelIdentity, Outcome, Reason, Role, Setup, Stage, Step,
    Target, Task, Telemetry, ToolCall, ToolReply, UnitId,
};

use crate::checkpoint::{Checkpoint, CheckpointError, Record, Recorded};
use crate::manifest::{FileRecord, MachineInfo, Manifest, ManifestParts, ModelRecord, PlannedData};
use crate::spec::{ModelSet, RunSpec};

impl Checkpoint {
    /// Records one outcome.
    ///
    /// # Errors
    /// As [`Checkpoint::record_all`].
    pub async fn record(&self, record: Record) -> Result<Recorded, CheckpointError> {
        Ok(self.record_all(vec![record]).await?[0])
    }
}

/// Returns the item at a position.
pub fn item(index: u64) -> Item {
    let question = format!("Tom has {index} apples and buys 2 more. How many apples has he?");
    let answer = (index + 2).to_string();
    let record = serde_json::json!({"question": question, "answer": answer});
    Item {
        id: ItemId { content: ContentHash::of_json(&record), occurrence: 0 },
        index,
        name: Some(format!("item-{index}")),
        group: Some(if index.is_multiple_of(2) { "Addition" } else { "Subtraction" }.to_owned()),
        task: Task::Maths { question },
        setup: Setup::None,
        target: Target::Number { answer },
        record,
    }
}

/// Returns a configuration with a seed.
pub fn configuration(seed: u64) -> Configuration {
    let model = |name: &str| ModelIdentity {
        name: format!("candle:models/{name}"),
        content: ContentHash::of_bytes(name.as_bytes()),
        dtype: Some("f32".to_owned()),
    };
    Configuration {
        benchmark: "svamp".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 2,
        models: BTreeMap::from([(Role::Planner, model("planner")), (Role::Grounder, model("grounder"))]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed,
        prompts: ContentHash::of_bytes(b"prompts"),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    }
}

/// Returns a manifest of these configurations and items.
pub fn manifest_of(configurations: &[Configuration], items: &[Item]) -> Manifest {
    let spec = RunSpec {
        name: Some("sample".to_owned()),
        tasks: Some(vec!["svamp".to_owned()]),
        models: Some(vec![ModelSet::of("candle:models/planner")]),
        ..RunSpec::default()
    };
    manifest_with(spec.resolve().unwrap(), configurations, items)
}

/// Returns a manifest of a specification.
pub fn manifest_with(
    spec: crate::spec::ResolvedSpec,
    configurations: &[Configuration],
    items: &[Item],
) -> Manifest {
    let models = configurations[0]
        .models
        .values()
        .map(|identity| ModelRecord {
            identity: identity.clone(),
            files: vec![FileRecord {
                name: "model.safetensors".to_owned(),
                bytes: 1000,
                sha256: identity.content.clone(),
            }],
        })
        .collect();
    let mut manifest = Manifest::new(ManifestParts {
        spec,
        configurations: configurations.iter().cloned().map(Into::into).collect(),
        models,
        data: vec![PlannedData {
            benchmark: "svamp",
            source: "data/svamp/test.json".to_owned(),
            sha256: ContentHash::of_bytes(b"data"),
            records: 1000,
            invalid: 0,
            items: &items.iter().map(|item| (item.index, item.id.clone())).collect::<Vec<_>>(),
        }],
        git_revision: Some("0123abcd".to_owned()),
        created: "2025-01-02T03:04:05Z".parse().unwrap(),
    });
    manifest.versions.insert("lumos".to_owned(), "0.0.0".to_owned());
    manifest.machine = MachineInfo { cores: 2, os: "linux".to_owned(), architecture: "x86_64".to_owned() };
    manifest
}

/// Returns the record of an item's unit. Ten consecutive items cover every kind of ending.
pub fn state(index: u64, unit: &UnitId) -> Option<Record> {
    let generate = |turn, role, prompt: &str, reply: &str| Step::Generate {
        turn,
        role,
        prompt: prompt.to_owned(),
        reply: reply.to_owned(),
        finish: Finish::Stop,
        prompt_tokens: Some(100),
        completion_tokens: Some(10),
    };
    let planned =
        generate(1, Role::Planner, "<|user|>\nPlan.\n<|assistant|>\n", "Subgoal 1: <b>Add</b> & 'count'");
    let grounded =
        generate(1, Role::Grounder, "<|user|>\nGround.\n<|assistant|>\n", "R1 = Calculator(1 + 2)");
    let answered = |text: &str, rounds_exhausted| {
        let evidence =
            PlanEvidence { prediction: Some(text.into()), rounds_exhausted, ..PlanEvidence::default() };
        let query = format!("{index} + 2");
        let steps = vec![
            planned.clone(),
            grounded.clone(),
            Step::Call {
                turn: 1,
                call: ToolCall::Maths { query },
                reply: ToolReply::Maths(MathsReply::One(text.to_owned())),
            },
            Step::Action {
                turn: 1,
                action: format!("R1 = Calculator({index} + 2)"),
                observation: Observation::Text(text.to_owned()),
            },
        ];
        Outcome { ending: Ending::Answered, evidence: Some(Evidence::Maths(evidence)), steps }
    };
    let gave_up = |stage, detail: &str| Outcome {
        ending: Ending::GaveUp(Reason { stage, turn: 1, detail: detail.to_owned() }),
        evidence: Some(Evidence::Maths(PlanEvidence::default())),
        steps: vec![planned.clone(), grounded.clone()],
    };
    let right = (index + 2).to_string();
    let outcome = match index % 10 {
        0..=3 => answered(&right, false),
        4 => answered(&format!("{right}.0"), false),
        5 => answered("<script>alert(1)</script>", false),
        6 => answered("1000", true),
        7 => gave_up(Stage::GrounderUnknownAction, "unknown action `Sum`"),
        8 => Outcome {
            ending: Ending::Faulted(Fault { kind: FaultKind::Timeout, message: "300 s".to_owned() }),
            evidence: None,
            steps: vec![planned],
        },
        _ => return None,
    };
    let seconds = f64::from(u32::try_from(index).unwrap() + 1) / 4.0;
    Some(Record {
        unit: unit.clone(),
        configuration: 0,
        item: index,
        attempt: 1,
        telemetry: Telemetry { seconds, attempt: 1, worker: "worker-1".to_owned(), ..Telemetry::default() },
        outcome,
    })
}

/// Returns the exported samples files in a run's folder, sorted.
pub fn samples_files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|ending| ending == "jsonl")).collect();
    files.sort();
    files
}
