//! Pages by title, and by their words where no title fits.

use std::collections::HashMap;

use super::index::{Bm25, Hit, Index, IndexBuilder};

/// A title's words count this many times.
const TITLE: u32 = 2;

/// A page of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its title.
    pub title: &'a str,
    /// Its text, one paragraph a line.
    pub text: &'a str,
}

#[derive(Debug)]
struct Page {
    title: String,
    text: String,
}

/// Pages that can be looked up.
#[derive(Debug)]
pub struct Library {
    pages: Vec<Page>,
    by_title: HashMap<String, usize>,
    /// By title as [`normalised`]; of several pages the first.
    by_normalised: HashMap<String, usize>,
    index: Index,
}

impl Library {
    /// The page of a title: the title itself, or else one that differs from it in case and blanks only.
    pub fn titled(&self, title: &str) -> Option<Listed<'_>> {
        let position = self.by_title.get(title).or_else(|| self.by_normalised.get(&normalised(title)))?;
        self.page(*position)
    }

    /// The pages that fit some words best, the best first and among equals the one that was added first.
    pub fn search(&self, query: &str, most: usize) -> Vec<Listed<'_>> {
        let hits = self.index.search(query, most);
        hits.into_iter().filter_map(|Hit { document, .. }| self.page(document)).collect()
    }

    /// How many pages there are.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn page(&self, position: usize) -> Option<Listed<'_>> {
        self.pages.get(position).map(|page| Listed { title: &page.title, text: &page.text })
    }
}

/// A library that is being filled.
#[derive(Debug, Default)]
pub struct LibraryBuilder {
    pages: Vec<Page>,
    by_title: HashMap<String, usize>,
}

impl LibraryBuilder {
    /// Adds a paragraph. Those of one title become one page, in the order in which they are added; the same one again
    /// is left out. Character references in the title (HotpotQA's have them) are resolved.
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

    /// The library, once all paragraphs are in. Takes as long as indexing does.
    pub fn build(self) -> Library {
        let Self { pages, by_title } = self;
        let mut by_normalised = HashMap::with_capacity(pages.len());
        let mut index = IndexBuilder::new(Bm25::default());
        for (position, page) in pages.iter().enumerate() {
            by_normalised.entry(normalised(&page.title)).or_insert(position);
            index.add([(page.title.as_str(), TITLE), (page.text.as_str(), 1)]);
        }
        Library { pages, by_title, by_normalised, index: index.build() }
    }
}

/// A title in lower case with single blanks; an underscore is one.
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

/// A title without the character references that HotpotQA's files write.
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
        assert_eq!((library.len(), library.titled("A").unwrap().text), (2, "first\nsecond"));
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
