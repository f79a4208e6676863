//! [`Library`]: pages that can be found by title or, if no title matches, by their words.

use std::collections::HashMap;

use super::index::{PassageIndex, PassageIndexBuilder};

/// Weight of a title's words relative to the text.
const TITLE: u32 = 2;

/// A page of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The page's title.
    pub title: &'a str,
    /// The page's text, one paragraph per line.
    pub text: &'a str,
}

#[derive(Debug)]
struct Page {
    title: String,
    text: String,
}

/// Pages that can be found by title and by words.
#[derive(Debug)]
pub struct Library {
    pages: Vec<Page>,
    by_title: HashMap<String, usize>,
    /// By title as [`normalised`]; the first of several pages with the same title.
    by_normalised: HashMap<String, usize>,
    index: PassageIndex,
}

impl Library {
    /// The page with a title: an exact match, or otherwise one that differs only in case and blanks.
    pub fn titled(&self, title: &str) -> Option<Listed<'_>> {
        let position = self.by_title.get(title).or_else(|| self.by_normalised.get(&normalised(title)))?;
        self.page(*position)
    }

    /// The pages that match some words best, best first; among equals, the one that was added first comes
    /// first.
    pub fn search(&self, query: &str, most: usize) -> Vec<Listed<'_>> {
        self.index.search(query, most).into_iter().filter_map(|position| self.page(position)).collect()
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn page(&self, position: usize) -> Option<Listed<'_>> {
        self.pages.get(position).map(|page| Listed { title: &page.title, text: &page.text })
    }
}

/// Builds a [`Library`].
#[derive(Debug, Default)]
pub struct LibraryBuilder {
    pages: Vec<Page>,
    by_title: HashMap<String, usize>,
}

impl LibraryBuilder {
    /// Adds a paragraph. Paragraphs with the same title form one page, in the order in which they are added;
    /// duplicates are skipped. Character references in the title (HotpotQA's have them) are decoded.
    pub fn add(&mut self, title: &str, text: &str) {
        let title = plain(title);
        match self.by_title.get(&title).and_then(|position| self.pages.get_mut(*position)) {
            Some(page) if page.text.split('\n').any(|paragraph| paragraph == text) => {}
            Some(page) => {
                page.text.push('\n');
                page.text.push_str(text);
            }
            None => {
                self.by_title.insert(title.clone(), self.pages.len());
                self.pages.push(Page { title, text: text.to_owned() });
            }
        }
    }

    /// Builds the library after all paragraphs were added. This includes indexing.
    pub fn build(self) -> Library {
        let Self { pages, by_title } = self;
        let mut by_normalised = HashMap::with_capacity(pages.len());
        let mut index = PassageIndexBuilder::default();
        for (position, page) in pages.iter().enumerate() {
            by_normalised.entry(normalised(&page.title)).or_insert(position);
            index.add([(page.title.as_str(), TITLE), (page.text.as_str(), 1)]);
        }
        Library { pages, by_title, by_normalised, index: index.build() }
    }
}

/// A title in lower case with single blanks; underscores count as blanks.
fn normalised(title: &str) -> String {
    let mut words = String::with_capacity(title.len());
    for word in title.split(|character: char| character.is_whitespace() || character == '_') {
        if !word.is_empty() {
            if !words.is_empty() {
                words.push(' ');
            }
            words.extend(word.chars().flat_map(char::to_lowercase));
        }
    }
    words
}

/// A title with the character references in HotpotQA's files decoded.
fn plain(title: &str) -> String {
    if !title.contains('&') {
        return title.to_owned();
    }
    let references = [("&quot;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    references
        .iter()
        .fold(title.to_owned(), |title, (reference, character)| title.replace(reference, character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn library(paragraphs: &[(&str, &str)]) -> Library {
        let mut builder = LibraryBuilder::default();
        paragraphs.iter().for_each(|(title, text)| builder.add(title, text));
        builder.build()
    }

    #[test]
    fn the_title_itself_comes_before_one_like_it() {
        let library = library(&[("Mercury", "a planet"), ("MERCURY", "a project"), ("New  York", "a city")]);
        let text = |title: &str| library.titled(title).map(|page| page.text);
        assert_eq!(text("MERCURY"), Some("a project"));
        assert_eq!(text("mercury"), Some("a planet"));
        assert_eq!(text(" new_york "), Some("a city"));
        assert_eq!(text("York"), None);
    }

    #[test]
    fn paragraphs_of_one_title_are_one_page() {
        let library = library(&[("A", "first"), ("B", "other"), ("A", "second"), ("A", "first")]);
        assert_eq!((library.pages.len(), library.titled("A").unwrap().text), (2, "first\nsecond"));
    }

    #[test]
    fn references_in_titles_are_resolved() {
        let library = library(&[("&quot;Q&quot; &amp; A", "text"), ("&amp;lt;", "once only")]);
        assert_eq!(library.titled("\"Q\" & A").unwrap().title, "\"Q\" & A");
        assert!(library.titled("&lt;").is_some());
    }

    #[test]
    fn pages_are_found_by_their_words() {
        let pages = [
            ("Angara", "A river in Siberia."),
            ("Danube", "A river in Europe."),
            ("Ob", "It is in Siberia."),
        ];
        let library = library(&pages);
        let titles: Vec<&str> =
            library.search("Siberian rivers like the Danube", 2).iter().map(|page| page.title).collect();
        assert_eq!(titles, ["Danube", "Angara"]);
    }

    proptest! {
        #[test]
        fn every_page_is_found_under_its_title(titles in proptest::collection::vec(any::<String>(), 1..8)) {
            let mut builder = LibraryBuilder::default();
            titles.iter().for_each(|title| builder.add(title, "text"));
            let library = builder.build();
            for title in titles {
                prop_assert_eq!(library.titled(&plain(&title)).unwrap().title, plain(&title));
            }
        }
    }
}
