//! What the values of an episode are in words, family by family.

use lumos_tasks::outcome::{Observation, Value};
use lumos_tasks::{Ending, Evidence, MathsReply, Outcome, Task, ToolCall, ToolReply};

/// The task as a person reads it.
pub(crate) fn task_text(task: &Task) -> &str {
    match task {
        Task::Maths { question } => question.trim(),
    }
}

/// The prediction as text, where there is one.
pub(crate) fn prediction_text(outcome: &Outcome) -> Option<String> {
    match outcome.evidence.as_ref()? {
        Evidence::Maths(evidence) => evidence.prediction.as_ref().map(Value::to_python_text),
    }
}

/// Whether the planner was still planning when its rounds were used up.
pub(crate) fn rounds_exhausted(outcome: &Outcome) -> bool {
    match &outcome.evidence {
        Some(Evidence::Maths(evidence)) => evidence.rounds_exhausted,
        None => false,
    }
}

/// The word for how an episode ended.
pub(crate) fn status(ending: &Ending) -> &'static str {
    match ending {
        Ending::Answered => "answered",
        Ending::GaveUp(_) => "gave_up",
        Ending::Faulted(_) => "faulted",
    }
}

/// A tool call in one line.
pub(crate) fn call_text(call: &ToolCall) -> String {
    match call {
        ToolCall::Maths { query } => format!("maths: {query}"),
    }
}

/// A tool's reply in one line.
pub(crate) fn reply_text(reply: &ToolReply) -> String {
    match reply {
        ToolReply::Maths(MathsReply::One(text)) => text.clone(),
        ToolReply::Maths(MathsReply::Many(texts)) => {
            texts.iter().map(|text| text.as_deref().unwrap_or("(nothing)")).collect::<Vec<_>>().join(" | ")
        }
        ToolReply::Maths(MathsReply::Empty) => "(an empty result)".to_owned(),
        ToolReply::Maths(MathsReply::NoResult { message }) => format!("(no result: {message})"),
    }
}

/// What came of an action, in one line.
pub(crate) fn observation_text(observation: &Observation) -> String {
    match observation {
        Observation::Text(text) => text.clone(),
        Observation::List(texts) => texts.join(", "),
        Observation::Refused(why) => format!("(refused: {why})"),
    }
}

/// The beginning of a text, with an ellipsis where it was cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

/// A count with commas between thousands.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_long_texts_are_shown_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("a längeres", 4), "a lä…");
    }
}
