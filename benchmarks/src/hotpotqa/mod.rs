//! HotpotQA: multi-hop questions over two pages (Yang et al. 2018; upstream `eval/hotpotqa/run_eval.py`).

use lumos_tasks::families::qa;
use lumos_tasks::{AnswerForm, Formulation, Setup, Target, Task};
use serde_json::Value;

use crate::benchmark::{
    Benchmark, BenchmarkDescription, Download, LATER_LISTING, Origin, PROJECT_PAGE, PublishedFigure,
    PublishedItems, QA_MODULES, QA_TOOLS, Training, figure,
};
use crate::judge::LLM_ACCURACY;
use crate::loading::{Content, Layout, RecordError, open, optional_text, text};
use crate::metrics::{EXACT_MATCH, F1, score_words};
use crate::task_file::TaskFamily;

/// HotpotQA's development set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HotpotQa;

static HOTPOTQA: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "hotpotqa",
    title: "HotpotQA",
    family: TaskFamily::Qa,
    data_file: "hotpotqa/test.json",
    formulations: &Formulation::OF_LUMOS,
    max_rounds: &|_| 5,
    modules: &QA_MODULES,
    tools: &QA_TOOLS,
    prompts_hash: &qa::prompts_hash,
    metrics: &[EXACT_MATCH, F1, LLM_ACCURACY],
    published: &PUBLISHED,
    published_items: Some(PublishedItems::First(1000)),
    downloads: &[Download {
        file: "hotpotqa/test.json",
        url: "https://raw.githubusercontent.com/allenai/lumos/146dd9d61bb295582e9e432980f60b9ff4ecfe5c/data/eval/hotpotqa/test.json",
        sha256: "05001dcdeb2b2b2243a88f23daaf8de9237494cd387e13bc25854d3e031101d3",
        licence: "CC BY-SA 4.0",
    }],
    group_label: Some("Type"),
    annotation_domain: Some("complex_qa"),
    training: Training::Unlisted(include_bytes!("../test_items/hotpotqa.bin")),
    samples: include_bytes!("../../samples/hotpotqa.json"),
    open: |about, source| open(about, &source, Layout::Either),
    read: &read_record,
    score: &|target, outcome, _| score_words(target, outcome),
};

impl Benchmark for HotpotQa {
    fn description(&self) -> &'static BenchmarkDescription {
        &HOTPOTQA
    }

    fn sample_corpus(&self) -> Option<&'static [u8]> {
        Some(lumos_environments::retrieval::HOTPOTQA_PAGES.as_bytes())
    }
}

/// Parses a record: `{"question", "answer", "type"}` in the Lumos file, and also `_id`, `level`,
/// `supporting_facts` and `context` in the official files. The paragraphs of `context` contain the answer and
/// are never shown to the agent.
///
/// Its group is the type, followed by the level if the file has one: `bridge, hard`.
fn read_record(record: &Value) -> Result<Content, RecordError> {
    let question = text(record, "question")?.to_owned();
    let answer = text(record, "answer")?.to_owned();
    let group = match (optional_text(record, "type"), optional_text(record, "level")) {
        (Some(kind), Some(level)) => Some(format!("{kind}, {level}")),
        (kind, level) => kind.or(level),
    };
    Ok(Content {
        name: optional_text(record, "_id"),
        group,
        task: Task::Qa { question, answer: AnswerForm::Entity },
        setup: Setup::None,
        target: Target::Text { answer },
    })
}

const PUBLISHED: [PublishedFigure; 9] = [
    figure(&EXACT_MATCH, Formulation::OneTime, "Lumos-O 7B", 24.9, PROJECT_PAGE),
    figure(&LLM_ACCURACY, Formulation::OneTime, "Lumos-O 7B", 39.2, PROJECT_PAGE),
    figure(&EXACT_MATCH, Formulation::Iterative, "Lumos-I 7B", 29.4, PROJECT_PAGE),
    figure(&LLM_ACCURACY, Formulation::Iterative, "Lumos-I 7B", 45.9, PROJECT_PAGE),
    figure(&EXACT_MATCH, Formulation::Iterative, "Lumos-I 7B, GPT-4 as QA tool", 36.0, PROJECT_PAGE),
    figure(&LLM_ACCURACY, Formulation::Iterative, "Lumos-I 7B, GPT-4 as QA tool", 56.8, PROJECT_PAGE),
    figure(&EXACT_MATCH, Formulation::Iterative, "Lumos-I 13B", 36.3, LATER_LISTING),
    figure(&LLM_ACCURACY, Formulation::Integrated, "integrated training 7B", 39.6, PROJECT_PAGE),
    figure(&LLM_ACCURACY, Formulation::Cot, "chain of thought 7B", 22.1, PROJECT_PAGE),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_kinds_of_files() {
        let lumos = read_record(&json!({"question": "Who?", "answer": "Ada", "type": "bridge"})).unwrap();
        assert_eq!((lumos.name, lumos.group.as_deref()), (None, Some("bridge")));
        let official = json!({
            "_id": "5a8b", "question": "Who?", "answer": "Ada", "type": "comparison", "level": "hard",
            "supporting_facts": [["Ada", 0]], "context": [["Ada", ["A sentence."]]],
        });
        let official = read_record(&official).unwrap();
        assert_eq!(official.name.as_deref(), Some("5a8b"));
        assert_eq!(official.group.as_deref(), Some("comparison, hard"));
        assert!(!serde_json::to_string(&official.task).unwrap().contains("sentence"));
    }
}
