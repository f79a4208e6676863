//! Pages from a file instead of Wikipedia: `--tool wiki=corpus:<JSON Lines file of title and text>`, or the
//! shipped pages: `--tool wiki=samples`. Also the addresses of Wikipedia pages, and the titles they contain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use lumos_environments::lines;
use lumos_environments::retrieval::{self, Library, LibraryBuilder};
use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_models::hash_file;
use lumos_tasks::families::qa::page::{self, MOST_RESULTS, WikiPage};
use lumos_tasks::{ContentHash, ToolBackend, ToolCall, ToolReply, WikiRequest};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend, hash_suffix};
use super::tool::{blocking, not_mine};
use super::{ToolFault, Tools};

/// `wiki=corpus:<file>`.
pub(super) const BACKEND: BackendDescription = BackendDescription {
    tool: Some("wiki"),
    forms: &["corpus:<JSON lines>"],
    parse: |_, backend| {
        let file = backend.strip_prefix("corpus:").map(PathBuf::from);
        Ok(file.map(|file| Box::new(CorpusSource::File(file)) as Box<dyn NamedBackend>))
    },
};

/// `wiki=samples`.
pub(super) const SHIPPED: BackendDescription = BackendDescription {
    tool: Some("wiki"),
    forms: &["samples"],
    parse: |_, backend| {
        Ok((backend == "samples").then(|| Box::new(CorpusSource::Samples) as Box<dyn NamedBackend>))
    },
};

/// Wikipedia's address.
pub(super) const SITE: &str = "https://en.wikipedia.org";
/// Path prefix of a page's name.
const PAGE_PATH: &str = "/wiki/";

/// The shipped pages.
const SAMPLES: [&str; 2] = [retrieval::HOTPOTQA_PAGES, retrieval::STRATEGYQA_PAGES];

/// Suffix that the original appends to search queries.
pub(super) const SEARCHED_SITE: &str = " Wikipedia";

/// The pages of a corpus.
#[derive(Debug)]
pub(crate) struct Corpus {
    library: Arc<Library>,
}

/// Where the pages are from.
enum CorpusSource {
    File(PathBuf),
    Samples,
}

impl NamedBackend for CorpusSource {
    fn version(&self) -> u32 {
        Corpus::VERSION
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Samples => None,
        }
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        match self {
            Self::File(file) => access.check_path(file),
            Self::Samples => Ok(()),
        }
    }

    fn content(&self) -> Result<String, BackendError> {
        let Self::File(file) = self else { return Ok(hash_suffix(Corpus::samples_hash())) };
        let hash = hash_file(file)?;
        let suffix = if Corpus::is_made_of_items(file)? { ToolBackend::MADE_OF_ITEMS } else { "" };
        Ok(hash_suffix(hash) + suffix)
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let corpus = match self {
            Self::File(file) => Corpus::read(file)?,
            Self::Samples => Corpus::samples()?,
        };
        Ok(Arc::new(corpus))
    }
}

/// A line of the file. Other fields are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    title: String,
    text: String,
}

/// The field with the identifier of a StrategyQA item.
#[derive(Debug, Deserialize)]
struct Origin {
    qid: Option<IgnoredAny>,
}

impl Corpus {
    /// Incremented when replies change for reasons other than [`retrieval::VERSION`] and
    /// [`page::READING_VERSION`].
    const OWN_VERSION: u32 = 1;

    /// Version of the code that determines the replies.
    pub(super) const VERSION: u32 =
        Self::OWN_VERSION * 10_000 + retrieval::VERSION * 100 + page::READING_VERSION;

    /// Reads and indexes a file, compressed or not. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, a line is not a page, or there are no pages.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Self::of_lines(lines::open(path)?)
    }

    /// Reads the pages from which the shipped samples of HotpotQA and StrategyQA can be answered. Blocks.
    ///
    /// # Errors
    /// Never: tests verify that the shipped pages are valid.
    pub(super) fn samples() -> io::Result<Self> {
        let lines = SAMPLES.iter().flat_map(|pages| pages.lines()).filter(|line| !line.trim().is_empty());
        Self::of_lines((1..).zip(lines).map(|(number, line)| Ok((number, line.to_owned()))))
    }

    /// Returns the hash of the shipped pages, which is part of a configuration.
    pub(super) fn samples_hash() -> ContentHash {
        ContentHash::of_json(&SAMPLES)
    }

    fn of_lines(lines: impl Iterator<Item = io::Result<(u64, String)>>) -> io::Result<Self> {
        let mut builder = LibraryBuilder::default();
        for line in lines {
            let (number, line) = line?;
            let Line { title, text } = serde_json::from_str(&line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
            })?;
            builder.add(&title, &text);
        }
        let library = builder.build();
        if library.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no pages in the file"));
        }
        Ok(Self { library: Arc::new(library) })
    }

    /// Whether a file's pages were made from a benchmark's items, so that they may contain the answers: its
    /// first line names an item in `qid`.
    pub(super) fn is_made_of_items(path: &Path) -> io::Result<bool> {
        let first = lines::open(path)?.next().transpose()?;
        let origin = first.and_then(|(_, line)| serde_json::from_str::<Origin>(&line).ok());
        Ok(origin.is_some_and(|origin| origin.qid.is_some()))
    }
}

/// Returns the address of the page with a title. Nothing is escaped, because the episode extracts the title
/// from the address.
pub(super) fn page_address(title: &str) -> String {
    format!("{SITE}{PAGE_PATH}{}", title.replace(' ', "_"))
}

/// Returns the titles that a request may refer to, most literal first: its text, or the name in its path, as
/// it is and percent-decoded.
fn titles_of(request: &WikiRequest) -> Vec<String> {
    let text = request.text();
    let name = match request {
        WikiRequest::Find(_) => return vec![text.to_owned()],
        WikiRequest::Path(_) | WikiRequest::Address(_) => {
            text.split_once(PAGE_PATH).map_or(text, |(_, name)| name).replace('_', " ")
        }
    };
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    if decoded == name { vec![name] } else { vec![name, decoded] }
}

/// Returns the requested page. If no page has its title, returns a list of the best matches, like Wikipedia's
/// search.
fn page(library: &Library, request: &WikiRequest) -> WikiPage {
    let titles = titles_of(request);
    if let Some(found) = titles.iter().find_map(|title| library.titled(title)) {
        return WikiPage::of_text(found.text);
    }
    let words = titles.last().map_or("", String::as_str);
    let found = library.search(words, MOST_RESULTS);
    if found.is_empty() {
        // A page without text, like that of a search without results.
        return WikiPage::of_text("");
    }
    WikiPage::Listed(found.iter().map(|page| page.title.to_owned()).collect())
}

/// Returns the addresses of the best matches.
fn search(library: &Library, query: &str, most: u32) -> Vec<String> {
    let words = query.strip_suffix(SEARCHED_SITE).unwrap_or(query);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    library.search(words, most).iter().map(|page| page_address(page.title)).collect()
}

#[async_trait]
impl Tools for Corpus {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let (library, call) = (Arc::clone(&self.library), call.clone());
        // A search among millions of pages takes milliseconds, which is too long for a thread of the runtime.
        blocking("wiki", move || match &call {
            ToolCall::Wiki { request, .. } => Ok(ToolReply::Wiki(page(&library, request))),
            ToolCall::Search { query, most } => Ok(ToolReply::Search(search(&library, query, *most))),
            _ => Err(not_mine(&call, "corpus")),
        })
        .await?
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lumos_tasks::Behaviour;
    use proptest::prelude::*;

    use super::*;

    const PAGES: &str = r#"
{"title": "Angara", "text": "The Angara is a river in Siberia. It flows into the Yenisei.", "sources": ["x"]}
{"title": "Danube", "text": "The Danube is a river in Europe."}
{"title": "Who's Who?", "text": "A book of 50% biographies."}
"#;

    fn corpus(content: &str) -> io::Result<Corpus> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(content.as_bytes())?;
        Corpus::read(file.path())
    }

    async fn wiki(corpus: &Corpus, query: &str) -> WikiPage {
        let call = ToolCall::Wiki { request: WikiRequest::of(query), reading: Behaviour::Paper };
        match corpus.call(&call).await.unwrap() {
            ToolReply::Wiki(page) => page,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_title_gives_its_page_and_other_words_a_list() {
        let corpus = corpus(PAGES).unwrap();
        let angara = WikiPage::of_text("The Angara is a river in Siberia. It flows into the Yenisei.");
        for query in ["Angara", "angara", "/wiki/Angara", "https://en.wikipedia.org/wiki/Angara#Course"] {
            assert_eq!(wiki(&corpus, query).await, angara, "{query}");
        }
        let list =
            |titles: &[&str]| WikiPage::Listed(titles.iter().map(|title| (*title).to_owned()).collect());
        assert_eq!(wiki(&corpus, "rivers of Siberia").await, list(&["Angara", "Danube"]));
        assert_eq!(wiki(&corpus, "https://en.wikipedia.org/wiki/Europe").await, list(&["Danube"]));
        assert_eq!(wiki(&corpus, "of the").await, WikiPage::of_text(""));
    }

    #[tokio::test]
    async fn the_shipped_pages_are_those_of_both_benchmarks() {
        let samples = Corpus::samples().unwrap();
        for title in ["Ada Lovelace", "Blue whale"] {
            assert!(matches!(wiki(&samples, title).await, WikiPage::Article { .. }), "{title}");
        }
    }

    #[tokio::test]
    async fn addresses_that_a_search_gives_are_those_of_pages() {
        let corpus = corpus(PAGES).unwrap();
        let call = ToolCall::Search { query: "biographies of Siberia Wikipedia".to_owned(), most: 3 };
        let ToolReply::Search(addresses) = corpus.call(&call).await.unwrap() else { panic!() };
        let expected = ["https://en.wikipedia.org/wiki/Angara", "https://en.wikipedia.org/wiki/Who's_Who?"];
        assert_eq!(addresses, expected);
        for address in addresses {
            assert!(matches!(wiki(&corpus, &address).await, WikiPage::Article { .. }), "{address}");
        }
    }

    #[tokio::test]
    async fn what_is_no_page_is_named_and_other_calls_are_refused() {
        let message = |content: &str| corpus(content).unwrap_err().to_string();
        assert!(message("{\"title\": \"A\", \"text\": \"b\"}\n{\"title\": 1}").starts_with("line 2: "));
        assert!(message("\n").contains("no pages in the file"));
        let call = ToolCall::Maths { query: "1".to_owned() };
        assert!(corpus(PAGES).unwrap().call(&call).await.unwrap_err().message.contains("corpus"));
    }

    #[test]
    fn names_in_addresses_are_titles() {
        let titles = |query: &str| titles_of(&WikiRequest::of(query));
        assert_eq!(titles("New York"), ["New York"]);
        assert_eq!(titles("/wiki/New_York"), ["New York"]);
        let address = "https://en.wikipedia.org/wiki/Antoni_Gaud%C3%AD?x#Life";
        assert_eq!(titles(address), ["Antoni Gaud%C3%AD?x#Life", "Antoni Gaudí"]);
    }

    proptest! {
        #[test]
        fn a_title_comes_back_from_its_address(title in "[^_]{1,30}") {
            let address = page_address(&title);
            prop_assert_eq!(&titles_of(&WikiRequest::Address(address))[0], &title);
        }
    }
}
