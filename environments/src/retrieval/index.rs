//! BM25 (Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009) over an
//! inverted index in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::words::{is_stop_word, stem, words};

/// Maximum number of distinct query words that are used, because queries are a model's output.
const MOST_TERMS: usize = 256;

/// Term frequency saturation (Lucene's value): how quickly additional occurrences of a word stop adding to the
/// score.
const K1: f64 = 1.2;
/// Length normalization, from 0 to 1 (Lucene's value).
const B: f64 = 0.75;

/// Inverse document frequency of a word; never negative (Lucene's form).
fn rarity(documents: usize, with_the_word: usize) -> f64 {
    let (all, with) = (documents as f64, with_the_word as f64);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

/// The weight of a word that occurs `occurrences` times in a text of `length` times the average length.
fn saturation(occurrences: f64, length: f64) -> f64 {
    occurrences * (K1 + 1.0) / (occurrences + K1 * (1.0 - B + B * length))
}

/// An occurrence of a word: the document, and the number of occurrences (replaced by their weight when the
/// index is built).
#[derive(Debug, Clone, Copy)]
struct Posting {
    document: u32,
    weight: f32,
}

/// An index of documents by their words.
#[derive(Debug)]
pub(super) struct PassageIndex {
    vocabulary: Vocabulary,
    /// By term, each in the order of documents.
    postings: Vec<Vec<Posting>>,
    documents: usize,
}

impl PassageIndex {
    /// The best documents for a query, best first, each as its position in the order in which documents were
    /// added; among equals, the one that was added first comes first.
    pub(super) fn search(&self, query: &str, most: usize) -> Vec<usize> {
        if most == 0 {
            return Vec::new();
        }
        let scores = self.scores(query).into_iter().enumerate();
        let mut hits: Vec<(usize, f64)> = scores.filter(|(_, score)| *score > 0.0).collect();
        let best_first =
            |left: &(usize, f64), right: &(usize, f64)| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0));
        if hits.len() > most {
            hits.select_nth_unstable_by(most - 1, best_first);
            hits.truncate(most);
        }
        hits.sort_unstable_by(best_first);
        hits.into_iter().map(|(document, _)| document).collect()
    }

    /// The score of every document; 0 for documents without a word of the query.
    fn scores(&self, query: &str) -> Vec<f64> {
        let mut scores = vec![0.0; self.documents];
        for (term, count) in self.vocabulary.of_query(query) {
            let Some(postings) = self.postings.get(term as usize) else { continue };
            let rarity = count * rarity(self.documents, postings.len());
            for posting in postings {
                if let Some(score) = scores.get_mut(posting.document as usize) {
                    *score += rarity * f64::from(posting.weight);
                }
            }
        }
        scores
    }
}

/// Builds a [`PassageIndex`].
#[derive(Debug, Default)]
pub(super) struct PassageIndexBuilder {
    vocabulary: Vocabulary,
    postings: Vec<Vec<Posting>>,
    /// Word count of each document, weighted by the texts' factors.
    lengths: Vec<f64>,
    /// Terms of the current document.
    terms: Vec<(u32, u32)>,
}

impl PassageIndexBuilder {
    /// Adds a document: its texts, each with a factor for its word counts.
    pub(super) fn add<'a>(&mut self, texts: impl IntoIterator<Item = (&'a str, u32)>) {
        let document = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
        self.terms.clear();
        for (text, times) in texts {
            for word in words(text) {
                if let Some(term) = self.vocabulary.learn(word) {
                    self.terms.push((term, times));
                }
            }
        }
        self.terms.sort_unstable();
        self.lengths.push(self.terms.iter().map(|(_, times)| f64::from(*times)).sum());
        self.postings.resize_with(self.vocabulary.terms as usize, Vec::new);
        for together in self.terms.chunk_by(|left, right| left.0 == right.0) {
            let weight = together.iter().map(|(_, times)| *times as f32).sum();
            let term = together.first().map_or(0, |(term, _)| *term);
            if let Some(postings) = self.postings.get_mut(term as usize) {
                postings.push(Posting { document, weight });
            }
        }
    }

    /// Builds the index after all documents were added.
    pub(super) fn build(self) -> PassageIndex {
        let Self { vocabulary, mut postings, lengths, .. } = self;
        let average = (lengths.iter().sum::<f64>() / lengths.len().max(1) as f64).max(1.0);
        for posting in postings.iter_mut().flatten() {
            let length = lengths.get(posting.document as usize).copied().unwrap_or(average) / average;
            posting.weight = saturation(f64::from(posting.weight), length) as f32;
        }
        postings.iter_mut().for_each(Vec::shrink_to_fit);
        PassageIndex { vocabulary, postings, documents: lengths.len() }
    }
}

/// The score of each of a few passages for a question, with the passages as the whole collection. A passage
/// consists of texts, each with a factor for its word counts.
pub fn scores<'a, T>(question: &str, passages: impl IntoIterator<Item = T>) -> Vec<f64>
where
    T: IntoIterator<Item = (&'a str, u32)>,
{
    let mut builder = PassageIndexBuilder::default();
    passages.into_iter().for_each(|passage| builder.add(passage));
    builder.build().scores(question)
}

/// Words as they occur, each with the number of its stem; stop words have none.
#[derive(Debug, Default)]
struct Vocabulary {
    words: HashMap<String, Option<u32>>,
    stems: HashMap<String, u32>,
    terms: u32,
    lower: String,
}

impl Vocabulary {
    /// The number of a word's stem; assigns a new one to an unknown stem.
    fn learn(&mut self, word: &str) -> Option<u32> {
        let mut lower = std::mem::take(&mut self.lower);
        lower_case(word, &mut lower);
        let term = match self.words.get(&lower) {
            Some(term) => *term,
            None => {
                let term = (!is_stop_word(&lower)).then(|| match self.stems.entry(stem(&lower)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        self.terms += 1;
                        *new.insert(self.terms - 1)
                    }
                });
                self.words.insert(lower.clone(), term);
                term
            }
        };
        self.lower = lower;
        term
    }

    /// The known terms of a query in order of first occurrence, with their counts.
    fn of_query(&self, query: &str) -> Vec<(u32, f64)> {
        let mut terms: Vec<(u32, f64)> = Vec::new();
        let mut lower = String::new();
        for word in words(query) {
            lower_case(word, &mut lower);
            let known = match self.words.get(&lower) {
                Some(term) => *term,
                None if is_stop_word(&lower) => None,
                None => self.stems.get(&stem(&lower)).copied(),
            };
            let Some(term) = known else { continue };
            if let Some((_, count)) = terms.iter_mut().find(|(known, _)| *known == term) {
                *count += 1.0;
            } else if terms.len() < MOST_TERMS {
                terms.push((term, 1.0));
            }
        }
        terms
    }
}

fn lower_case(word: &str, lower: &mut String) {
    lower.clear();
    lower.extend(word.chars().flat_map(char::to_lowercase));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(texts: &[impl AsRef<str>]) -> PassageIndex {
        let mut builder = PassageIndexBuilder::default();
        texts.iter().for_each(|text| builder.add([(text.as_ref(), 1)]));
        builder.build()
    }

    #[test]
    fn rare_words_count_more_and_long_texts_less() {
        let index =
            index(&["a river in Siberia", "a river in Europe with a long description", "a river in Europe"]);
        assert_eq!(index.search("Which rivers are in Siberia?", 5), [0, 2, 1]);
        assert_eq!(index.search("Europe's", 5), [2, 1]);
        assert_eq!(index.search("the of and", 5), [0usize; 0]);
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let index = index(&["planet", "planet planet moon", "sun"]);
        let average = 5.0 / 3.0;
        let rarity = (1.0f64 + (3.0 - 2.0 + 0.5) / (2.0 + 0.5)).ln();
        let score =
            |count: f64, length: f64| rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / average));
        let scores = index.scores("planets");
        for (found, expected) in scores.iter().zip([score(1.0, 1.0), score(2.0, 3.0), 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{scores:?}");
        }
    }

    #[test]
    fn passages_are_ranked_among_themselves() {
        let passages = [[("Kyoto", 1), ("It has temples.", 1)], [("Kyoto", 1), ("It was the capital.", 1)]];
        let scores = scores("What was once the capital of Japan?", passages);
        assert!(scores[1] > scores[0] && scores[0] == 0.0, "{scores:?}");
    }

    #[test]
    fn stop_words_of_a_query_do_not_count_as_stems() {
        assert_eq!((stem("one"), stem("its")), ("on".to_owned(), "it".to_owned()));
        assert_eq!(scores("on it", [[("one way", 1)], [("its", 1)]]), [0.0, 0.0]);
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("([a-eé]{1,2}[ ,.']{1,2}){0,8}", 0..12)
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_has_a_score_in_order(texts in texts(), query in "([a-eé]{1,2} ){0,6}", most in 0usize..8) {
            let index = index(&texts);
            let scores = index.scores(&query);
            prop_assert_eq!(scores.len(), texts.len());
            prop_assert!(scores.iter().all(|score| score.is_finite() && *score >= 0.0));
            let mut expected: Vec<usize> = (0..texts.len()).filter(|document| scores[*document] > 0.0).collect();
            expected.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]).then(left.cmp(right)));
            expected.truncate(most);
            prop_assert_eq!(index.search(&query, most), expected);
        }

        #[test]
        fn equal_texts_have_equal_scores_and_the_first_comes_first(texts in texts(), query in "([a-e]{1,2} ){1,6}") {
            let twice: Vec<&String> = texts.iter().chain(&texts).collect();
            let index = index(&twice);
            let scores = index.scores(&query);
            prop_assert_eq!(&scores[..texts.len()], &scores[texts.len()..]);
            let found = index.search(&query, 100);
            let (first, second): (Vec<usize>, Vec<usize>) = found.iter().partition(|found| **found < texts.len());
            prop_assert_eq!(first, second.into_iter().map(|found| found - texts.len()).collect::<Vec<_>>());
        }

        #[test]
        fn a_document_with_the_word_beats_one_without(texts in texts()) {
            let with: Vec<String> = texts.iter().cloned().chain(["zz".to_owned()]).collect();
            prop_assert_eq!(index(&with).search("zz", 3), [texts.len()]);
        }

        #[test]
        fn arbitrary_texts_and_queries_never_panic(texts in proptest::collection::vec(any::<String>(), 0..4), query in any::<String>()) {
            let index = index(&texts);
            prop_assert!(index.search(&query, 3).len() <= texts.len());
        }
    }
}
