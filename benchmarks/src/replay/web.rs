//! Recorded cases on web pages: what their items, rankings and outcomes are compared by.

use lumos_environments::dom;
use lumos_tasks::families::web::{ActionName, CandidateScope, Chosen, WebEvidence, option_hint};
use lumos_tasks::recorded::{Case, WebAction};
use lumos_tasks::{Ending, GoldStep, Role, Setup, Task, ToolCall, ToolReply};

use super::compare::{differing_texts, equal};
use super::drive::Driven;
use crate::mind2web::succeeds_as_published;

/// The task with the verbs that were drawn when it was recorded.
pub(super) fn with_recorded_verbs(mut task: Task, case: &Case) -> Task {
    if let Task::Web { verbs, .. } = &mut task {
        *verbs = case.randint.iter().map(|[_, _, drawn]| *drawn).collect();
    }
    task
}

/// What a page's candidates look like.
pub(super) fn candidates(setup: &Setup, step: u32, scope: CandidateScope) -> Result<ToolReply, String> {
    let Setup::Web { steps } = setup else { return Err("the item has no pages".to_owned()) };
    let page = steps.get(step as usize).ok_or_else(|| format!("the item has no page {step}"))?;
    Ok(match dom::candidates(page, scope) {
        Ok(elements) => ToolReply::Candidates(elements),
        Err(error) => ToolReply::Raised { message: format!("{}: {error}", error.exception()) },
    })
}

/// The original's recorded scores of the ranking that comes after `before` others, if it was asked the same; `None` where
/// rankings were recorded as calls.
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
        return Some(Err(format!("ranking {number}: recorded are only {before}")));
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
        return Some(Err(format!("ranking {number}: recorded are {recorded} texts, asked {asked}")));
    }
    Some(Ok(ToolReply::Rank(action.scores.clone())))
}

/// Compares what was chosen, step by step, and where the run ended.
pub(super) fn compare(case: &Case, driven: &Driven, gold: &[GoldStep]) -> Result<(), String> {
    let evidence = driven.outcome.evidence.as_ref().and_then(|evidence| evidence.web());
    let evidence = evidence.ok_or("the episode ended without evidence")?;
    let expected = &case.expected;
    equal("error", &expected.error, &evidence.raised)?;
    if expected.error.is_some() {
        equal("error_step", &expected.error_step, &error_step(&driven.outcome.ending))?;
    }
    let recorded = expected.steps.as_deref().unwrap_or_default();
    for (index, (recorded, chosen)) in recorded.iter().zip(&evidence.chosen).enumerate() {
        let got = action(chosen, gold);
        let compared = WebAction {
            env_ids: Vec::new(),
            scorer_query: String::new(),
            unique_tags: Vec::new(),
            scores: Vec::new(),
            ..recorded.clone()
        };
        equal(&format!("action {}", index + 1), &compared, &got)?;
    }
    equal("tot_tags", &expected.tot_tags.unwrap_or_default(), &(evidence.chosen.len() as u32))?;
    let successes = evidence.chosen.iter().filter(|chosen| succeeds_as_published(chosen, gold)).count();
    equal("corr_em", &expected.corr_em.unwrap_or_default(), &(successes as u32))?;
    for role in [Role::Planner, Role::Grounder] {
        let (recorded, asked) = (case.prompts.of(role).len(), driven.asked(role));
        if recorded != asked {
            return Err(format!("the {role} is asked {asked} times, recorded are {recorded} prompts"));
        }
    }
    Ok(())
}

/// Writes down what came of an episode.
pub(super) fn write(case: &mut Case, evidence: &WebEvidence, gold: &[GoldStep], ending: &Ending) {
    let successes = evidence.chosen.iter().filter(|chosen| succeeds_as_published(chosen, gold)).count();
    case.randint = evidence.drawn.iter().map(|[below, drawn]| [0, below.saturating_sub(1), *drawn]).collect();
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
    // The original records the query as it asks the ranker.
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
