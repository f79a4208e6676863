//! The addresses that may be requested. Queries are a model's output, so an address may be anything: only the
//! site's own hosts are contacted.

use lumos_environments::retrieval::{is_stop_word, words};
use lumos_tasks::{Behaviour, WikiRequest};
use url::Url;

use crate::corpus::SITE;

/// Maximum length of an address, in bytes. The site rejects longer ones.
const LONGEST: usize = 8 << 10;
/// Maximum number of words in a search.
const MOST_WORDS: usize = 40;
/// Maximum number of characters that the site's search accepts.
const LONGEST_SEARCH: usize = 300;
/// Domains of the Wikimedia Foundation, which refer to each other.
const SISTERS: [&str; 11] = [
    "mediawiki.org",
    "wikibooks.org",
    "wikidata.org",
    "wikimedia.org",
    "wikinews.org",
    "wikipedia.org",
    "wikiquote.org",
    "wikisource.org",
    "wikiversity.org",
    "wikivoyage.org",
    "wiktionary.org",
];

/// The site that requests are sent to.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// Origin of its addresses.
    origin: Url,
    /// Whether it replaces the default site.
    is_other: bool,
}

impl Site {
    pub(super) fn new(endpoint: &str) -> Result<Self, String> {
        let origin = Url::parse(endpoint)
            .map_err(|error| format!("invalid address of a site `{endpoint}`: {error}"))?;
        let is_plain = origin.path() == "/" && origin.query().is_none() && origin.has_host();
        if !matches!(origin.scheme(), "http" | "https") || !is_plain {
            return Err(format!("invalid address of a site `{endpoint}`: expected an address like {SITE}"));
        }
        let is_other = Url::parse(SITE).is_ok_and(|usual| usual.origin() != origin.origin());
        Ok(Self { origin, is_other })
    }

    /// Whether an address may be requested.
    pub(super) fn allows(&self, address: &Url) -> bool {
        let anonymous = address.username().is_empty() && address.password().is_none();
        let is_own = address.origin() == self.origin.origin();
        let is_sister = !self.is_other
            && address.scheme() == "https"
            && address.port().is_none()
            && address.domain().is_some_and(is_wikimedia);
        anonymous && (is_own || is_sister)
    }

    /// Returns the address of a request, or the reason why it is rejected.
    pub(super) fn address(&self, request: &WikiRequest, reading: Behaviour) -> Result<Url, String> {
        let refused = |why: &str| {
            let shown: String = request.text().chars().take(100).collect();
            format!("`{shown}` is not asked: {why}")
        };
        let mut address = match (request, reading) {
            // In the original, a `&` or a `#` truncates the text.
            (WikiRequest::Find(text), Behaviour::Corrected) => {
                self.with_query("/w/index.php", &[("search", text)])
            }
            // The parser would remove line breaks, which the original's HTTP client encodes.
            _ => {
                let address =
                    request.address().replace('\n', "%0A").replace('\r', "%0D").replace('\t', "%09");
                Url::parse(&address).map_err(|error| refused(&error.to_string()))?
            }
        };
        address.set_fragment(None);
        if self.is_other && address.as_str().strip_prefix(SITE).is_some_and(|rest| rest.starts_with('/')) {
            let mut own = self.origin.clone();
            own.set_path(address.path());
            own.set_query(address.query());
            address = own;
        }
        if !self.allows(&address) {
            return Err(refused("its host is none of the encyclopaedia's"));
        }
        if address.as_str().len() > LONGEST {
            return Err(refused("it is too long"));
        }
        Ok(address)
    }

    /// Returns the address of a search (`https://www.mediawiki.org/wiki/API:Search`).
    pub(super) fn search(&self, words: &str, most: u32) -> Url {
        let most = most.clamp(1, 50).to_string();
        let query = [
            ("action", "query"),
            ("list", "search"),
            ("format", "json"),
            ("formatversion", "2"),
            ("srlimit", &most),
            ("srsearch", words),
        ];
        self.with_query("/w/api.php", &query)
    }

    fn with_query(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut address = self.origin.clone();
        address.set_path(path);
        address.query_pairs_mut().extend_pairs(query);
        address
    }
}

/// Returns the searches for a question, in order: all of its words, then any of its words except stop words.
/// Operators and punctuation are removed.
pub(super) fn searches(question: &str) -> Vec<String> {
    let all: Vec<&str> = words(question).filter(|word| !is_operator(word)).take(MOST_WORDS).collect();
    let telling = all.iter().copied().filter(|word| !is_stop_word(&word.to_lowercase()));
    let any = telling.collect::<Vec<_>>().join(" OR ");
    let mut searches = vec![all.join(" "), any];
    searches.dedup();
    searches.into_iter().filter(|words| !words.is_empty()).map(|words| cut(words, LONGEST_SEARCH)).collect()
}

fn is_operator(word: &str) -> bool {
    matches!(word, "OR" | "AND" | "NOT")
}

/// Truncates to at most `most` characters, at a word boundary.
fn cut(words: String, most: usize) -> String {
    match words.char_indices().nth(most) {
        None => words,
        Some((end, _)) => {
            let kept = words.get(..end).and_then(|kept| kept.rsplit_once(' ')).map_or("", |(kept, _)| kept);
            kept.trim_end_matches(" OR").to_owned()
        }
    }
}

fn is_wikimedia(domain: &str) -> bool {
    let is_at_or_below = |rest: &str| rest.is_empty() || rest.ends_with('.');
    SISTERS.iter().any(|site| domain.strip_suffix(site).is_some_and(is_at_or_below))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(site: &Site, query: &str, reading: Behaviour) -> Option<String> {
        site.address(&WikiRequest::of(query), reading).ok().map(String::from)
    }

    #[test]
    fn requests_go_to_the_site() {
        let site = Site::new(SITE).unwrap();
        let paper = |query: &str| asked(&site, query, Behaviour::Paper).unwrap();
        assert_eq!(paper("Ford CD2"), "https://en.wikipedia.org/w/index.php?search=Ford+CD2");
        assert_eq!(paper("AT&T #1"), "https://en.wikipedia.org/w/index.php?search=AT&T+");
        assert_eq!(paper("/wiki/Port_Amity"), "https://en.wikipedia.org/wiki/Port_Amity");
        assert_eq!(paper("https://en.wikipedia.org/wiki/山#x"), "https://en.wikipedia.org/wiki/%E5%B1%B1");
        let corrected = asked(&site, "AT&T #1", Behaviour::Corrected);
        assert_eq!(corrected.as_deref(), Some("https://en.wikipedia.org/w/index.php?search=AT%26T+%231"));
    }

    #[test]
    fn no_other_host_is_asked() {
        let site = Site::new(SITE).unwrap();
        for query in [
            "https://example.com/wiki/X",
            "https://127.0.0.1/wiki/X",
            "https://[::1]/wiki/X",
            "https://localhost/wiki/X",
            "https://2130706433/wiki/X",
            "https://en.wikipedia.org:8080/wiki/X",
            "https://en.wikipedia.org.example.com/wiki/X",
            "https://notwikipedia.org/wiki/X",
            "https://user@en.wikipedia.org/wiki/X",
            "file:///etc/passwd?https://",
            "http://en.wikipedia.org/?https://",
            "see https://en.wikipedia.org/wiki/X",
            "@example.com/wiki/X",
            ".example.com/wiki/X",
            ":8080/wiki/X",
        ] {
            assert_eq!(asked(&site, query, Behaviour::Paper), None, "{query}");
        }
        let long = "x".repeat(10_000);
        assert_eq!(asked(&site, &long, Behaviour::Paper), None);
    }

    #[test]
    fn line_breaks_are_encoded() {
        let site = Site::new(SITE).unwrap();
        let address = asked(&site, "one\n2\t3", Behaviour::Paper).unwrap();
        assert!(address.ends_with("one%0A2%093"), "{address}");
    }

    #[test]
    fn another_site_takes_the_place_of_the_usual_one() {
        let site = Site::new("http://127.0.0.1:8080").unwrap();
        let paper = |query: &str| asked(&site, query, Behaviour::Paper);
        assert_eq!(paper("a b").as_deref(), Some("http://127.0.0.1:8080/w/index.php?search=a+b"));
        let address = "https://en.wikipedia.org/wiki/X";
        assert_eq!(paper(address).as_deref(), Some("http://127.0.0.1:8080/wiki/X"));
        assert_eq!(paper("https://de.wikipedia.org/wiki/X"), None);
        assert_eq!(paper("https://127.0.0.1:8081/wiki/X"), None);
        assert_eq!(paper("@example.com/wiki/X"), None);
        for endpoint in ["ftp://example.com", "https://example.com/w", "example.com", "data:x"] {
            assert!(Site::new(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn questions_become_searches() {
        assert_eq!(
            searches("Who was \"Holst\"? insource:/x/ OR -intitle:the"),
            ["Who was Holst insource x intitle the", "Who OR Holst OR insource OR x OR intitle"]
        );
        assert!(searches("?!").is_empty());
        let long = "word ".repeat(500);
        assert!(searches(&long).iter().all(|words| words.len() <= 300 && words.ends_with("word")));
    }

    proptest! {
        #[test]
        fn whatever_is_asked_is_asked_of_the_site(query in "(https://|/wiki/|@|:|//|\\.|#|[a-z0-9. ]){1,8}") {
            let site = Site::new(SITE).unwrap();
            if let Some(address) = asked(&site, &query, Behaviour::Paper) {
                let host = Url::parse(&address).unwrap().host_str().map(str::to_owned);
                prop_assert!(host.is_some_and(|host| host.ends_with(".wikipedia.org")), "{}", address);
            }
        }
    }
}
