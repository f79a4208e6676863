//! Figures over all steps.

use std::collections::BTreeMap;

use serde::Serialize;

use super::evaluate::Evaluation;
use super::sample::Sample;

/// Figures of the multi-choice evaluators, with the names of the official results.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Mean over steps: the element is correct.
    pub(crate) element_acc: f64,
    /// Mean over steps: F1 of operation and value.
    pub(crate) action_f1: f64,
    /// Mean over steps: both are correct.
    pub(crate) step_acc: f64,
    /// Mean over tasks of `element_acc`.
    pub(crate) marco_element_acc: f64,
    /// Mean over tasks of `action_f1`.
    pub(crate) marco_action_f1: f64,
    /// Mean over tasks of `step_acc`.
    pub(crate) marco_step_acc: f64,
    /// Fraction of tasks with 0, 1, 2, 3 and more incorrect steps. The fraction with 0 is the task success
    /// rate.
    pub(crate) error_ratio: BTreeMap<String, f64>,
    /// By website: mean over tasks of the fraction of correct steps, and the number of tasks.
    pub(crate) acc_per_website: BTreeMap<String, (f64, u64)>,
}

/// Sums of one task.
#[derive(Debug, Default)]
struct Task<'a> {
    website: &'a str,
    steps: f64,
    element: f64,
    f1: f64,
    step: f64,
}

/// Computes the figures over steps. The original adds a step without a correct element to its task when it
/// reaches the next step with one, so such steps at the very end are part of the means over steps and of no
/// task.
pub(crate) fn figures<'a>(steps: impl IntoIterator<Item = (&'a Sample, &'a Evaluation)>) -> Figures {
    let all: Vec<_> = steps.into_iter().collect();
    let in_tasks = all.iter().rposition(|(_, evaluation)| evaluation.can_be_right).map_or(0, |last| last + 1);
    let mut tasks: BTreeMap<&str, Task<'_>> = BTreeMap::new();
    for (sample, evaluation) in all.iter().take(in_tasks) {
        let task = tasks.entry(&sample.annotation_id).or_default();
        task.website = &sample.website;
        task.steps += 1.0;
        task.element += evaluation.element;
        task.f1 += evaluation.f1;
        task.step += evaluation.step;
    }
    let count = tasks.len() as f64;
    let sum = |value: fn(&Task<'_>) -> f64| tasks.values().map(value).sum::<f64>();
    let over_steps = |value: fn(&Evaluation) -> f64| {
        all.iter().map(|(_, evaluation)| value(evaluation)).sum::<f64>() / (all.len().max(1)) as f64
    };
    let ratio =
        |numerator: f64, denominator: f64| if denominator > 0.0 { numerator / denominator } else { 0.0 };
    let mut figures = Figures {
        element_acc: over_steps(|evaluation| evaluation.element),
        action_f1: over_steps(|evaluation| evaluation.f1),
        step_acc: over_steps(|evaluation| evaluation.step),
        marco_element_acc: ratio(sum(|task| task.element / task.steps), count),
        marco_action_f1: ratio(sum(|task| task.f1 / task.steps), count),
        marco_step_acc: ratio(sum(|task| task.step / task.steps), count),
        ..Figures::default()
    };
    for task in tasks.values() {
        let wrong = task.steps - task.step;
        let key = if wrong > 3.0 { ">3".to_owned() } else { wrong.to_string() };
        *figures.error_ratio.entry(key).or_default() += 1.0;
        let website = figures.acc_per_website.entry(task.website.to_owned()).or_default();
        website.0 += task.step / task.steps;
        website.1 += 1;
    }
    figures.error_ratio.values_mut().for_each(|share| *share /= count);
    figures.acc_per_website.values_mut().for_each(|(mean, tasks)| *mean /= *tasks as f64);
    figures
}

/// Figures of the generation evaluator: element accuracy and action F1 over steps, in percent.
pub(crate) fn generation_figures<'a>(steps: impl IntoIterator<Item = &'a Evaluation>) -> (f64, f64) {
    let (mut count, mut element, mut f1) = (0.0, 0.0, 0.0);
    for evaluation in steps {
        count += 1.0;
        element += evaluation.element;
        f1 += evaluation.f1;
    }
    if count == 0.0 { (0.0, 0.0) } else { (element / count * 100.0, f1 / count * 100.0) }
}
