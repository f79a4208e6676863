//! How backends are named: on the command line, and in a run's configurations with what their answers depend on.

use std::io;
use std::path::{Path, PathBuf};

use lumos_tasks::{ContentHash, ToolBackend};
use thiserror::Error;
use url::Url;

use super::bm25::Bm25Ranking;
use super::corpus::Corpus;
use super::cross_encoder::CrossEncoderRanker;
use super::dpr::DprRanker;
use super::live::{LiveWiki, WikiSettings};
use super::maths::NativeMaths;
use crate::access::{AccessPolicy, AccessRefusal};
use crate::browser::{BrowserName, UnknownBrowser};
use crate::model::{hash_file, hash_folder};
use crate::sessions::catalogue::{SHOP_VERSION, ShopFiles};
use crate::sessions::sql::{self, MySqlSettings};
use crate::sessions::{BrowserPages, WebPages};

/// The tools there are, sorted. What models answer ([`Role::Qa`](lumos_tasks::Role)) is none of them.
pub const TOOLS: [&str; 6] = ["maths", "rank", "shop", "sql", "web", "wiki"];

/// The backends of a tool, as they are named behind `--tool <tool>=`. Empty if the tool does not exist.
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
    /// The tool has no such backend.
    #[error("{tool}={backend}: {why}; expected one of {}", backends(tool).join(", "))]
    Unknown {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What is wrong with it.
        why: String,
    },
    /// The tool does not exist.
    #[error("unknown tool `{tool}`: expected one of {}", TOOLS.join(", "))]
    NoTool {
        /// The tool.
        tool: String,
    },
    /// The operator of this worker does not allow it.
    #[error("{tool}={backend}: {refusal}")]
    NotAllowed {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What is not allowed.
        refusal: AccessRefusal,
    },
    /// Its file cannot be read.
    #[error("{tool}={backend}: {source}")]
    Unreadable {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its model cannot be opened.
    #[error("{tool}={backend}: {source}")]
    Model {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What is wrong with it.
        source: Box<lumos_engine::LoadError>,
    },
    /// The WolframAlpha backend has no app id or a bad address.
    #[error("maths=wolfram: {0}")]
    Wolfram(String),
    /// The encyclopaedia cannot be asked as the environment says.
    #[error("wiki=live: {0}")]
    Live(String),
    /// The server of databases cannot be asked as the command line and the environment say. Quotes neither.
    #[error("sql=mysql: {0}")]
    MySql(String),
    /// Its browser cannot be used on this host.
    #[error("{tool}={backend}: {why}")]
    Browser {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What is missing.
        why: String,
    },
    /// Setting it up was broken off.
    #[error("failed to set up {tool}={backend}: {message}")]
    Broken {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What happened.
        message: String,
    },
}

/// What stands behind a backend's name.
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
    /// Episodes' databases, from a folder of files or from the shipped samples.
    Sqlite(Option<PathBuf>),
    /// Episodes' databases on a server.
    MySql,
    Shop(ShopFiles),
    /// The shop as web pages that episodes visit in a browser.
    BrowserShop(BrowserName, ShopFiles),
    /// Pages of tasks on the web in a browser.
    BrowserWeb(BrowserName),
}

impl Named {
    /// Reads a name as it is given on the command line.
    pub(super) fn parse(tool: &str, backend: &str) -> Result<Self, ToolSetError> {
        let unknown = |why: &str| ToolSetError::Unknown {
            tool: tool.to_owned(),
            backend: backend.to_owned(),
            why: why.to_owned(),
        };
        if !TOOLS.contains(&tool) {
            return Err(ToolSetError::NoTool { tool: tool.to_owned() });
        }
        match (tool, backend.split_once(':')) {
            ("sql", None) if backend == "sqlite" => Ok(Self::Sqlite(None)),
            ("sql", Some(("sqlite", folder))) => Ok(Self::Sqlite(Some(PathBuf::from(folder)))),
            ("sql", None) if backend == "mysql" => Ok(Self::MySql),
            ("sql", Some(("mysql", _))) => {
                MySqlSettings::address_of(backend).map_err(ToolSetError::MySql)?;
                Ok(Self::MySql)
            }
            // Nothing of what was given is quoted: it may hold a password. Recorded results know no episodes.
            ("sql", _) => Err(ToolSetError::Unknown {
                tool: "sql".to_owned(),
                backend: "…".to_owned(),
                why: "unknown backend".to_owned(),
            }),
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
                files.map(Self::Shop).ok_or_else(|| unknown("unknown backend"))
            }
            (_, Some(("recorded", file))) => Ok(Self::Recorded(PathBuf::from(file))),
            _ => Err(unknown("unknown backend")),
        }
    }

    /// Reads a name as it stands in a configuration.
    pub(super) fn parse_planned(tool: &str, backend: &str) -> Result<Self, ToolSetError> {
        Self::parse(tool, without_hash(backend))
    }

    /// The browser that it needs.
    pub(super) fn browser(&self) -> Option<&BrowserName> {
        match self {
            Self::BrowserShop(browser, _) | Self::BrowserWeb(browser) => Some(browser),
            _ => None,
        }
    }

    /// Whether a run may use it here: the files that it reads, and the server that its name holds.
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
        // `mysql` alone is the server of the environment.
        let server = MySqlSettings::of_url(backend).filter(|_| *self == Self::MySql);
        match server.and_then(|server| Url::parse(&server.address()).ok()) {
            Some(url) => access.check_url(&url),
            None => Ok(()),
        }
    }

    /// The version of its answers.
    fn version(&self) -> u32 {
        match self {
            Self::Native => NativeMaths::VERSION,
            Self::Bm25 => Bm25Ranking::VERSION,
            Self::Dpr(_) => DprRanker::VERSION,
            Self::CrossEncoder(_) => CrossEncoderRanker::VERSION,
            Self::Live => LiveWiki::VERSION,
            Self::Corpus(_) | Self::Samples => Corpus::VERSION,
            Self::Web => WebPages::VERSION,
            Self::BrowserWeb(_) => BrowserPages::VERSION,
            Self::Wolfram | Self::Recorded(_) => 0,
            Self::Sqlite(_) | Self::MySql => sql::VERSION,
            Self::Shop(_) | Self::BrowserShop(..) => SHOP_VERSION,
        }
    }

    /// What stands behind its name in a configuration. Blocks.
    fn content(&self, tool: &str, backend: &str) -> Result<String, ToolSetError> {
        let unreadable =
            |source| ToolSetError::Unreadable { tool: tool.to_owned(), backend: backend.to_owned(), source };
        match self {
            Self::Native
            | Self::Wolfram
            | Self::Bm25
            | Self::Web
            | Self::BrowserWeb(_)
            | Self::Sqlite(None) => Ok(String::new()),
            Self::MySql => {
                let address = MySqlSettings::address_of(backend).map_err(ToolSetError::MySql)?;
                Ok(if backend == "mysql" { format!("#{address}") } else { String::new() })
            }
            Self::Sqlite(Some(folder)) => {
                let hash = sql::SqliteFolder::content(folder).map_err(unreadable)?;
                Ok(format!("#{}", hash.short()))
            }
            Self::Live => {
                let settings = WikiSettings::from_environment().map_err(ToolSetError::Live)?;
                Ok(settings.other_site().map(|site| format!("#{site}")).unwrap_or_default())
            }
            Self::Dpr(folder) | Self::CrossEncoder(folder) => {
                let hash = hash_folder(folder).map_err(unreadable)?;
                Ok(format!("#{}", hash.short()))
            }
            Self::Samples => Ok(format!("#{}", Corpus::samples_hash().short())),
            Self::Recorded(file) => hashed(file).map_err(unreadable),
            Self::Shop(files) => files.content().map_err(unreadable),
            Self::BrowserShop(browser, files) => {
                let content = files.content().map_err(unreadable)?;
                Ok(match browser {
                    // Of a name with a hash nothing but that goes into identities.
                    BrowserName::Remote(_) if !content.is_empty() => {
                        format!("#{}", ContentHash::of_json(&(browser.to_string(), content)).short())
                    }
                    _ => content,
                })
            }
            Self::Corpus(file) => {
                let hash = hashed(file).map_err(unreadable)?;
                let is_made_of_items = Corpus::is_made_of_items(file).map_err(unreadable)?;
                Ok(if is_made_of_items { hash + ToolBackend::MADE_OF_ITEMS } else { hash })
            }
        }
    }
}

/// The identity of a backend: with a version or a hash, so that other answers are another configuration. Blocks.
pub(super) fn identify(tool: &str, backend: &str) -> Result<ToolBackend, ToolSetError> {
    let named = Named::parse(tool, backend)?;
    let content = named.content(tool, backend)?;
    Ok(ToolBackend {
        tool: tool.to_owned(),
        backend: format!("{backend}{content}"),
        version: named.version(),
    })
}

/// A name without what stands behind it in a configuration: the hash of its file, or another site.
pub(super) fn without_hash(backend: &str) -> &str {
    backend.rsplit_once('#').map_or(backend, |(name, _)| name)
}

/// Whether a backend of the shop or the web is meant as a browser.
fn is_browser(backend: &str) -> bool {
    ["chromedriver", "http:", "https:"].iter().any(|beginning| backend.starts_with(beginning))
}

/// The backend is not quoted: it may hold a password.
fn no_browser(tool: &str, error: &UnknownBrowser) -> ToolSetError {
    ToolSetError::Unknown { tool: tool.to_owned(), backend: "…".to_owned(), why: error.to_string() }
}

fn hashed(file: &Path) -> io::Result<String> {
    Ok(format!("#{}", hash_file(file)?.short()))
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
            "the environment says where, never the run"
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
