//! Parses pages of the encyclopaedia (upstream `search_step` and `get_page_obs` in `eval/hotpotqa/utils.py`).
//!
//! [`read`] converts HTML to a [`WikiPage`]; [`WikiPage::observation`] is the text that an episode sees.

mod escapes;
mod html;
mod references;

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::formulation::Behaviour;
use crate::python::strip;
use html::Elements;

pub use escapes::clean;

/// Separator between the sentences of an observation.
pub const SENTENCE_MARK: &str = "*****";
/// Separator between an observation's table and its sentences.
pub(crate) const TABLE_MARK: &str = "+++++";
/// Maximum number of sentences of a page that was requested directly.
pub const MOST_SENTENCES: usize = 40;
/// Maximum number of sentences of a page from a list.
pub const LISTED_SENTENCES: usize = 15;

/// Incremented when the parsing of pages changes, so that answers from the old and new parser are not mixed.
pub const READING_VERSION: u32 = 2;

const MOST_ROWS: usize = 20;
/// Maximum number of titles kept from a list of search results.
pub const MOST_RESULTS: usize = 5;
const MOST_MEANINGS: usize = 10;
/// Minimum number of words in a paragraph; shorter ones are skipped.
const LEAST_WORDS: usize = 11;
/// Maximum size of a page's text in bytes; nested elements count again. No real page comes close.
const MOST_TEXT: usize = 64 << 20;

/// A parsed page.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WikiPage {
    /// A list of pages to request instead: titles of search results, or paths of a disambiguation page's
    /// meanings.
    Listed(Vec<String>),
    /// A page of text.
    Article {
        /// The first rows of its tables, if it has any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
        /// Its first sentences, at most [`MOST_SENTENCES`].
        sentences: Vec<String>,
    },
    /// The page's text cannot be read (escapes, in paper behaviour only, or a limit), or no page exists at
    /// such an address: the original raises.
    Unreadable {
        /// The reason, for people.
        message: String,
    },
}

impl WikiPage {
    /// Creates a page from plain text, one paragraph per line, for corpora.
    pub fn of_text(text: &str) -> Self {
        let mut sentences = sentences(text);
        sentences.truncate(MOST_SENTENCES);
        Self::Article { table: None, sentences }
    }

    /// The text that an episode sees; `None` for a list.
    pub fn observation(&self, most_sentences: usize) -> Option<String> {
        let Self::Article { table, sentences } = self else { return None };
        let shown = &sentences[..most_sentences.min(sentences.len())];
        let text = shown.join(&format!(" {SENTENCE_MARK} "));
        Some(match table {
            Some(table) => format!("{table} {TABLE_MARK} {text}"),
            None => text,
        })
    }
}

/// Parses a page's HTML: a list of search results, a disambiguation page, or tables, paragraphs and lists.
///
/// Paper behaviour decodes backslash escapes ([`clean`]), which may fail; corrected behaviour leaves them
/// unchanged.
pub fn read(html: &str, reading: Behaviour) -> WikiPage {
    let read = |text: &str| match reading {
        Behaviour::Paper => clean(text),
        Behaviour::Corrected => Ok(text.to_owned()),
    };
    read_with(html, read).unwrap_or_else(|why| WikiPage::Unreadable { message: why.to_owned() })
}

fn read_with(
    html: &str,
    read: impl Fn(&str) -> Result<String, &'static str>,
) -> Result<WikiPage, &'static str> {
    let elements = Elements::read(html)?;
    let mut looked_at = 0usize;
    let mut bounded = |text: &str| {
        looked_at = looked_at.saturating_add(text.len());
        if looked_at > MOST_TEXT { Err("the page holds more text than is read") } else { Ok(()) }
    };
    let mut results = Vec::new();
    for heading in elements.headings() {
        bounded(heading)?;
        // All are cleaned, because any may fail; only the first are kept.
        let title = read(strip(heading))?;
        if results.len() < MOST_RESULTS {
            results.push(title);
        }
    }
    if !results.is_empty() {
        return Ok(WikiPage::Listed(results));
    }
    for text in elements.paragraphs_and_lists() {
        bounded(text)?;
        if text.contains("may refer to:") {
            return Ok(WikiPage::Listed(meanings(html)));
        }
    }
    let mut table = String::new();
    for row in elements.rows().take(MOST_ROWS) {
        bounded(row)?;
        table.push_str(&read(strip(row))?.replace('\n', " "));
        table.push(' ');
    }
    let mut found = Vec::new();
    for text in elements.paragraphs_and_lists().map(strip) {
        if text.split(' ').nth(LEAST_WORDS - 1).is_some() {
            // All are cleaned, because any may fail; only the first sentences are kept.
            let cleaned = read(text)?;
            if found.len() < MOST_SENTENCES {
                found.extend(sentences(&cleaned));
            }
        }
    }
    found.truncate(MOST_SENTENCES);
    Ok(WikiPage::Article { table: (!table.is_empty()).then_some(table), sentences: found })
}

/// Paths of the pages that a disambiguation page lists, found by searching its HTML as text.
fn meanings(html: &str) -> Vec<String> {
    static MEANING: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"<li><a href="(.*?)" title="#).expect("a valid pattern"));
    let paths = MEANING.captures_iter(html).filter_map(|captures| captures.get(1)).map(|path| path.as_str());
    paths
        .filter(|path| !path.contains("Category:"))
        .map(|path| path.split('"').next().unwrap_or_default().to_owned())
        .take(MOST_MEANINGS)
        .collect()
}

/// Splits a text into sentences at `. ` within its lines; each gets a full stop.
pub fn sentences(text: &str) -> Vec<String> {
    let lines = text.split('\n').map(strip).filter(|line| !line.is_empty());
    lines
        .flat_map(|line| line.split(". "))
        .map(strip)
        .filter(|sentence| !sentence.is_empty())
        .map(|sentence| format!("{sentence}."))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_of_text() {
        let html = "<table><tr><th>Born</th><td>1\n2</td></tr></table>\
            <p>Kyoto is a city in Japan that was its capital for a thousand years. It has temples.</p>\
            <p>too short</p>\
            <ul><li>one two three four five</li> <li>six seven eight nine ten eleven</li></ul>";
        let page = read(html, Behaviour::Paper);
        assert_eq!(
            page.observation(40).unwrap(),
            "Born1 2  +++++ Kyoto is a city in Japan that was its capital for a thousand years. ***** It has temples.. \
             ***** one two three four five six seven eight nine ten eleven."
        );
        assert_eq!(
            page.observation(1).unwrap(),
            "Born1 2  +++++ Kyoto is a city in Japan that was its capital for a thousand years."
        );
    }

    #[test]
    fn lists_of_results_and_of_meanings() {
        let results = "<div class=\"mw-search-result-heading\"> A </div>".repeat(7);
        assert_eq!(read(&results, Behaviour::Paper), WikiPage::Listed(vec!["A".to_owned(); 5]));
        let meanings = "<p>Mercury may refer to:</p><li><a href=\"/wiki/Planet\" title=\"x\">\
            <li><a href=\"/wiki/Category:No\" title=\"x\"><li><a href=\"/a\" class=\"b\" title=\"x\">";
        let expected = ["/wiki/Planet", "/a"].map(str::to_owned).to_vec();
        assert_eq!(read(meanings, Behaviour::Paper), WikiPage::Listed(expected));
    }

    #[test]
    fn escapes_that_cannot_be_undone_fail_in_paper_reading_only() {
        let html =
            "<p>The velocity \\nu and \\upsilon are – in this paragraph of many words – Greek letters.</p>";
        assert!(matches!(read(html, Behaviour::Paper), WikiPage::Unreadable { .. }));
        assert!(read(html, Behaviour::Corrected).observation(1).unwrap().contains("\\upsilon"));
    }

    #[test]
    fn a_page_of_nested_paragraphs_is_refused_in_bounded_time() {
        let html = "<p>one two three four five six seven eight nine ten eleven".repeat(20_000);
        assert!(matches!(read(&html, Behaviour::Paper), WikiPage::Unreadable { .. }));
    }

    #[test]
    fn a_page_of_nested_results_is_refused_in_bounded_memory() {
        let html = "<div class=mw-search-result-heading>title".repeat(20_000);
        assert!(matches!(read(&html, Behaviour::Paper), WikiPage::Unreadable { .. }));
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(html in "(<(/?(p|ul|li|tr|div|script|b)|!--)>?|[a-z .&;\\\\é]{0,12}){0,30}") {
            for reading in Behaviour::ALL {
                let page = read(&html, reading);
                let text = serde_json::to_string(&page).unwrap();
                prop_assert_eq!(serde_json::from_str::<WikiPage>(&text).unwrap(), page);
            }
        }

        #[test]
        fn arbitrary_text_is_read_as_sentences(text in any::<String>()) {
            let page = WikiPage::of_text(&text);
            prop_assert!(page.observation(15).unwrap().len() <= page.observation(40).unwrap().len());
        }
    }
}
