//! The reply of planner, grounder or answerer within the text of a chat model, which often writes more around it.

/// End of a reasoning model's thoughts, if the server leaves them in the reply.
const THOUGHTS: [&str; 2] = ["<think>", "</think>"];
const SPEAKER: &str = "assistant:";
const FENCE: &str = "```";

/// Returns the reply and whether nothing follows it: the first line with a text, without thoughts before it, the marks of
/// a block of code and the speaker's name. `start` is the beginning of the reply that the model was not given; it is
/// removed if the model wrote it.
pub(super) fn line<'a>(text: &'a str, start: &str) -> (&'a str, bool) {
    let [open, close] = THOUGHTS;
    let trimmed = text.trim_start();
    let text = match trimmed.strip_prefix(open) {
        // Thoughts that do not end contain no reply.
        Some(thoughts) => thoughts.split_once(close).map_or("", |(_, reply)| reply),
        None => trimmed,
    };
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
    fn the_first_line_with_a_text_is_the_reply() {
        for (text, reply) in [
            ("Subgoal 1: Add.", ("Subgoal 1: Add.", true)),
            ("\n\n Subgoal 1: Add. \nSubgoal 2: More.", ("Subgoal 1: Add.", false)),
            ("```text\nR1 = Calculator(1)\n```", ("R1 = Calculator(1)", false)),
            ("Assistant: Yes, I will stop planning.", ("Yes, I will stop planning.", true)),
            ("assistant:\nYes", ("Yes", true)),
            ("<think>\nSubgoal 9?\n</think>\n\nSubgoal 1: Add.", ("Subgoal 1: Add.", true)),
            ("<think>\nSubgoal 9?", ("", true)),
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
