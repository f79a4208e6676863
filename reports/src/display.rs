//! Formats the values of an episode (tasks, predictions, tool calls and replies) as text.

use lumos_tasks::families::qa::page::WikiPage;
use lumos_tasks::families::web::{Chosen, PageAction, PageExecution, WebResult};
use lumos_tasks::outcome::{Observation, Value};
use lumos_tasks::{
    Ending, Evidence, ExternalReply, MathsReply, Outcome, SqlReply, Task, ToolCall, ToolReply,
};

/// Returns the text of a task.
pub(crate) fn task_text(task: &Task) -> &str {
    match task {
        Task::Web { task, .. } => task.trim(),
        Task::Maths { question } | Task::Qa { question, .. } | Task::Sql { question, .. } => question.trim(),
        Task::Shop { instruction, .. } => instruction.trim(),
        Task::Added(task) => task.task.trim(),
        Task::Judge { messages, .. } => messages.last().map_or("", |message| message.content.trim()),
    }
}

/// Returns the prediction as text, if there is one.
pub(crate) fn prediction_text(outcome: &Outcome) -> Option<String> {
    let evidence = outcome.evidence.as_ref()?;
    match evidence {
        Evidence::Shop(evidence) => {
            let bought = evidence.credited.as_ref().or(evidence.first.as_ref());
            bought.map(|bought| bought.asin.clone())
        }
        Evidence::Web(web) => Some(web.chosen.iter().map(chosen_text).collect::<Vec<_>>().join("; ")),
        evidence => evidence.plan()?.prediction.as_ref().map(Value::to_python_text),
    }
}

/// Returns the first characters of a text from another machine or a model, with hidden ones replaced.
pub(crate) fn visible_text(text: &str, longest: usize) -> String {
    let visible = |character: char| if is_hidden(character) { '\u{fffd}' } else { character };
    text.chars().take(longest).map(visible).collect()
}

/// Whether a character could disguise a text: bidirectional controls, and control characters except line feed and tab.
/// Browsers reject or replace some of them.
pub(crate) fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => true,
        character => character.is_control(),
    }
}

/// Formats an operation on a web page.
fn chosen_text(chosen: &Chosen) -> String {
    let text = chosen.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("step {}, element {} -> {}{text}", chosen.step + 1, chosen.element, chosen.action.word())
}

/// What [`rounds_exhausted`] means.
pub(crate) const ROUNDS_EXHAUSTED: &str = "the planner had not finished when its rounds were used up";

/// Whether the planner was still planning when its rounds were used up.
pub(crate) fn rounds_exhausted(outcome: &Outcome) -> bool {
    let plan = outcome.evidence.as_ref().and_then(|evidence| evidence.plan());
    plan.is_some_and(|evidence| evidence.rounds_exhausted)
}

/// Returns how an episode ended and details: `gave up` and `planner in turn 2: no subgoal`.
pub(crate) fn ending_text(outcome: &Outcome) -> (&'static str, String) {
    match &outcome.ending {
        Ending::Answered => ("answered", prediction_text(outcome).unwrap_or_else(|| "(no text)".to_owned())),
        Ending::GaveUp(reason) => {
            ("gave up", format!("{} in turn {}: {}", reason.stage.name(), reason.turn, reason.detail))
        }
        Ending::Faulted(fault) => ("faulted", fault.to_string()),
    }
}

/// Formats a tool call in one line.
pub(crate) fn call_text(call: &ToolCall) -> String {
    match call {
        ToolCall::Maths { query } => format!("maths: {query}"),
        ToolCall::Wiki { request, .. } => format!("wiki: {}", request.text()),
        ToolCall::Search { query, .. } => format!("search: {query}"),
        ToolCall::Rank { question, passages } => format!("rank {} passages: {question}", passages.len()),
        ToolCall::Shop(request) => format!("shop: {}", request.action),
        ToolCall::Chat { role, messages, .. } => {
            let asked: Vec<&str> = messages.iter().map(|message| message.content.trim()).collect();
            format!("{role}: {}", asked.join("\n"))
        }
        ToolCall::Candidates { step, .. } => format!("candidates of the page of step {}", step + 1),
        ToolCall::Carry(attempt) => {
            let PageAction { page, element, action, text, .. } = attempt;
            let text = text.as_ref().map(|text| format!(" {text:?}")).unwrap_or_default();
            format!("browser: {}{text} on element {element} of the page of step {}", action.word(), page + 1)
        }
        ToolCall::Sql { statement } => format!("sql: {statement}"),
        ToolCall::SqlSubmit => "sql: submit".to_owned(),
        ToolCall::External { name, operation, arguments } => format!("{name}: {operation} {arguments}"),
    }
}

/// Formats a tool's reply in one line.
pub(crate) fn reply_text(reply: &ToolReply) -> String {
    match reply {
        ToolReply::Maths(MathsReply::One(text)) => text.clone(),
        ToolReply::Maths(MathsReply::Many(texts)) => {
            texts.iter().map(|text| text.as_deref().unwrap_or("(nothing)")).collect::<Vec<_>>().join(" | ")
        }
        ToolReply::Maths(MathsReply::Empty) => "(an empty result)".to_owned(),
        ToolReply::Maths(MathsReply::NoResult { message }) => format!("(no result: {message})"),
        ToolReply::Wiki(WikiPage::Listed(entries)) if entries.is_empty() => "(an empty list)".to_owned(),
        ToolReply::Wiki(WikiPage::Listed(entries)) => entries.join(" | "),
        ToolReply::Wiki(WikiPage::Unreadable { message }) => format!("(cannot be read: {message})"),
        ToolReply::Wiki(page) => page.observation(usize::MAX).unwrap_or_default(),
        ToolReply::Search(addresses) if addresses.is_empty() => "(nothing found)".to_owned(),
        ToolReply::Search(addresses) => addresses.join(" | "),
        ToolReply::Rank(scores) => {
            scores.iter().map(|score| format!("{score:.4}")).collect::<Vec<_>>().join(" ")
        }
        ToolReply::Chat(reply) => reply.text.trim().to_owned(),
        ToolReply::Candidates(elements) => format!("{} candidates", elements.len()),
        ToolReply::Carried(PageExecution { action: WebResult::Done, .. }) => "executed".to_owned(),
        ToolReply::Carried(PageExecution { action: WebResult::Refused(obstacle), .. }) => {
            format!("(refused: {})", obstacle.words())
        }
        ToolReply::Raised { message } => format!("(raised: {message})"),
        ToolReply::Sql(SqlReply::Rows { rows, count }) if rows.len() as u64 == *count => {
            format!("[{}]", rows.join(", "))
        }
        ToolReply::Sql(SqlReply::Rows { rows, count }) => {
            format!("[{}, …] ({} rows)", rows.join(", "), thousands(*count))
        }
        ToolReply::Sql(SqlReply::Nothing) => "(no result)".to_owned(),
        ToolReply::Sql(SqlReply::Error(message)) => message.clone(),
        ToolReply::SqlGrade(grade) => format!("reward {}", grade.reward),
        ToolReply::Shop(reply) => reply.observation.clone(),
        ToolReply::External(ExternalReply::Text(text)) => text.clone(),
        ToolReply::External(ExternalReply::Refused(message)) => format!("(refused: {message})"),
    }
}

/// Formats the observation of an action in one line.
pub(crate) fn observation_text(observation: &Observation) -> String {
    match observation {
        Observation::Text(text) => text.clone(),
        Observation::List(texts) => texts.join(", "),
        Observation::Refused(why) => format!("(refused: {why})"),
    }
}

/// Truncates a text to a number of characters and appends an ellipsis if it was longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

/// Formats a count with commas between thousands: `1,319`.
pub fn thousands(count: u64) -> String {
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
