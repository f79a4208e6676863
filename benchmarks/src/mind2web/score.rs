//! Scores episodes on web pages: the paper's step success rate, and the official figures with their F1 between
//! two actions written as text.

use std::collections::BTreeSet;

use lumos_tasks::families::web::{ActionName, Chosen, WebEvidence, WebResult};
use lumos_tasks::python::is_space;
use lumos_tasks::{Evidence, GoldStep, Outcome, Target};

use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring, Share};

/// The paper's metric.
pub(super) const STEP_SUCCESS: MetricDefinition = MetricDefinition::proportion(
    "step_success_rate",
    "share of the actions carried out (corrected: of the gold steps) whose element, operation and value are right",
);
/// Actions that a browser could execute.
pub(super) const EXECUTABLE: MetricDefinition = MetricDefinition::proportion(
    "executable",
    "in a browser: share of the gold steps whose predicted action could be carried out and took effect, right or wrong",
);
/// Correct elements that a browser could click.
pub(super) const REACHABLE: MetricDefinition = MetricDefinition::proportion(
    "reachable",
    "in a browser: share of the steps tried whose right element could be clicked",
);
/// The chosen element is correct.
pub(super) const ELEMENT_ACCURACY: MetricDefinition = MetricDefinition::proportion(
    "element_accuracy",
    "official: share of the gold steps whose element is right",
);
/// F1 of the words of operation and value.
pub(super) const ACTION_F1: MetricDefinition = MetricDefinition::unit_mean(
    "action_f1",
    "official: mean F1 over the gold steps between the words of operation and value",
);
/// Element and action are correct.
pub(super) const OFFICIAL_STEP_SUCCESS: MetricDefinition = MetricDefinition::proportion(
    "official_step_success_rate",
    "official: share of the gold steps whose element and action are right",
);
/// All steps are correct.
pub(super) const TASK_SUCCESS: MetricDefinition = MetricDefinition::proportion(
    "task_success_rate",
    "official: share of the tasks all of whose steps are right",
);
/// Mean over tasks of the element accuracy.
pub(super) const MACRO_ELEMENT_ACCURACY: MetricDefinition = MetricDefinition::unit_mean(
    "macro_element_accuracy",
    "official: mean over tasks of the element accuracy",
);
/// Mean over tasks of the action F1.
pub(super) const MACRO_ACTION_F1: MetricDefinition =
    MetricDefinition::unit_mean("macro_action_f1", "official: mean over tasks of the action F1");
/// Mean over tasks of the step success rate.
pub(super) const MACRO_STEP_SUCCESS: MetricDefinition = MetricDefinition::unit_mean(
    "macro_step_success_rate",
    "official: mean over tasks of the step success rate",
);

/// Scores an outcome; `None` for a fault.
pub(super) fn score(target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
    let Target::Web { steps, .. } = target else { return None };
    if outcome.is_fault() {
        return None;
    }
    let nothing = WebEvidence::default();
    let evidence = outcome.evidence.as_ref().and_then(Evidence::web).unwrap_or(&nothing);
    let official: Vec<Official> =
        steps.iter().enumerate().map(|(index, gold)| Official::of(gold, last_of(evidence, index))).collect();
    let count = official.len() as f64;
    let sum = |value: fn(&Official) -> f64| official.iter().map(value).sum::<f64>();
    let (element, f1, step) = (sum(|one| one.element), sum(|one| one.f1), sum(|one| one.step));
    let all = f64::from(official.iter().all(|one| one.step == 1.0));
    let share = |numerator: f64, denominator: f64| Share { numerator, denominator };
    let mean = |sum: f64| Share::once(if count > 0.0 { sum / count } else { 0.0 });
    let mut score = ItemScore::default()
        .with(ELEMENT_ACCURACY.name, share(element, count))
        .with(ACTION_F1.name, share(f1, count))
        .with(OFFICIAL_STEP_SUCCESS.name, share(step, count))
        .with(TASK_SUCCESS.name, Share::once(all))
        .with(MACRO_ELEMENT_ACCURACY.name, mean(element))
        .with(MACRO_ACTION_F1.name, mean(f1))
        .with(MACRO_STEP_SUCCESS.name, mean(step));
    if evidence.in_browser {
        score = in_browser(score, evidence, steps.len());
    }
    let (met, counted) = match scoring {
        Scoring::Paper => {
            let met = evidence.chosen.iter().filter(|chosen| succeeds_as_published(chosen, steps)).count();
            (met, evidence.chosen.len())
        }
        Scoring::Corrected => {
            let met = steps.iter().enumerate().filter(|(index, gold)| {
                last_of(evidence, *index)
                    .is_some_and(|chosen| gold.positives.contains(&chosen.element) && acts_as(chosen, gold))
            });
            (met.count(), steps.len())
        }
    };
    if counted > 0 {
        score = score.with(STEP_SUCCESS.name, share(met as f64, counted as f64));
    }
    Some(score)
}

/// Adds the results of executing the predictions in a browser. A step without a prediction counts as not
/// executed.
fn in_browser(mut score: ItemScore, evidence: &WebEvidence, steps: usize) -> ItemScore {
    let share = |numerator: usize, denominator: usize| Share {
        numerator: numerator as f64,
        denominator: denominator as f64,
    };
    let predictions: Vec<&Chosen> = (0..steps).filter_map(|step| last_of(evidence, step)).collect();
    let done =
        predictions.iter().filter(|chosen| chosen.carried.is_some_and(|carried| carried.action.is_done()));
    score = score.with(EXECUTABLE.name, share(done.count(), steps));
    // In behaviour `paper` an action may refer to the page of another step.
    let own = predictions.iter().filter(|chosen| chosen.page == chosen.step);
    let truths: Vec<WebResult> = own.filter_map(|chosen| chosen.carried?.truth).collect();
    if !truths.is_empty() {
        let done = truths.iter().filter(|truth| truth.is_done()).count();
        score = score.with(REACHABLE.name, share(done, truths.len()));
    }
    score
}

/// Whether the original counts an action as a success: the element's text equals that of the first element of
/// its page (one of the positives, if there are any), and operation and value equal those of the step.
pub(crate) fn succeeds_as_published(chosen: &Chosen, steps: &[GoldStep]) -> bool {
    let (Some(page), Some(gold)) = (steps.get(chosen.page as usize), steps.get(chosen.step as usize)) else {
        return false;
    };
    chosen.alike.contains(&page.reference) && acts_as(chosen, gold)
}

fn acts_as(chosen: &Chosen, gold: &GoldStep) -> bool {
    acts_with_operation(chosen, gold) && acts_with_value(chosen, gold)
}

/// Whether the action has the gold operation.
pub(crate) fn acts_with_operation(chosen: &Chosen, gold: &GoldStep) -> bool {
    chosen.action.word() == gold.operation
}

/// Whether the text equals the gold value, ignoring case; a click has no value.
pub(crate) fn acts_with_value(chosen: &Chosen, gold: &GoldStep) -> bool {
    let same = |text: &String| text.to_lowercase() == gold.value.to_lowercase();
    chosen.action == ActionName::Click || chosen.text.as_ref().is_some_and(same)
}

/// Returns the prediction of a step: the last action executed in it.
fn last_of(evidence: &WebEvidence, step: usize) -> Option<&Chosen> {
    evidence.chosen.iter().rev().find(|chosen| chosen.step as usize == step)
}

/// Official figures of one step.
struct Official {
    element: f64,
    f1: f64,
    step: f64,
}

impl Official {
    fn of(gold: &GoldStep, chosen: Option<&Chosen>) -> Self {
        let Some(chosen) = chosen.filter(|_| !gold.ranked_positives.is_empty()) else {
            return Self { element: 0.0, f1: 0.0, step: 0.0 };
        };
        let element = f64::from(gold.ranked_positives.contains(&chosen.element));
        let prediction = format!("{} {}", chosen.action.word(), chosen.text.as_deref().unwrap_or_default());
        let f1 = f1(&prediction, &written(&gold.operation, &gold.value));
        Self { element, f1, step: f64::from(element == 1.0 && f1 == 1.0) }
    }
}

/// F1 between the sets of words of two texts; 1 if both are empty, 0 if one is empty.
fn f1(prediction: &str, gold: &str) -> f64 {
    let (prediction, gold) = (words(prediction), words(gold));
    if prediction.is_empty() && gold.is_empty() {
        return 1.0;
    }
    if prediction.is_empty() || gold.is_empty() {
        return 0.0;
    }
    let same = prediction.intersection(&gold).count() as f64;
    let (precision, recall) = (same / prediction.len() as f64, same / gold.len() as f64);
    if precision == 0.0 || recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(is_space).filter(|word| !word.is_empty()).collect()
}

/// Formats an action for official scoring: its name, and its value if it has one.
fn written(operation: &str, value: &str) -> String {
    if operation == "CLICK" { operation.to_owned() } else { format!("{operation} {value}") }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader};

    use flate2::read::GzDecoder;
    use lumos_tasks::Ending;
    use lumos_tasks::families::web::{Obstacle, PageExecution};

    use super::*;

    fn gold(operation: &str, value: &str) -> GoldStep {
        GoldStep {
            reference: "1".to_owned(),
            positives: vec!["1".to_owned(), "2".to_owned()],
            ranked_positives: vec!["2".to_owned()],
            operation: operation.to_owned(),
            value: value.to_owned(),
            ..GoldStep::default()
        }
    }

    fn chosen(step: u32, action: ActionName, text: Option<&str>, element: &str) -> Chosen {
        Chosen {
            step,
            action,
            query: String::new(),
            text: text.map(str::to_owned),
            page: step,
            element: element.to_owned(),
            alike: vec![element.to_owned()],
            returned: String::new(),
            carried: None,
        }
    }

    #[test]
    fn steps_are_scored_as_published_and_officially() {
        let words = String::new();
        let target = Target::Web {
            steps: vec![gold("CLICK", ""), gold("TYPE", "New York"), gold("CLICK", "")],
            words,
        };
        let evidence = WebEvidence {
            chosen: vec![
                chosen(0, ActionName::Click, None, "1"),
                chosen(0, ActionName::Click, None, "2"),
                chosen(1, ActionName::Type, Some("new york"), "2"),
            ],
            ..WebEvidence::default()
        };
        let outcome =
            Outcome { ending: Ending::Answered, evidence: Some(Evidence::Web(evidence)), steps: Vec::new() };
        let of = |scoring, metric: &MetricDefinition| {
            let share = score(&target, &outcome, scoring).unwrap().share(metric.name).unwrap();
            (share.numerator, share.denominator)
        };
        assert_eq!(of(Scoring::Paper, &STEP_SUCCESS), (1.0, 3.0), "only the first element is the reference");
        assert_eq!(of(Scoring::Corrected, &STEP_SUCCESS), (2.0, 3.0));
        assert_eq!(of(Scoring::Paper, &ELEMENT_ACCURACY), (2.0, 3.0));
        assert_eq!(
            of(Scoring::Paper, &OFFICIAL_STEP_SUCCESS),
            (1.0, 3.0),
            "values are compared letter by letter"
        );
        assert_eq!(of(Scoring::Paper, &TASK_SUCCESS), (0.0, 1.0));
        assert_eq!(of(Scoring::Paper, &ACTION_F1).0, 1.0 + 1.0 / 3.0);
    }

    #[test]
    fn f1_is_as_recorded() {
        let Some(path) = lumos_capabilities::shared("golden/mind2web/official_units.jsonl.gz") else {
            return;
        };
        let rows = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
        let rows = rows.map(|row| serde_json::from_str::<serde_json::Value>(&row.unwrap()).unwrap());
        let mut count = 0;
        for row in rows.filter(|row| row["function"] == "multichoice.calculate_f1") {
            let found = f1(row["pred"].as_str().unwrap(), row["label"].as_str().unwrap());
            assert!((found - row["output"].as_f64().unwrap()).abs() < 1e-9, "{}", row["id"]);
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn what_a_browser_did_is_counted_beside_and_only_where_there_was_one() {
        let target = Target::Web { steps: vec![gold("CLICK", ""); 3], words: String::new() };
        let carried = |action, truth| Some(PageExecution { action, truth });
        let refused = WebResult::Refused(Obstacle::Hidden);
        let with = |chosen: Chosen, carried| Chosen { carried, ..chosen };
        let click = |step| chosen(step, ActionName::Click, None, "9");
        let mut evidence = WebEvidence {
            chosen: vec![
                // Only the last action of a step is its prediction.
                with(click(0), None),
                with(click(0), carried(WebResult::Done, Some(refused))),
                // The page of another step.
                Chosen { page: 0, ..with(click(1), carried(refused, Some(WebResult::Done))) },
            ],
            in_browser: true,
            ..WebEvidence::default()
        };
        let scored = |evidence: &WebEvidence| {
            let evidence = Some(Evidence::Web(evidence.clone()));
            let outcome = Outcome { ending: Ending::Answered, evidence, steps: Vec::new() };
            score(&target, &outcome, Scoring::Corrected).unwrap()
        };
        let score = scored(&evidence);
        let of =
            |metric: &MetricDefinition| score.share(metric.name).map(|one| (one.numerator, one.denominator));
        assert_eq!((of(&EXECUTABLE), of(&REACHABLE)), (Some((1.0, 3.0)), Some((0.0, 1.0))));
        evidence.chosen.clear();
        let score = scored(&evidence);
        let of =
            |metric: &MetricDefinition| score.share(metric.name).map(|one| (one.numerator, one.denominator));
        assert_eq!((of(&EXECUTABLE), of(&REACHABLE)), (Some((0.0, 3.0)), None));
        evidence.in_browser = false;
        assert_eq!(scored(&evidence).share(EXECUTABLE.name), None);
    }
}
