//! Names of backends: on the command line and, with a version or a hash, in the configurations of a run.

use std::io;
use std::path::PathBuf;

use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_models::{hash_file, hash_folder};
use lumos_tasks::{ContentHash, ToolBackend};
use thiserror::Error;
use url::Url;

use super::corpus::Corpus;
use super::live::{LiveWiki, WikiSettings};
use super::maths::NativeMaths;
use super::ranking::{Bm25Ranking, CROSS_ENCODER_VERSION, DPR_VERSION};
use crate::browser::{BrowserName, UnknownBrowser};
use crate::sessions::catalogue::{SHOP_VERSION, ShopFiles};
use crate::sessions::sql::{self, MySqlSettings};
use crate::sessions::web::{BROWSER_VERSION, WebPages};

/// The names of all tools, sorted. Questions to models ([`Role::Qa`](lumos_tasks::Role)) are not a tool.
pub const TOOLS: [&str; 6] = ["maths", "rank", "shop", "sql", "web", "wiki"];

/// Returns the backends of a tool, as given after `--tool <tool>=`. Empty if the tool does not exist.
pub fn backends(tool: &str) -> &'static [&'static str] {
    match tool {
        "maths" => &["native", "wolfram", "recorded:<cases file>"],
        "rank" => &["bm25", "dpr:<folder>", "cross-encoder:<folder>", "recorded:<cases file>"],
        "shop" => &[
            "memory",
            "memory:<folder>",
            "chromedriver",
            "chromedriver:<folder>",
            "http://<WebDriver server>",
            "recorded:<cases file>",
        ],
        "sql" => &["sqlite", "sqlite:<folder>", "mysql", "mysql://<host>"],
        "web" => &["native", "chromedriver", "http://<WebDriver server>"],
        "wiki" => &["live", "corpus:<JSON lines>", "samples", "recorded:<cases file>"],
        _ => &[],
    }
}

/// Errors of setting up a tool's backend.
#[derive(Debug, Error)]
pub enum ToolSetError {
    /// The operator of this worker does not allow the backend.
    #[error("{tool}={backend}: {refusal}")]
    NotAllowed {
        /// The tool.
        tool: String,
        /// The requested backend.
        backend: String,
        /// The file or host that is not allowed.
        refusal: AccessRefusal,
    },
    /// A file of the backend cannot be read.
    #[error("{tool}={backend}: {source}")]
    Unreadable {
        /// The tool.
        tool: String,
        /// The requested backend.
        backend: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The model of the backend cannot be opened.
    #[error("{tool}={backend}: {source}")]
    Model {
        /// The tool.
        tool: String,
        /// The requested backend.
        backend: String,
        /// The cause.
        source: Box<lumos_engine::LoadError>,
    },
    /// The tool or the backend is unknown, its settings are invalid, or this host or this build lacks what it needs.
    /// The message names the tool.
    #[error("{0}")]
    Unusable(String),
}

/// Creates the error of a backend that cannot be used.
pub(super) fn unusable(backend: &str, why: impl std::fmt::Display) -> ToolSetError {
    ToolSetError::Unusable(format!("{backend}: {why}"))
}

/// Creates the error of an unknown backend.
fn unknown(tool: &str, backend: &str, why: &str) -> ToolSetError {
    unusable(&format!("{tool}={backend}"), format!("{why}; expected one of {}", backends(tool).join(", ")))
}

/// A parsed backend name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Native,
    Wolfram,
    Bm25,
    Dpr(PathBuf),
    Live,
    Corpus(PathBuf),
    /// The shipped pages.
    Samples,
    Recorded(PathBuf),
    Web,
    CrossEncoder(PathBuf),
    /// Databases of episodes, from a folder of files or from the shipped samples.
    Sqlite(Option<PathBuf>),
    /// Databases of episodes on a server.
    MySql,
    Shop(ShopFiles),
    /// The shop as web pages in a browser.
    BrowserShop(BrowserName, ShopFiles),
    /// Web pages of tasks in a browser.
    BrowserWeb(BrowserName),
}

impl Named {
    /// Parses a name as given on the command line.
    pub(super) fn parse(tool: &str, backend: &str) -> Result<Self, ToolSetError> {
        if !TOOLS.contains(&tool) {
            let message = format!("unknown tool `{tool}`: expected one of {}", TOOLS.join(", "));
            return Err(ToolSetError::Unusable(message));
        }
        match (tool, backend.split_once(':')) {
            ("sql", None) if backend == "sqlite" => Ok(Self::Sqlite(None)),
            ("sql", Some(("sqlite", folder))) => Ok(Self::Sqlite(Some(PathBuf::from(folder)))),
            ("sql", None) if backend == "mysql" => Ok(Self::MySql),
            ("sql", Some(("mysql", _))) => {
                mysql_address(backend)?;
                Ok(Self::MySql)
            }
            // The name is not quoted, because it may contain a password. Recorded results cannot be used:
            // they have no sessions.
            ("sql", _) => Err(unknown(tool, "…", "unknown backend")),
            ("maths", None) if backend == "native" => Ok(Self::Native),
            ("maths", None) if backend == "wolfram" => Ok(Self::Wolfram),
            ("rank", None) if backend == "bm25" => Ok(Self::Bm25),
            ("rank", Some(("dpr", folder))) => Ok(Self::Dpr(PathBuf::from(folder))),
            ("rank", Some(("cross-encoder", folder))) => Ok(Self::CrossEncoder(PathBuf::from(folder))),
            ("wiki", None) if backend == "live" => Ok(Self::Live),
            ("wiki", None) if backend == "samples" => Ok(Self::Samples),
            ("wiki", Some(("corpus", file))) => Ok(Self::Corpus(PathBuf::from(file))),
            ("web", None) if backend == "native" => Ok(Self::Web),
            ("shop", _) if is_browser(backend) => ShopFiles::parse_in_browser(backend)
                .map(|(browser, files)| Self::BrowserShop(browser, files))
                .map_err(|error| no_browser(tool, &error)),
            ("web", _) if is_browser(backend) => {
                backend.parse().map(Self::BrowserWeb).map_err(|error| no_browser(tool, &error))
            }
            ("shop", _) if backend.starts_with("memory") => {
                let files = backend.strip_prefix("memory").and_then(ShopFiles::parse);
                files.map(Self::Shop).ok_or_else(|| unknown(tool, backend, "unknown backend"))
            }
            (_, Some(("recorded", file))) => Ok(Self::Recorded(PathBuf::from(file))),
            _ => Err(unknown(tool, backend, "unknown backend")),
        }
    }

    /// Parses a name as recorded in a configuration.
    pub(super) fn parse_planned(tool: &str, backend: &str) -> Result<Self, ToolSetError> {
        Self::parse(tool, without_hash(backend))
    }

    /// Returns the browser that the backend needs.
    pub(super) fn browser(&self) -> Option<&BrowserName> {
        match self {
            Self::BrowserShop(browser, _) | Self::BrowserWeb(browser) => Some(browser),
            _ => None,
        }
    }

    /// Checks that a run may use the backend here: the files that it reads, and the server in its name.
    pub(super) fn check(&self, backend: &str, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        let paths: Vec<&PathBuf> = match self {
            Self::Dpr(path)
            | Self::CrossEncoder(path)
            | Self::Corpus(path)
            | Self::Recorded(path)
            | Self::Sqlite(Some(path)) => vec![path],
            Self::Shop(files) | Self::BrowserShop(_, files) => {
                files.folder.iter().chain(&files.nouns).collect()
            }
            Self::Native
            | Self::Samples
            | Self::Wolfram
            | Self::Bm25
            | Self::Live
            | Self::Web
            | Self::Sqlite(None)
            | Self::MySql
            | Self::BrowserWeb(_) => Vec::new(),
        };
        paths.into_iter().try_for_each(|path| access.check_path(path))?;
        if let Some(BrowserName::Remote(url)) = self.browser() {
            access.check_url(url)?;
        }
        // `mysql` without an address refers to the server set in the environment.
        let server = MySqlSettings::of_url(backend).filter(|_| *self == Self::MySql);
        match server.and_then(|server| Url::parse(&server.address()).ok()) {
            Some(url) => access.check_url(&url),
            None => Ok(()),
        }
    }

    /// Returns the version of its replies.
    fn version(&self) -> u32 {
        match self {
            Self::Native => NativeMaths::VERSION,
            Self::Bm25 => Bm25Ranking::VERSION,
            Self::Dpr(_) => DPR_VERSION,
            Self::CrossEncoder(_) => CROSS_ENCODER_VERSION,
            Self::Live => LiveWiki::VERSION,
            Self::Corpus(_) | Self::Samples => Corpus::VERSION,
            Self::Web => WebPages::VERSION,
            Self::BrowserWeb(_) => BROWSER_VERSION,
            Self::Wolfram | Self::Recorded(_) => 0,
            Self::Sqlite(_) | Self::MySql => sql::VERSION,
            Self::Shop(_) | Self::BrowserShop(..) => SHOP_VERSION,
        }
    }

    /// Returns the suffix of its name in a configuration: a hash of its files or the address of its server.
    /// Blocks.
    fn content(&self, tool: &str, backend: &str) -> Result<String, ToolSetError> {
        let content = match self {
            Self::Native
            | Self::Wolfram
            | Self::Bm25
            | Self::Web
            | Self::BrowserWeb(_)
            | Self::Sqlite(None) => Ok(String::new()),
            Self::MySql => {
                let address = mysql_address(backend)?;
                Ok(if backend == "mysql" { format!("#{address}") } else { String::new() })
            }
            Self::Live => {
                let settings = WikiSettings::from_environment().map_err(|why| unusable("wiki=live", why))?;
                Ok(settings.other_site().map(|site| format!("#{site}")).unwrap_or_default())
            }
            Self::Sqlite(Some(folder)) => sql::SqliteFolder::content(folder).map(shown),
            Self::Dpr(folder) | Self::CrossEncoder(folder) => hash_folder(folder).map(shown),
            Self::Samples => Ok(shown(Corpus::samples_hash())),
            Self::Recorded(file) => hash_file(file).map(shown),
            Self::Shop(files) => files.content(),
            Self::BrowserShop(browser, files) => files.content().map(|content| match browser {
                // The identity contains only the hash of a name that has one, so the hash must cover the
                // address.
                BrowserName::Remote(_) if !content.is_empty() => {
                    shown(ContentHash::of_json(&(browser.to_string(), content)))
                }
                _ => content,
            }),
            Self::Corpus(file) => hash_file(file).and_then(|hash| {
                let suffix = if Corpus::is_made_of_items(file)? { ToolBackend::MADE_OF_ITEMS } else { "" };
                Ok(shown(hash) + suffix)
            }),
        };
        content.map_err(|source| ToolSetError::Unreadable {
            tool: tool.to_owned(),
            backend: backend.to_owned(),
            source,
        })
    }
}

/// Returns the identity of a backend. It contains a version or a hash, so that different replies are
/// different configurations. Blocks.
pub(super) fn identify(tool: &str, backend: &str) -> Result<ToolBackend, ToolSetError> {
    let named = Named::parse(tool, backend)?;
    let content = named.content(tool, backend)?;
    Ok(ToolBackend {
        tool: tool.to_owned(),
        backend: format!("{backend}{content}"),
        version: named.version(),
    })
}

/// Removes the suffix of a name in a configuration: the hash of its files or the address of its server.
pub(super) fn without_hash(backend: &str) -> &str {
    backend.rsplit_once('#').map_or(backend, |(name, _)| name)
}

/// Whether a backend of the shop or the web names a browser.
fn is_browser(backend: &str) -> bool {
    ["chromedriver", "http:", "https:"].iter().any(|beginning| backend.starts_with(beginning))
}

/// The backend is not quoted, because it may contain a password.
fn no_browser(tool: &str, error: &UnknownBrowser) -> ToolSetError {
    unknown(tool, "…", &error.to_string())
}

/// The error quotes neither the command line nor the environment.
fn mysql_address(backend: &str) -> Result<String, ToolSetError> {
    MySqlSettings::address_of(backend).map_err(|why| unusable("sql=mysql", why))
}

#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn shown(hash: ContentHash) -> String {
    format!("#{}", hash.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backends() {
        let parse = |tool, backend| Named::parse(tool, backend).ok();
        assert_eq!(parse("rank", "bm25"), Some(Named::Bm25));
        assert_eq!(parse("rank", "dpr:reader"), Some(Named::Dpr(PathBuf::from("reader"))));
        let named = Named::CrossEncoder(PathBuf::from("a:b"));
        assert_eq!(parse("rank", "cross-encoder:a:b"), Some(named));
        assert_eq!(parse("wiki", "live"), Some(Named::Live));
        assert_eq!(
            Named::parse_planned("wiki", "live#http://127.0.0.1:80").ok(),
            Some(Named::Live),
            "the environment sets the address, not the run"
        );
        assert_eq!(parse("wiki", "corpus:a#b"), Some(Named::Corpus(PathBuf::from("a#b"))));
        assert_eq!(
            Named::parse_planned("wiki", "corpus:a#b#0123").ok(),
            Some(Named::Corpus(PathBuf::from("a#b")))
        );
        for (tool, backend) in [
            ("wiki", "bm25"),
            ("rank", "corpus:a"),
            ("maths", "bm25"),
            ("sql", "native"),
            ("sql", "recorded:a"),
        ] {
            assert_eq!(parse(tool, backend), None, "{tool}={backend}");
        }
    }

    #[test]
    fn every_tool_lists_backends_that_it_has() {
        for tool in TOOLS {
            let plain = backends(tool).iter().filter(|backend| !backend.contains('<'));
            assert!(plain.clone().count() > 0, "{tool}");
            for backend in plain.filter(|backend| **backend != "mysql") {
                assert!(Named::parse(tool, backend).is_ok(), "{tool}={backend}");
            }
            let error = Named::parse(tool, "none").unwrap_err().to_string();
            assert!(error.contains(backends(tool)[0]), "{error}");
        }
        assert!(backends("none").is_empty());
    }

    #[test]
    fn a_file_is_known_by_its_content_and_one_made_of_items_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages.jsonl");
        let identity = |content: &str| {
            std::fs::write(&path, content).unwrap();
            identify("wiki", &format!("corpus:{}", path.display())).unwrap()
        };
        let plain = identity("{\"title\": \"A\", \"text\": \"b\"}\n");
        let other = identity("{\"title\": \"A\", \"text\": \"c\"}\n");
        let items = identity("\n{\"qid\": \"1\", \"title\": \"A\", \"text\": \"b\"}\n");
        assert_ne!(plain, other);
        assert!(items.is_made_of_items() && !plain.is_made_of_items());
        assert_eq!(without_hash(&items.backend), format!("corpus:{}", path.display()));
    }
}
