//! Judging by a model: the prompt, the interpretation of the reply, and the record of a verdict. Performs no
//! I/O; the judge runs in a separate pass, and its verdicts are stored separately from the outcomes.

use lumos_tasks::{ContentHash, Message, ModelIdentity, Outcome, Target, Task, UnitId};
use serde::Serialize;

use crate::metrics::{MetricDefinition, prediction};
use crate::score::{ItemScore, Scoring, Share};

/// Fraction of items whose prediction a judge considers correct (GPT-4 in the original).
pub(crate) const LLM_ACCURACY: MetricDefinition = MetricDefinition {
    judged: true,
    ..MetricDefinition::proportion("llm_accuracy", "share of items whose prediction a model judges correct")
};

/// Maximum number of tokens in a judge's reply.
pub const MAX_VERDICT_TOKENS: u32 = 100;

/// The prompt for the judge, identical to upstream's `llm_accuracy_score` in `eval/hotpotqa/run_eval.py`.
fn question(question: &str, prediction: &str, gold: &str) -> Vec<Message> {
    let content = format!(
        "Please judge whether the model prediction can be regarded as correct according to the given question and its \
         ground-truth answer. Please answer 'CORRECT' or 'INCORRECT'. No more details and explanations.\n\n\
         Question: {question}\nModel prediction: {prediction}\nGround-truth answer: {gold}\n"
    );
    vec![Message { role: "user".to_owned(), content }]
}

/// Hash of the prompt. Verdicts with different prompts are not comparable.
pub fn prompt_hash() -> ContentHash {
    ContentHash::of_json(&("judge/1", question("", "", ""), MAX_VERDICT_TOKENS))
}

/// Returns the prompt about an outcome, or `None` if there is no prediction, which is incorrect without a
/// question.
pub fn question_about(task: &Task, target: &Target, outcome: &Outcome) -> Option<Vec<Message>> {
    let asked = match task {
        Task::Qa { question, .. } | Task::Maths { question } => question,
        Task::Shop { instruction, .. } => instruction,
        Task::Added(task) => &task.task,
        Task::Judge { .. } | Task::Web { .. } | Task::Sql { .. } => return None,
    };
    let asked = lumos_tasks::python::strip(asked);
    prediction(outcome).map(|prediction| question(asked, prediction, target.text()))
}

/// Meaning of a judge's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The prediction is correct.
    Correct,
    /// The prediction is incorrect.
    Incorrect,
    /// The reply is ambiguous. Scored as incorrect, and counted.
    Unclear,
}

impl Judgement {
    /// Interprets a reply. Paper scoring accepts exactly `CORRECT` and treats every other reply as incorrect.
    /// Corrected scoring ignores case and other words, and returns `Unclear` for replies with neither or both
    /// of the words.
    pub fn read(reply: &str, scoring: Scoring) -> Self {
        if scoring == Scoring::Paper {
            return match lumos_tasks::python::strip(reply) {
                "CORRECT" => Self::Correct,
                _ => Self::Incorrect,
            };
        }
        let words = |wanted: &str| {
            reply
                .split(|character: char| !character.is_alphanumeric())
                .any(|word| word.eq_ignore_ascii_case(wanted))
        };
        match (words("correct"), words("incorrect")) {
            (true, false) if words("not") => Self::Unclear,
            (true, false) => Self::Correct,
            (false, true) => Self::Incorrect,
            _ => Self::Unclear,
        }
    }

    /// Returns the contribution to the metric.
    fn share(self) -> Share {
        Share::once(f64::from(self == Self::Correct))
    }
}

/// A judge's verdict on one outcome, as samples have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgeVerdict {
    /// The unit whose outcome was judged.
    pub unit: UnitId,
    /// The judge.
    pub model: ModelIdentity,
    /// Hash of the judge's prompt: [`prompt_hash`].
    pub prompt: ContentHash,
    /// The reply; `None` if the judge was not asked because there is no prediction.
    pub reply: Option<String>,
    /// Number of prompt tokens, if the backend reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Number of generated tokens, if the backend reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
    /// Cost in US dollars, if the backend reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl JudgeVerdict {
    /// Interprets the reply.
    pub fn judgement(&self, scoring: Scoring) -> Judgement {
        self.reply.as_deref().map_or(Judgement::Incorrect, |reply| Judgement::read(reply, scoring))
    }

    /// Adds the judged metric to an outcome's score.
    #[must_use]
    pub fn add_to(&self, score: ItemScore, scoring: Scoring) -> ItemScore {
        score.with(LLM_ACCURACY.name, self.judgement(scoring).share())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_judge_is_asked_as_published() {
        insta::assert_snapshot!(question("Who?", "Ada", "Ada Lovelace")[0].content, @r"
        Please judge whether the model prediction can be regarded as correct according to the given question and its ground-truth answer. Please answer 'CORRECT' or 'INCORRECT'. No more details and explanations.

        Question: Who?
        Model prediction: Ada
        Ground-truth answer: Ada Lovelace
        ");
    }

    #[test]
    fn replies_are_read() {
        let both = |reply: &str| Scoring::ALL.map(|scoring| Judgement::read(reply, scoring));
        assert_eq!(both(" CORRECT\n"), [Judgement::Correct; 2]);
        assert_eq!(both("INCORRECT"), [Judgement::Incorrect; 2]);
        assert_eq!(both("Correct."), [Judgement::Incorrect, Judgement::Correct]);
        assert_eq!(both("It is INCORRECT, not CORRECT")[1], Judgement::Unclear);
        assert_eq!(both("not correct")[1], Judgement::Unclear);
        assert_eq!(both("")[1], Judgement::Unclear);
    }

    #[test]
    fn verdicts_are_added_to_scores() {
        let verdict = JudgeVerdict {
            unit: UnitId::new(ContentHash::of_bytes(b"unit")),
            model: ModelIdentity {
                name: "script:judge".to_owned(),
                content: ContentHash::of_bytes(b"judge"),
                dtype: None,
            },
            prompt: prompt_hash(),
            reply: Some("CORRECT".to_owned()),
            prompt_tokens: Some(80),
            completion_tokens: Some(2),
            cost: Some(0.0025),
        };
        let score = verdict.add_to(ItemScore::met("exact_match", false), Scoring::Paper);
        assert!(score.is_full(&LLM_ACCURACY) && !score.is_full(&crate::metrics::EXACT_MATCH));
        let unasked = JudgeVerdict { reply: None, ..verdict };
        assert_eq!(unasked.judgement(Scoring::Corrected), Judgement::Incorrect);
    }

    proptest! {
        #[test]
        fn arbitrary_replies_are_read(reply in any::<String>()) {
            for scoring in Scoring::ALL {
                Judgement::read(&reply, scoring);
            }
        }
    }
}
