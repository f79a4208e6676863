//! [`Dialogue`]: a conversation in Lumos's layout that is also known as messages.
//!
//! ```text
//! <|user|>                       \
//! Task: …                         } a user's turn
//! <|assistant|>                  /
//! Subgoal 1: …                     the model's turn: its reply
//!                                \
//! <|user|>                        } the next user's turn
//! The executed result …          /
//! ```
//!
//! The text is what Lumos's modules are trained on, to the byte. Turns are ranges of it, determined while the text is
//! built: contents of a turn may repeat a marker, and the text alone would not show which one separates turns.

use std::ops::Range;

use crate::families::prompts::{ASSISTANT, USER};
use crate::request::Message;

/// Ends a reply in an appended text.
const REPLY_END: &str = "\n\n";

/// A conversation in Lumos's layout that ends with an open turn. Created from its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dialogue {
    text: String,
    /// Contents of the turns, without markers: the user's, the model's, and so on in alternation.
    turns: Vec<Range<usize>>,
}

impl From<String> for Dialogue {
    /// A conversation whose first user's turn is open.
    fn from(text: String) -> Self {
        let start = if text.starts_with(USER) { USER.len() } else { 0 };
        let first = start..text.len();
        Self { text, turns: vec![first] }
    }
}

impl Dialogue {
    /// A conversation that begins with worked examples. Their text is split at every marker; it ends before the
    /// marker with which `rest` begins.
    pub(crate) fn with_examples(examples: &str, rest: &str) -> Self {
        let mut dialogue = Self::from(examples.to_owned());
        loop {
            let open = dialogue.open();
            let found =
                dialogue.text.get(open.clone()).and_then(|text| text.find(dialogue.next_marker().as_str()));
            let Some(found) = found else { break };
            dialogue.split(open.start + found);
        }
        let start = dialogue.open().start;
        match dialogue.text.strip_suffix(REPLY_END).map(str::len) {
            Some(end) if end >= start && !dialogue.is_users() => {
                dialogue.text.push_str(rest);
                dialogue.split(end);
                dialogue
            }
            // Without examples.
            _ => Self::from(format!("{examples}{rest}")),
        }
    }

    /// Appends to the open turn. In the model's turn, the text is its reply and the user's next turn, which begins at
    /// the first marker, because a reply is a single line.
    pub(crate) fn push(&mut self, text: &str) {
        let at = self.text.len();
        self.text.push_str(text);
        self.extend();
        if !self.is_users()
            && let Some(found) = text.find(&self.next_marker())
        {
            self.split(at + found);
        }
    }

    /// Begins the model's turn: the user's turn ends at its last marker, whatever it contains before. What follows the
    /// marker is the start of the reply.
    pub(crate) fn ask(&mut self) {
        let open = self.open();
        let found = self.text.get(open.clone()).and_then(|text| text.rfind(ASSISTANT));
        if self.is_users()
            && let Some(found) = found
        {
            self.split(open.start + found);
        }
        debug_assert_eq!(self.rejoined(), self.text);
    }

    /// The conversation in Lumos's layout.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// The messages, and the start of the model's reply. Turns of the model without a text, which end worked examples,
    /// are left out, and the user's turns around them are one message.
    pub(crate) fn messages(&self) -> (Vec<Message>, &str) {
        let mut messages: Vec<Message> = Vec::with_capacity(self.turns.len());
        let closed = if self.is_users() { self.turns.len() } else { self.turns.len() - 1 };
        for (index, turn) in self.turns.iter().take(closed).enumerate() {
            let content = self.text.get(turn.clone()).unwrap_or_default();
            let role = if index % 2 == 0 { "user" } else { "assistant" };
            match messages.last_mut().filter(|last| last.role == role) {
                Some(last) => last.content = format!("{}\n\n{content}", last.content),
                None if role == "assistant" && content.trim().is_empty() => {}
                None => messages.push(Message { role: role.to_owned(), content: content.to_owned() }),
            }
        }
        let open = self.turns.get(closed).and_then(|turn| self.text.get(turn.clone()));
        (messages, open.unwrap_or_default())
    }

    /// The range of the open turn.
    fn open(&self) -> Range<usize> {
        self.turns.last().cloned().unwrap_or_default()
    }

    /// Whether the open turn is the user's.
    fn is_users(&self) -> bool {
        self.turns.len() % 2 == 1
    }

    /// The marker that ends the open turn.
    fn next_marker(&self) -> String {
        if self.is_users() { ASSISTANT.to_owned() } else { format!("{REPLY_END}{USER}") }
    }

    fn extend(&mut self) {
        let end = self.text.len();
        if let Some(open) = self.turns.last_mut() {
            open.end = end;
        }
    }

    /// Ends the open turn where its marker begins, and opens the next one.
    fn split(&mut self, at: usize) {
        let next = at + self.next_marker().len();
        if let Some(open) = self.turns.last_mut() {
            open.end = at;
        }
        self.turns.push(next..self.text.len());
    }

    /// The text, built from the turns.
    fn rejoined(&self) -> String {
        let mut text = String::new();
        for (index, turn) in self.turns.iter().enumerate() {
            match index {
                0 => text.push_str(self.text.get(..turn.start).unwrap_or_default()),
                _ if index % 2 == 1 => text.push_str(ASSISTANT),
                _ => text.push_str(&format!("{REPLY_END}{USER}")),
            }
            text.push_str(self.text.get(turn.clone()).unwrap_or_default());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::families::prompts::{ground, ground_again, next_subgoal, plan, plan_again};

    fn contents(dialogue: &Dialogue) -> Vec<(String, String)> {
        dialogue.messages().0.into_iter().map(|one| (one.role, one.content)).collect()
    }

    fn asked(mut dialogue: Dialogue) -> Dialogue {
        dialogue.ask();
        dialogue
    }

    #[test]
    fn turns_are_messages() {
        let mut planner = asked(plan("Who?").into());
        planner.push(&plan_again(" Subgoal 1: Find it.", 1, "Ada"));
        planner.ask();
        let user = |text: &str| ("user".to_owned(), text.to_owned());
        let assistant = |text: &str| ("assistant".to_owned(), text.to_owned());
        let task = "Please provide a reasonable subgoal-based plan to solve the given task.\nTask: Who?; Initial \
                    Environment Description: None.";
        let result = "The executed result for Subgoal 1 is Ada. Should we stop planning?";
        assert_eq!(contents(&planner), [user(task), assistant("Subgoal 1: Find it."), user(result)]);
        let mut grounder = Dialogue::from(ground("List.\n\n", "Who?", false));
        grounder.push(&(next_subgoal("Subgoal 1: Find it.") + "R1 = "));
        grounder.ask();
        assert_eq!(grounder.messages().1, "R1 = ");
        grounder.push(&ground_again("Search(it)"));
        grounder.push(&next_subgoal("Subgoal 2: Read it."));
        grounder.ask();
        assert_eq!(
            contents(&grounder)[1..],
            [assistant("R1 = Search(it)"), user("Subgoal to be grounded: Subgoal 2: Read it.")]
        );
        assert_eq!(grounder.messages().1, "");
    }

    #[test]
    fn worked_examples_are_messages() {
        let examples = "<|user|>\na\n<|assistant|>\nb\n\n<|user|>\nc\n<|assistant|>\n\n\n";
        let dialogue = asked(Dialogue::with_examples(examples, "<|user|>\nd\n<|assistant|>\n"));
        let user = |text: &str| ("user".to_owned(), text.to_owned());
        assert_eq!(
            contents(&dialogue),
            [user("a"), ("assistant".to_owned(), "b".to_owned()), user("c\n\nd")]
        );
        let without = asked(Dialogue::with_examples("", "<|user|>\nd\n<|assistant|>\n"));
        assert_eq!(contents(&without), [user("d")]);
        assert_eq!(without.into_text(), "<|user|>\nd\n<|assistant|>\n");
    }

    /// Texts that contain markers, as results of tools and tasks may.
    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec("[a-z ]{0,3}|\n|\n\n|<\\|user\\|>\n|<\\|assistant\\|>\n", 0..8)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn contents_with_markers_stay_in_their_turns(
            task in text(),
            turns in proptest::collection::vec(("[a-z .]{0,9}", text()), 0..4),
        ) {
            let mut dialogue = asked(Dialogue::from(format!("{USER}{task}{ASSISTANT}")));
            let mut expected = vec![task];
            let mut whole = dialogue.clone().into_text();
            for (reply, result) in &turns {
                let piece = format!("{reply}\n\n{USER}{result}{ASSISTANT}");
                whole.push_str(&piece);
                dialogue.push(&piece);
                dialogue.ask();
                expected.extend([reply.clone(), result.clone()]);
            }
            prop_assert_eq!(dialogue.rejoined(), whole.as_str());
            let found: Vec<&str> =
                dialogue.turns.iter().map(|turn| dialogue.text.get(turn.clone()).unwrap()).collect();
            expected.push(String::new());
            prop_assert_eq!(found, expected);
            prop_assert_eq!(dialogue.into_text(), whole);
        }

        #[test]
        fn any_examples_and_texts_round_trip(examples in text(), rest in text(), more in text()) {
            let mut dialogue = asked(Dialogue::with_examples(&examples, &format!("{USER}{rest}")));
            dialogue.push(&more);
            dialogue.ask();
            prop_assert_eq!(dialogue.rejoined(), dialogue.text.as_str());
            prop_assert_eq!(dialogue.text.as_str(), format!("{examples}{USER}{rest}{more}"));
            let roles: Vec<_> = dialogue.messages().0.into_iter().map(|one| one.role).collect();
            prop_assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", roles);
        }
    }
}
