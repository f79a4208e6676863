//! Selects passages by their scores (upstream `get_max_idx` in `eval/hotpotqa/utils.py` and
//! `ParagraphRetrieve` in `qa_tool.py`).

use crate::call::Passage;
use crate::formulation::Behaviour;

/// Number of passages kept.
pub(crate) const KEPT: usize = 5;

/// Indices of the `most` highest scores, the highest first.
///
/// Among equal scores the original prefers the last (it sorts in ascending order and reads from the end);
/// corrected behaviour prefers the first, which is more likely to be relevant on a page.
pub fn highest(scores: &[f64], most: usize, behaviour: Behaviour) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let score = |index: &usize| scores.get(*index).copied().unwrap_or(f64::NEG_INFINITY);
    match behaviour {
        Behaviour::Paper => {
            order.sort_by(|left, right| score(left).total_cmp(&score(right)));
            order.reverse();
        }
        Behaviour::Corrected => order.sort_by(|left, right| score(right).total_cmp(&score(left))),
    }
    order.truncate(most);
    order
}

/// The best passages, formatted as evidence, one per line.
pub(crate) fn evidence(passages: &[Passage], scores: &[f64], behaviour: Behaviour) -> String {
    let best = highest(scores, KEPT, behaviour);
    let texts = best.iter().filter_map(|index| passages.get(*index)).map(|passage| &passage.text);
    texts.enumerate().map(|(index, text)| format!("Evidence {}: {text}\n", index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first() {
        for behaviour in Behaviour::ALL {
            assert_eq!(highest(&[-1.0, 3.0, 2.0], 2, behaviour), [1, 2]);
            assert_eq!(highest(&[], 2, behaviour), [0usize; 0]);
        }
        assert_eq!(highest(&[1.0, 1.0, 1.0], 2, Behaviour::Paper), [2, 1]);
        assert_eq!(highest(&[1.0, 1.0, 1.0], 2, Behaviour::Corrected), [0, 1]);
    }

    #[test]
    fn evidence_is_numbered() {
        let passage = |text: &str| Passage { title: "T".to_owned(), text: text.to_owned() };
        let passages = [passage("a"), passage("b")];
        assert_eq!(evidence(&passages, &[0.0, 1.0], Behaviour::Paper), "Evidence 1: b\nEvidence 2: a\n");
    }
}
