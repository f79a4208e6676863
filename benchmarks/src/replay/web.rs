//! Recorded cases on web pages: comparison of items, rankings and outcomes.

use lumos_environments::dom;
use lumos_tasks::families::web::{ActionName, CandidateScope, Chosen, WebEvidence, option_hint};
use lumos_tasks::recorded::{Case, WebAction};
use lumos_tasks::{Ending, GoldStep, Role, Setup, Task, ToolCall, ToolReply};

use serde_json::{Value, json};

use super::compare::{differing_texts, equal};
use super::drive::Driven;
use crate::mind2web::{acts_with_operation, acts_with_value, succeeds_as_published};

/// Returns the task with the verbs that were drawn in the recording.
pub(super) fn with_recorded_verbs(mut task: Task, case: &Case) -> Task {
    if let Task::Web { verbs, .. } = &mut task {
        *verbs = case.randint.iter().map(|[_, _, drawn]| *drawn).collect();
    }
    task
}

/// Returns the candidates of a page.
pub(super) fn candidates(setup: &Setup, step: u32, scope: CandidateScope) -> Result<ToolReply, String> {
    let Setup::Web { steps } = setup else { return Err("the item has no pages".to_owned()) };
    let page = steps.get(step as usize).ok_or_else(|| format!("the item has no page {step}"))?;
    Ok(match dom::candidates(page, scope) {
        Ok(elements) => ToolReply::Candidates(elements),
        Err(error) => ToolReply::Raised { message: format!("{}: {error}", error.exception()) },
    })
}

/// Returns the original's recorded scores for the ranking after `before` others, if the query is equal;
/// `None` if rankings were recorded as calls.
pub(super) fn recorded_ranking(
    case: &Case,
    before: usize,
    call: &ToolCall,
) -> Option<Result<ToolReply, String>> {
    let ToolCall::Rank { question, passages } = call else { return None };
    let recorded = case.expected.steps.as_ref()?;
    if recorded.iter().all(|action| action.unique_tags.is_empty()) {
        return None;
    }
    let number = before + 1;
    let Some(action) = recorded.get(before) else {
        return Some(Err(format!("ranking {number}: expected only {before}")));
    };
    if let Some(difference) = differing_texts(&action.scorer_query, question) {
        return Some(Err(format!("ranking {number}, query: {difference}")));
    }
    for (place, (recorded, passage)) in action.unique_tags.iter().zip(passages).enumerate() {
        if let Some(difference) = differing_texts(recorded, &passage.text) {
            return Some(Err(format!("ranking {number}, text {}: {difference}", place + 1)));
        }
    }
    let (recorded, asked) = (action.unique_tags.len(), passages.len());
    if recorded != asked {
        return Some(Err(format!("ranking {number}: expected {recorded} texts, got {asked}")));
    }
    Some(Ok(ToolReply::Rank(action.scores.clone())))
}

/// Compares the chosen actions, step by step, and where the run ended.
pub(super) fn compare(case: &Case, driven: &Driven, gold: &[GoldStep]) -> Result<(), String> {
    let evidence = driven.outcome.evidence.as_ref().and_then(|evidence| evidence.web());
    let evidence = evidence.ok_or("the episode ended without evidence")?;
    let expected = &case.expected;
    equal("error", &expected.error, &evidence.raised)?;
    let step = evidence.raised.as_ref().and_then(|_| error_step(&driven.outcome.ending));
    equal("error_step", &expected.error_step, &step)?;
    if expected.iterations.is_some() {
        // A step counts as an iteration once its actions are parsed.
        let steps = u32::try_from(driven.asked(Role::Grounder)).unwrap_or(u32::MAX);
        equal("iterations", &expected.iterations, &Some(steps))?;
    }
    equal("randint", &case.randint, &drawn(evidence))?;
    let recorded = expected.steps.as_deref().unwrap_or_default();
    let originals = Originals { case, setup: &driven.setup, gold };
    for (index, (recorded, chosen)) in recorded.iter().zip(&evidence.chosen).enumerate() {
        let got = if recorded.env_ids.is_empty() {
            action(chosen, gold)
        } else {
            originals.action(recorded, chosen)?
        };
        fields(&format!("action {}", index + 1), &json!(recorded), &json!(got))?;
    }
    equal("tot_tags", &expected.tot_tags.unwrap_or_default(), &(evidence.chosen.len() as u32))?;
    let successes = evidence.chosen.iter().filter(|chosen| succeeds_as_published(chosen, gold)).count();
    equal("corr_em", &expected.corr_em.unwrap_or_default(), &(successes as u32))?;
    for role in [Role::Planner, Role::Grounder] {
        let (recorded, asked) = (case.prompts.of(role).len(), driven.asked(role));
        if recorded != asked {
            return Err(format!("the {role} was called {asked} times, expected {recorded} prompts"));
        }
    }
    Ok(())
}

/// Compares the recorded fields. The ranker's query and scores were compared when the ranker was called.
fn fields(place: &str, recorded: &Value, got: &Value) -> Result<(), String> {
    const ASKED: [&str; 3] = ["scorer_query", "unique_tags", "scores"];
    let recorded = recorded.as_object().into_iter().flatten();
    recorded.filter(|(name, _)| !ASKED.contains(&name.as_str())).try_for_each(|(name, recorded)| {
        equal(&format!("{place}, {name}"), recorded, got.get(name).unwrap_or(&Value::Null))
    })
}

/// Returns the drawn verbs, each with the bounds between which it was drawn.
fn drawn(evidence: &WebEvidence) -> Vec<[u32; 3]> {
    evidence.drawn.iter().map(|[below, drawn]| [0, below.saturating_sub(1), *drawn]).collect()
}

/// Fields of an action that only the original's recordings contain.
struct Originals<'a> {
    case: &'a Case,
    setup: &'a Setup,
    gold: &'a [GoldStep],
}

impl Originals<'_> {
    fn action(&self, recorded: &WebAction, chosen: &Chosen) -> Result<WebAction, String> {
        let elements = match candidates(self.setup, chosen.page, CandidateScope::Published)? {
            ToolReply::Candidates(elements) => elements,
            other => return Err(format!("failed to read the page of an action: {other:?}")),
        };
        let text_of = |id: Option<&String>| {
            let id = id?;
            elements.iter().find(|element| element.id == *id).map(|element| element.text.clone())
        };
        let step = chosen.step as usize;
        let chosen_tag = text_of(Some(&chosen.element));
        let reference_tag = elements.first().map(|element| element.text.clone());
        let gold = self.gold.get(step);
        let action = action(chosen, self.gold);
        // The query was compared when the ranker was called.
        let asked = format!("task is: {}\nPrevious actions: ", action.query);
        Ok(WebAction {
            previous_actions: recorded.scorer_query.strip_prefix(&asked).map(str::to_owned),
            operation: self.case.item.pointer(&format!("/actions/{step}/operation")).cloned(),
            env_ids: elements.iter().map(|element| element.id.clone()).collect(),
            element_match: Some(chosen_tag == reference_tag),
            op_match: Some(gold.is_some_and(|gold| acts_with_operation(chosen, gold))),
            value_match: Some(gold.is_some_and(|gold| acts_with_value(chosen, gold))),
            counted_total: Some(1),
            chosen_tag,
            reference_tag,
            ..action
        })
    }
}

/// Records the outcome of an episode.
pub(super) fn write(case: &mut Case, evidence: &WebEvidence, gold: &[GoldStep], ending: &Ending) {
    let successes = evidence.chosen.iter().filter(|chosen| succeeds_as_published(chosen, gold)).count();
    case.randint = drawn(evidence);
    case.expected.steps = Some(evidence.chosen.iter().map(|chosen| action(chosen, gold)).collect());
    case.expected.corr_em = Some(successes as u32);
    case.expected.tot_tags = Some(evidence.chosen.len() as u32);
    case.expected.error.clone_from(&evidence.raised);
    case.expected.error_step = evidence.raised.as_ref().and_then(|_| error_step(ending));
}

fn error_step(ending: &Ending) -> Option<u32> {
    match ending {
        Ending::GaveUp(reason) => Some(reason.turn.saturating_sub(1)),
        Ending::Answered | Ending::Faulted(_) => None,
    }
}

fn action(chosen: &Chosen, gold: &[GoldStep]) -> WebAction {
    // The original records the query in the form sent to the ranker.
    let mut query = chosen.query.clone();
    if chosen.action == ActionName::Select {
        query.push_str(&option_hint(chosen.text.as_deref().unwrap_or_default()));
    }
    WebAction {
        step: chosen.step,
        action: chosen.action.word().to_owned(),
        query,
        text: chosen.text.clone(),
        chosen_ids: chosen.alike.clone(),
        returned_tag: chosen.returned.clone(),
        counted_success: u32::from(succeeds_as_published(chosen, gold)),
        ..WebAction::default()
    }
}
