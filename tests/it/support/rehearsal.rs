//! Generated items with scripted replies, for testing a fleet.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_benchmarks::{get, replay};
use lumos_environments::maths;
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Episode, Formulation, GenerationSettings, Item,
    ItemId, MathsReply, Next, Reply, Role, ToolCall, ToolReply, WorkUnit,
};
use serde_json::{Value, json};

/// A data folder, and a script that answers every prompt of its items.
pub(crate) struct Rehearsal {
    pub(crate) data: PathBuf,
    pub(crate) script: PathBuf,
}

/// Model turns of most items: three of the planner, two of the grounder.
pub(crate) const TURNS: u32 = 5;

impl Rehearsal {
    /// Writes `count` GSM8K items and their script to a folder. Every seventh has a wrong answer, and every
    /// eleventh ends in an action that cannot be executed, so that all kinds of endings occur.
    pub(crate) fn write(folder: &Path, count: u64) -> Self {
        Self::write_records(folder, count, Formulation::Iterative, record, replies)
    }

    /// Returns the arguments of a run over the items with the script.
    pub(crate) fn arguments(&self) -> String {
        let (script, data) = (self.script.display(), self.data.display());
        format!("--tasks gsm8k --model 'script:{script}' --data '{data}'")
    }

    /// Number of model turns of an item. If the second action cannot be executed, no turns follow.
    pub(crate) fn turns(index: u64) -> u32 {
        if index % 11 == 5 { TURNS - 1 } else { TURNS }
    }

    /// Writes items that need one reply, padded so that units and outcomes have about the given sizes in
    /// bytes on the queue.
    pub(crate) fn write_null(folder: &Path, count: u64, item_bytes: usize, outcome_bytes: usize) -> Self {
        // Subtract the size of the other fields of the messages.
        let question = "pear ".repeat(item_bytes.saturating_sub(700) / 5);
        let reply = "x".repeat(outcome_bytes.saturating_sub(item_bytes + 400));
        let record = json!({ "question": format!("How many?{question}"), "answer": "#### 1" });
        // All items are equal and differ in their occurrence only, so the script is short and fast to read.
        let written = Self::write_records(
            folder,
            1,
            Formulation::Direct,
            |_| record.clone(),
            |_, _| vec![format!("{reply} 1")],
        );
        let mut items =
            std::io::BufWriter::new(std::fs::File::create(written.data.join("gsm8k/test.jsonl")).unwrap());
        for _ in 0..count {
            writeln!(items, "{record}").unwrap();
        }
        items.flush().unwrap();
        written
    }

    fn write_records(
        folder: &Path,
        count: u64,
        formulation: Formulation,
        record: impl Fn(u64) -> Value,
        replies: impl Fn(u64, Role) -> Vec<String>,
    ) -> Self {
        let data = folder.join("data");
        std::fs::create_dir_all(data.join("gsm8k")).unwrap();
        let script = folder.join("script.jsonl");
        let create = |path: &Path| std::io::BufWriter::new(std::fs::File::create(path).unwrap());
        let mut items = create(&data.join("gsm8k/test.jsonl"));
        let mut cases = create(&script);
        for index in 0..count {
            let record = record(index);
            writeln!(items, "{record}").unwrap();
            writeln!(cases, "{}", case(index, &record, formulation, |role| replies(index, role))).unwrap();
        }
        items.flush().unwrap();
        cases.flush().unwrap();
        Self { data, script }
    }
}

fn numbers(index: u64) -> (u64, u64, u64) {
    (10 + index % 89, 5 + index % 97, 1 + index % 7)
}

fn record(index: u64) -> Value {
    let (first, second, third) = numbers(index);
    let answer = first + second - third + u64::from(index % 7 == 3);
    json!({
        "question": format!(
            "Crate {index} holds {first} pears. Ines puts {second} more into it and takes {third} out. How many pears are in it?"
        ),
        "answer": format!("It holds {answer} pears.\n#### {answer}"),
    })
}

fn replies(index: u64, role: Role) -> Vec<String> {
    let (first, second, third) = numbers(index);
    match role {
        Role::Planner => vec![
            "Subgoal 1: Calculate the number of pears with those put in.".to_owned(),
            "No, I will keep planning. Subgoal 2: Calculate the number of pears left.".to_owned(),
            "Yes, I will stop planning.".to_owned(),
        ],
        Role::Grounder if index % 11 == 5 => {
            vec![format!("R1 = Calculator({first} + {second})"), "R2 = Weigh(R1)".to_owned()]
        }
        Role::Grounder => {
            vec![format!("R1 = Calculator({first} + {second})"), format!("R2 = Calculator(R1 - {third})")]
        }
        Role::Answerer | Role::Qa | Role::Judge => Vec::new(),
    }
}

/// Returns the item's episode with these replies as a recorded case.
fn case(
    index: u64,
    record: &Value,
    formulation: Formulation,
    replies: impl Fn(Role) -> Vec<String>,
) -> Value {
    let benchmark = get("gsm8k").unwrap();
    let content = benchmark.read(record).unwrap();
    let item = Item {
        id: ItemId { content: ContentHash::of_json(record), occurrence: 0 },
        index,
        name: content.name,
        group: content.group,
        task: content.task,
        setup: content.setup,
        target: content.target,
        record: record.clone(),
    };
    let configuration = Arc::new(Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation,
        behaviour: Behaviour::Paper,
        max_rounds: benchmark.max_rounds(Behaviour::Paper),
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: benchmark.prompts_hash(),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    });
    let unit = WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), configuration);
    let mut episode = Episode::start(&unit);
    let mut asked: BTreeMap<Role, usize> = BTreeMap::new();
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let turn = asked.entry(request.role).or_default();
                let reply = replies(request.role)[*turn].clone();
                *turn += 1;
                Reply::Completion(Completion::recorded(&reply))
            }
            Next::Call(ToolCall::Maths { query }) => {
                let reply = match maths::answer(query) {
                    Ok(maths::MathsAnswer::One(text)) => MathsReply::One(text),
                    Ok(maths::MathsAnswer::Many(texts)) => {
                        MathsReply::Many(texts.into_iter().map(Some).collect())
                    }
                    Err(error) => MathsReply::NoResult { message: error.to_string() },
                };
                Reply::Tool(ToolReply::Maths(reply))
            }
            Next::Call(other) => panic!("unexpected call: {other:?}"),
        };
        episode.feed(reply).unwrap();
    }
    serde_json::to_value(replay::record(&item, &unit, &episode.finish()).unwrap()).unwrap()
}
