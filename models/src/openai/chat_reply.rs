//! The reply within the text of a chat model, which often writes more around it: thoughts, and for planner, grounder and
//! answerer everything but one line.

/// Start and end of a reasoning model's thoughts, if they are in the reply.
const THOUGHTS: [&str; 2] = ["<think>", "</think>"];
const SPEAKER: &str = "assistant:";
const FENCE: &str = "```";

/// Returns the text after the thoughts and the white space behind them, or all of it if it contains none.
pub(crate) fn without_thoughts(text: &str) -> &str {
    let [open, close] = THOUGHTS;
    match text.trim_start().strip_prefix(open) {
        // Thoughts that do not end contain no reply.
        Some(thoughts) => thoughts.split_once(close).map_or("", |(_, reply)| reply.trim_start()),
        // Some chat templates end the prompt with the start of the thoughts.
        None => text.split_once(close).map_or(text, |(_, reply)| reply.trim_start()),
    }
}

/// Returns the reply and whether nothing follows it: the first line with a text, without the marks of a block of code and
/// the speaker's name. `start` is the beginning of the reply that the model was not given; it is removed if the model
/// wrote it.
pub(super) fn line<'a>(text: &'a str, start: &str) -> (&'a str, bool) {
    let mut lines = text.lines();
    let is_reply = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with(FENCE) && !line.eq_ignore_ascii_case(SPEAKER)
    };
    let line = lines.by_ref().find(is_reply).unwrap_or_default().trim();
    let line = match line.get(..SPEAKER.len()) {
        Some(speaker) if speaker.eq_ignore_ascii_case(SPEAKER) => line[SPEAKER.len()..].trim_start(),
        _ => line,
    };
    let start = start.trim();
    let line = if start.is_empty() { line } else { line.strip_prefix(start).map_or(line, str::trim_start) };
    (line, lines.next().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thoughts_are_dropped() {
        for (text, reply) in [
            ("<think>\nwrong?\n</think>\n\nCORRECT", "CORRECT"),
            ("\n <think>no answer</think>Ada", "Ada"),
            ("Okay, first I add.\nThen?\n</think>\n\nSubgoal 1: Add.", "Subgoal 1: Add."),
            ("</think>Ada", "Ada"),
            ("<think>\nSubgoal 9?", ""),
            ("<think></think>", ""),
            // Only the first end counts.
            ("<think>a</think>b</think>c", "b</think>c"),
            (" Ada\n", " Ada\n"),
            ("Write <think> first", "Write <think> first"),
            ("", ""),
        ] {
            assert_eq!(without_thoughts(text), reply, "{text}");
        }
    }

    #[test]
    fn the_first_line_with_a_text_is_the_reply() {
        for (text, reply) in [
            ("Subgoal 1: Add.", ("Subgoal 1: Add.", true)),
            ("\n\n Subgoal 1: Add. \nSubgoal 2: More.", ("Subgoal 1: Add.", false)),
            ("```text\nR1 = Calculator(1)\n```", ("R1 = Calculator(1)", false)),
            ("Assistant: Yes, I will stop planning.", ("Yes, I will stop planning.", true)),
            ("assistant:\nYes", ("Yes", true)),
            ("", ("", true)),
            ("Ünï", ("Ünï", true)),
        ] {
            assert_eq!(line(text, ""), reply, "{text}");
        }
        assert_eq!(line("R1 = Search(lamp)", "R1 = "), ("Search(lamp)", true));
        assert_eq!(line("Search(lamp)", "R1 = "), ("Search(lamp)", true));
    }

    proptest! {
        #[test]
        fn any_text_has_a_reply_of_one_line(text in any::<String>(), start in "[R1= ]{0,5}") {
            let (reply, _) = line(&text, &start);
            prop_assert!(!reply.contains('\n'));
        }
    }
}
