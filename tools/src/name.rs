//! The table of all backends, and their names: on the command line and, with a version or a hash, in the
//! configurations of a run.

use std::io;
use std::sync::{Mutex, PoisonError};

use lumos_http::AccessRefusal;
use lumos_tasks::{ContentHash, ToolBackend};
use thiserror::Error;

use super::backend::{BackendDescription, BackendError, NamedBackend, hash_suffix};
use super::external::{exec, mcp, service};
use super::replies::recorded;
use super::{corpus, live, maths, ranking, session_backends, wolfram};

/// The names of the built-in tools, sorted. Questions to models ([`Role::Qa`](lumos_tasks::Role)) are not a tool.
pub const TOOLS: [&str; 6] = ToolBackend::BUILT_IN;

/// The backends of this crate. Those of a tool are listed in this order.
static TABLE: [BackendDescription; 23] = [
    maths::BACKEND,
    wolfram::BACKEND,
    recorded(Some("maths")),
    ranking::BM25,
    ranking::DPR,
    ranking::CROSS_ENCODER,
    recorded(Some("rank")),
    session_backends::SHOP,
    session_backends::BROWSER_SHOP,
    recorded(Some("shop")),
    session_backends::SQLITE,
    session_backends::MYSQL,
    session_backends::WEB,
    session_backends::BROWSER_WEB,
    // Not listed: recorded pages are cases of a benchmark.
    BackendDescription { forms: &[], ..recorded(Some("web")) },
    live::BACKEND,
    corpus::BACKEND,
    corpus::SHIPPED,
    recorded(Some("wiki")),
    exec::BACKEND,
    service::BACKEND,
    mcp::BACKEND,
    recorded(None),
];

/// Backends of programs that are built on this library.
static REGISTERED: Mutex<Vec<&'static BackendDescription>> = Mutex::new(Vec::new());

/// Adds a backend to the table of this process. Call it before backends are named, such as at the start of `main`.
///
/// Names of backends of this crate keep their meaning: they are tried first.
///
/// # Errors
/// If the tool's name is invalid, or another backend with one of the same forms is registered for the tool.
pub fn register_backend(backend: &'static BackendDescription) -> Result<(), ToolSetError> {
    if let Some(tool) = backend.tool.filter(|tool| !TOOLS.contains(tool)) {
        check_tool_name(tool)?;
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let of_tool = TABLE.iter().chain(registered.iter().copied()).filter(|other| other.tool == backend.tool);
    let known: Vec<_> = of_tool.flat_map(|other| other.forms).collect();
    if let Some(form) = backend.forms.iter().find(|form| known.contains(form)) {
        let tool = backend.tool.unwrap_or("<tool>");
        return Err(unusable(&format!("{tool}={form}"), "a backend with this name is registered already"));
    }
    registered.push(backend);
    Ok(())
}

/// Returns the descriptions of a tool's backends.
fn of_tool(tool: &str) -> Vec<&'static BackendDescription> {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    TABLE.iter().chain(registered.iter().copied()).filter(|backend| serves(backend, tool)).collect()
}

/// Whether a backend answers calls of a tool.
fn serves(backend: &BackendDescription, tool: &str) -> bool {
    match backend.tool {
        Some(name) => name == tool,
        None => !TOOLS.contains(&tool),
    }
}

/// Whether a name is that of a backend of this crate.
fn is_built_in(tool: &str, backend: &str) -> bool {
    TABLE.iter().any(|one| serves(one, tool) && matches!((one.parse)(tool, backend), Ok(Some(_))))
}

/// Returns the backends of a tool, as given after `--tool <tool>=`. For a name that is not a built-in tool, returns
/// those that serve every name.
pub fn backends(tool: &str) -> Vec<&'static str> {
    of_tool(tool).into_iter().flat_map(|backend| backend.forms).copied().collect()
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
fn unusable(backend: &str, why: impl std::fmt::Display) -> ToolSetError {
    ToolSetError::Unusable(format!("{backend}: {why}"))
}

/// Creates the error of an unknown backend.
fn unknown(tool: &str, backend: &str, why: &str) -> ToolSetError {
    unusable(&format!("{tool}={backend}"), format!("{why}; expected one of {}", backends(tool).join(", ")))
}

/// Adds the names of the tool and the backend to an error.
pub(super) fn named(error: BackendError, tool: &str, backend: &str) -> ToolSetError {
    let (of_tool, of_backend) = (tool.to_owned(), backend.to_owned());
    match error {
        BackendError::Unreadable(source) => {
            ToolSetError::Unreadable { tool: of_tool, backend: of_backend, source }
        }
        BackendError::Model(source) => ToolSetError::Model { tool: of_tool, backend: of_backend, source },
        BackendError::Invalid(why) => unknown(tool, "…", &why),
        BackendError::Unusable(why) => unusable(&format!("{tool}={backend}"), why),
        BackendError::Named(message) => ToolSetError::Unusable(message),
    }
}

/// Parses a name as given on the command line.
pub(super) fn parse(tool: &str, backend: &str) -> Result<Box<dyn NamedBackend>, ToolSetError> {
    let descriptions = of_tool(tool);
    let is_own = !TOOLS.contains(&tool);
    if is_own {
        check_tool_name(tool)?;
    }
    for description in &descriptions {
        if let Some(found) =
            (description.parse)(tool, backend).map_err(|error| named(error, tool, backend))?
        {
            return Ok(found);
        }
    }
    if is_own && descriptions.iter().all(|description| description.tool.is_none()) {
        return Err(ToolSetError::Unusable(format!(
            "unknown tool `{tool}`: expected one of {}; a tool of another name needs one of the backends {}",
            TOOLS.join(", "),
            backends(tool).join(", ")
        )));
    }
    // Names of databases are not quoted, because they may contain a password.
    Err(unknown(tool, if tool == "sql" { "…" } else { backend }, "unknown backend"))
}

/// Parses a name as recorded in a configuration.
pub(super) fn parse_planned(tool: &str, backend: &str) -> Result<Box<dyn NamedBackend>, ToolSetError> {
    parse(tool, without_hash(backend))
}

/// Whether whoever starts a run must have named a backend: it starts a program or sends calls to a server. Such a backend
/// is not used only because a task file names it.
pub fn needs_permission(tool: &str, backend: &str) -> bool {
    parse(tool, backend).is_ok_and(|named| named.needs_permission())
}

fn check_tool_name(tool: &str) -> Result<(), ToolSetError> {
    if ToolBackend::is_tool_name(tool) {
        return Ok(());
    }
    Err(ToolSetError::Unusable(format!(
        "invalid tool name `{tool}`: use at most {} lower-case letters, digits, `-` and `_`, starting with a letter; \
         names of roles of models are reserved",
        ToolBackend::LONGEST_TOOL_NAME
    )))
}

/// Returns the identity of a backend. It contains a version or a hash, so that different replies are
/// different configurations. Blocks.
pub(super) fn identify(tool: &str, backend: &str) -> Result<ToolBackend, ToolSetError> {
    let parsed = parse(tool, backend)?;
    let planned =
        planned_name(tool, backend, parsed.as_ref()).map_err(|error| named(error, tool, backend))?;
    Ok(ToolBackend { tool: tool.to_owned(), backend: planned, version: parsed.version() })
}

/// Returns the name of a backend in a configuration: with the suffix of its content. Blocks.
///
/// The identity of a configuration does not contain what is between the first `:` and the last `#`, and the name is parsed
/// without the last `#` and what follows. If that would drop anything but a path and the content, the suffix is a hash of the
/// name and the content. Suffixes of backends of this crate cover their names already.
pub(super) fn planned_name(
    tool: &str,
    backend: &str,
    parsed: &dyn NamedBackend,
) -> Result<String, BackendError> {
    let content = parsed.content()?;
    let planned = format!("{backend}{content}");
    let is_identified = content.is_empty() || !backend.contains(':') || parsed.path().is_some();
    if (is_identified && without_hash(&planned) == backend) || is_built_in(tool, backend) {
        return Ok(planned);
    }
    let items = if content.ends_with(ToolBackend::MADE_OF_ITEMS) { ToolBackend::MADE_OF_ITEMS } else { "" };
    Ok(format!("{backend}{}{items}", hash_suffix(ContentHash::of_json(&(backend, content)))))
}

/// Removes the suffix of a name in a configuration: the hash of its files or the address of its server.
pub(super) fn without_hash(backend: &str) -> &str {
    backend.rsplit_once('#').map_or(backend, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use async_trait::async_trait;
    use lumos_http::AccessPolicy;
    use lumos_tasks::{ExternalReply, ToolCall, ToolReply};

    use super::*;
    use crate::backend::BackendResources;
    use crate::{ToolFault, ToolSets, Tools};

    /// Backends of a program that is built on this library. They answer every call with their name.
    static ADDED: BackendDescription = BackendDescription {
        tool: Some("glossary"),
        forms: &["always:<text>", "file:<path>", "items:<settings>", "search:<settings>"],
        parse: |_, backend| {
            let path = backend.strip_prefix("file:").map(PathBuf::from);
            Ok(Some(Box::new(Added { name: backend.to_owned(), path })))
        },
    };

    #[derive(Clone)]
    struct Added {
        name: String,
        path: Option<PathBuf>,
    }

    impl NamedBackend for Added {
        fn version(&self) -> u32 {
            1
        }

        fn path(&self) -> Option<&Path> {
            self.path.as_deref()
        }

        fn needs_permission(&self) -> bool {
            true
        }

        fn content(&self) -> Result<String, BackendError> {
            let index = hash_suffix(ContentHash::of_bytes(b"index"));
            Ok(match self.name.split(':').next() {
                Some("always") => String::new(),
                Some("items") => index + ToolBackend::MADE_OF_ITEMS,
                _ => index,
            })
        }

        fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
            Ok(Arc::new(self.clone()))
        }
    }

    #[async_trait]
    impl Tools for Added {
        async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolFault> {
            Ok(ToolReply::External(ExternalReply::Text(self.name.clone())))
        }
    }

    fn with_added() -> ToolSets {
        // Another test of this process may have registered them.
        let _ = register_backend(&ADDED);
        ToolSets::default()
    }

    #[test]
    fn the_identity_of_an_added_backend_covers_its_name() {
        let tools = with_added();
        let identify = |backend: &str| tools.identify("glossary", backend).unwrap();
        let suffix = |backend: &str| identify(backend).backend.rsplit_once('#').unwrap().1.to_owned();
        assert_ne!(suffix("search:k=5"), suffix("search:k=10"));
        assert_eq!(suffix("file:a"), suffix("file:b"));
        assert!(identify("items:k=5").is_made_of_items() && !identify("search:k=5").is_made_of_items());
        let index = hash_suffix(ContentHash::of_bytes(b"index"));
        let command = hash_suffix(ContentHash::of_json(&[(false, "one")]));
        for (backend, content) in [
            ("always:sunny", ""),
            ("file:a", index.as_str()),
            // Identities contain the whole name.
            ("search", index.as_str()),
            // A backend of this crate.
            ("exec:one", command.as_str()),
        ] {
            assert_eq!(identify(backend).backend, format!("{backend}{content}"));
        }
    }

    #[tokio::test]
    async fn the_name_of_an_added_backend_may_contain_a_number_sign() {
        let tools = with_added();
        let call = ToolCall::External {
            name: "glossary".to_owned(),
            operation: "find".to_owned(),
            arguments: serde_json::json!({}),
        };
        for backend in ["always:C#sharp", "always:#", "file:C#.jsonl", "search:C#,k=5"] {
            let planned = tools.identify("glossary", backend).unwrap();
            assert_eq!(tools.verify(&planned), Ok(()));
            let opened = tools.backend(&planned).await.unwrap();
            let reply = ToolReply::External(ExternalReply::Text(backend.to_owned()));
            assert_eq!(opened.call(&call).await, Ok(reply));
        }
    }

    /// Returns the path that a backend reads, in its name.
    fn path_of(tool: &str, backend: &str) -> String {
        let access = AccessPolicy::only(&[], &[]).unwrap();
        match parse_planned(tool, backend).unwrap().check(&access) {
            Err(AccessRefusal::Path(path)) => path,
            other => panic!("{tool}={backend}: {other:?}"),
        }
    }

    #[test]
    fn names_of_backends() {
        assert_eq!(path_of("rank", "dpr:reader"), "reader");
        assert_eq!(path_of("rank", "cross-encoder:a:b"), "a:b");
        assert_eq!(path_of("wiki", "corpus:a#b#0123"), "a#b");
        assert_eq!(path_of("maths", "recorded:a"), "a");
        let access = AccessPolicy::only(&[], &[]).unwrap();
        // The environment sets the address, not the run.
        for (tool, backend) in [("rank", "bm25"), ("wiki", "live"), ("wiki", "live#http://127.0.0.1:80")] {
            assert_eq!(parse_planned(tool, backend).unwrap().check(&access), Ok(()), "{tool}={backend}");
        }
        for (tool, backend) in [
            ("wiki", "bm25"),
            ("rank", "corpus:a"),
            ("maths", "bm25"),
            ("maths", "native:"),
            ("sql", "native"),
            ("sql", "recorded:a"),
        ] {
            assert!(parse(tool, backend).is_err(), "{tool}={backend}");
        }
    }

    #[test]
    fn every_tool_lists_backends_that_it_has() {
        for tool in TOOLS {
            let listed = backends(tool);
            let plain = listed.iter().filter(|backend| !backend.contains('<'));
            assert!(plain.clone().count() > 0, "{tool}");
            for backend in plain.filter(|backend| **backend != "mysql") {
                assert!(parse(tool, backend).is_ok(), "{tool}={backend}");
            }
            let error = parse(tool, "none").err().unwrap().to_string();
            assert!(error.contains(backends(tool)[0]), "{error}");
        }
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
