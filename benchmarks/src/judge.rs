//! Judging by a model: the question put to the judge, what its reply says, and the record of a verdict. Pure: the judge
//! is asked in a pass of its own, and its verdicts are kept beside the outcomes.

use lumos_tasks::{ContentHash, Message, ModelIdentity, Outcome, Target, Task, UnitId};
use serde::{Deserialize, Serialize};

use crate::metrics::{MetricDefinition, prediction};
use crate::score::{ItemScore, Scoring, Share};

/// Share of items whose prediction a judge takes for correct (GPT-4 in the original).
pub const LLM_ACCURACY: MetricDefinition = MetricDefinition {
    judged: true,
    ..MetricDefinition::proportion("llm_accuracy", "share of items whose prediction a model judges correct")
};

/// The most tokens of a judge's reply.
pub const MAX_VERDICT_TOKENS: u32 = 100;

/// What the judge is asked (upstream `llm_accuracy_score` in `eval/hotpotqa/run_eval.py`), word for word.
pub fn question(question: &str, prediction: &str, gold: &str) -> Vec<Message> {
    let content = format!(
        "Please judge whether the model prediction can be regarded as correct according to the given question and its \
         ground-truth answer. Please answer 'CORRECT' or 'INCORRECT'. No more details and explanations.\n\n\
         Question: {question}\nModel prediction: {prediction}\nGround-truth answer: {gold}\n"
    );
    vec![Message { role: "user".to_owned(), content }]
}

/// Hash of the prompt: verdicts under another prompt are other verdicts.
pub fn prompt_hash() -> ContentHash {
    ContentHash::of_json(&("judge/1", question("", "", ""), MAX_VERDICT_TOKENS))
}

/// What the judge is asked about an outcome; `None` where there is no prediction, which is incorrect unasked.
pub fn question_about(task: &Task, target: &Target, outcome: &Outcome) -> Option<Vec<Message>> {
    let asked = match task {
        Task::Qa { question, .. } | Task::Maths { question } => question,
        Task::Shop { instruction, .. } => instruction,
        Task::Judge { .. } | Task::Web { .. } | Task::Sql { .. } => return None,
    };
    let asked = lumos_tasks::python::strip(asked);
    prediction(outcome).map(|prediction| question(asked, prediction, target.text()))
}

/// What a judge said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The prediction is correct.
    Correct,
    /// It is not.
    Incorrect,
    /// The reply says neither; counted as incorrect, and counted.
    Unclear,
}

impl Judgement {
    /// Reads a reply. Paper scoring knows `CORRECT` and takes all else for incorrect; corrected scoring also takes the
    /// word in other letters and among others, and tells replies that say neither or both apart.
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

    /// Its share of the metric.
    pub fn share(self) -> Share {
        Share { numerator: if self == Self::Correct { 1.0 } else { 0.0 }, denominator: 1.0 }
    }
}

/// A judge's verdict on one outcome, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The unit whose outcome was judged.
    pub unit: UnitId,
    /// The judge.
    pub model: ModelIdentity,
    /// Hash of the prompt it was asked with: [`prompt_hash`].
    pub prompt: ContentHash,
    /// Its reply; `None` where it was not asked because there is no prediction.
    pub reply: Option<String>,
    /// Tokens it read, where its backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Tokens it wrote, where its backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
    /// What it cost in US dollars, where its backend says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Verdict {
    /// What it says.
    pub fn judgement(&self, scoring: Scoring) -> Judgement {
        self.reply.as_deref().map_or(Judgement::Incorrect, |reply| Judgement::read(reply, scoring))
    }

    /// The outcome's score with the judged metric.
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
    fn verdicts_are_written_and_added_to_scores() {
        let verdict = Verdict {
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
        let text = serde_json::to_string(&verdict).unwrap();
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
        let score = verdict.add_to(ItemScore::met("exact_match", false), Scoring::Paper);
        assert!(score.is_full(LLM_ACCURACY.name) && !score.is_full("exact_match"));
        let unasked = Verdict { reply: None, ..verdict };
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
