//! Parses Mind2Web records: one task with its gold actions (for example `test_domain_*.json`).

use lumos_environments::dom::Tree;
use lumos_tasks::families::web::WebStep;
use lumos_tasks::{GoldStep, Setup, Target, Task};
use serde_json::{Value, json};

use crate::loading::{Content, RecordError, describe, optional_text, text};

/// Official scoring considers candidates below this rank.
pub(super) const TOP_K: u64 = 50;

/// Separator between the groups of an item.
pub(super) const BETWEEN_GROUPS: &str = "\n";

/// Label of the group that an item's website forms.
pub(super) const WEBSITE: &str = "website";

/// Removes unneeded fields from a record (`raw_html`, the candidates' attributes), which are most of a file.
/// `split` is the split to which the file belongs.
pub(super) fn reduced(mut record: Value, split: Option<&str>) -> Value {
    let Value::Object(fields) = &mut record else { return record };
    if let Some(split) = split {
        fields.insert("split".to_owned(), json!(split));
    }
    for action in fields.get_mut("actions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Value::Object(action) = action else { continue };
        action.retain(|name, _| KEPT_OF_ACTION.contains(&name.as_str()));
        for list in ["pos_candidates", "neg_candidates"] {
            for candidate in action.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(candidate) = candidate {
                    candidate.retain(|name, _| KEPT_OF_CANDIDATE.contains(&name.as_str()));
                }
            }
        }
    }
    record
}

const KEPT_OF_ACTION: [&str; 5] =
    ["action_uid", "cleaned_html", "operation", "pos_candidates", "neg_candidates"];
const KEPT_OF_CANDIDATE: [&str; 2] = ["backend_node_id", "rank"];

/// Parses a record. Its groups are split, domain and website.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
    let task = text(record, "confirmed_task")?.to_owned();
    let name = optional_text(record, "annotation_id");
    let history = texts(record, "action_reprs")?;
    let actions = list(record, "actions")?;
    if actions.is_empty() {
        return Err(RecordError::new("actions", "at least one action", "none", "IndexError"));
    }
    let (mut steps, mut gold) = (Vec::with_capacity(actions.len()), Vec::with_capacity(actions.len()));
    for (index, action) in actions.iter().enumerate() {
        let (step, right) = read_step(action).map_err(|error| error.at(index, action, name.as_deref()))?;
        steps.push(step);
        gold.push(right);
    }
    let group =
        |label: &str, field: &str| optional_text(record, field).map(|value| format!("{label}: {value}"));
    let groups = [("split", "split"), ("domain", "domain"), (WEBSITE, "website")];
    let groups: Vec<String> = groups.into_iter().filter_map(|(label, field)| group(label, field)).collect();
    let words = history.join("; ");
    Ok(Content {
        name,
        group: (!groups.is_empty()).then(|| groups.join(BETWEEN_GROUPS)),
        task: Task::Web {
            task,
            steps: u32::try_from(actions.len()).unwrap_or(u32::MAX),
            teacher_forced_history: history,
            verbs: Vec::new(),
        },
        setup: Setup::Web { steps },
        target: Target::Web { steps: gold, words },
    })
}

/// Error of a step.
struct StepError {
    field: &'static str,
    expected: &'static str,
    found: String,
}

impl StepError {
    fn new(field: &'static str, expected: &'static str, found: Option<&Value>) -> Self {
        let found = found.map_or_else(|| "no such field".to_owned(), describe);
        Self { field, expected, found }
    }

    fn at(self, index: usize, action: &Value, task: Option<&str>) -> RecordError {
        let uid = action.get("action_uid").and_then(Value::as_str).unwrap_or("without an id");
        let task = task.unwrap_or("without an id");
        let found = format!("{} in step {} ({uid}) of the task {task}", self.found, index + 1);
        RecordError::new(self.field, self.expected, found, "KeyError")
    }
}

fn read_step(action: &Value) -> Result<(WebStep, GoldStep), StepError> {
    let page = match action.get("cleaned_html") {
        Some(Value::String(page)) => page,
        found => return Err(StepError::new("cleaned_html", "the page's XML", found)),
    };
    if let Err(error) = Tree::parse(page) {
        let found = format!("an invalid page ({error})");
        return Err(StepError { field: "cleaned_html", expected: "the page's XML", found });
    }
    let operation = action.get("operation");
    let of_operation =
        |name: &str| operation.and_then(|operation| operation.get(name)).and_then(Value::as_str);
    let Some(op) = of_operation("op") else {
        return Err(StepError::new("operation", "an object with the string `op`", operation));
    };
    let positives = candidates(action, "pos_candidates")?;
    let negatives = candidates(action, "neg_candidates")?;
    let ids = |candidates: &[(String, Option<u64>)]| candidates.iter().map(|(id, _)| id.clone()).collect();
    let ranked = positives.iter().filter(|(_, rank)| rank.is_none_or(|rank| rank < TOP_K));
    let gold = GoldStep {
        action_uid: action.get("action_uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
        reference: positives.iter().chain(&negatives).map(|(id, _)| id.clone()).next().unwrap_or_default(),
        positives: ids(&positives),
        ranked_positives: ranked.map(|(id, _)| id.clone()).collect(),
        operation: op.to_owned(),
        value: of_operation("value").unwrap_or_default().to_owned(),
    };
    let step = WebStep { page: page.clone(), positives: ids(&positives), negatives: ids(&negatives) };
    Ok((step, gold))
}

/// Returns the ids of an action's candidates with their ranks, if they have any.
fn candidates(action: &Value, field: &'static str) -> Result<Vec<(String, Option<u64>)>, StepError> {
    let wrong =
        |found: Option<&Value>| StepError::new(field, "a list of objects with `backend_node_id`", found);
    let Some(Value::Array(candidates)) = action.get(field) else { return Err(wrong(action.get(field))) };
    let one = |candidate: &Value| {
        let id = match candidate.get("backend_node_id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => return Err(wrong(Some(candidate))),
        };
        Ok((id, candidate.get("rank").and_then(Value::as_u64)))
    };
    candidates.iter().map(one).collect()
}

fn list<'a>(record: &'a Value, field: &'static str) -> Result<&'a Vec<Value>, RecordError> {
    match crate::loading::required(record, field, "a list")? {
        Value::Array(list) => Ok(list),
        other => Err(RecordError::new(field, "a list", describe(other), "TypeError")),
    }
}

fn texts(record: &Value, field: &'static str) -> Result<Vec<String>, RecordError> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(RecordError::new(field, "a list of strings", describe(other), "TypeError")),
    };
    list(record, field)?.iter().map(text).collect()
}
