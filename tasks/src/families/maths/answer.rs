//! Extracts the answer from a single model's reply (upstream `cot` and `direct` in `eval/gsm/run_eval.py`).

use crate::python::Characters;

const MARKER: &str = "Answer is ";
const MARKER_LENGTH: isize = 10;

/// The answer of a chain of thought: the text after the last `Answer is `, without the last character (the
/// full stop). Without the marker, the original cuts at the tenth character, and this function does the same.
pub fn of_chain(reply: &str) -> String {
    let reply = Characters::new(reply);
    reply.slice(reply.rfind(MARKER) + MARKER_LENGTH, -1)
}

/// The answer of a direct reply: everything after the first ten characters, without the last one.
pub fn of_direct(reply: &str) -> String {
    Characters::new(reply).slice(MARKER_LENGTH, -1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_as_the_original_cuts_them() {
        assert_eq!(of_chain("First we count. Answer is 25."), "25");
        assert_eq!(of_chain("Answer 68. He has 3."), ". He has 3");
        assert_eq!(of_direct("Answer is 7."), "7");
        assert_eq!(of_direct("7."), "");
    }
}
