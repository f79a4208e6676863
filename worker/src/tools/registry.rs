//! Tools by backend, built once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lumos_tasks::{Configuration, ToolBackend};
use thiserror::Error;

use super::set::ToolSet;
use super::{DprRanker, NativeMaths, RecordedTools, Tools, Wolfram, WolframSettings};
use crate::model::{hash_file, hash_folder};

/// Why a tool's backend could not be set up.
#[derive(Debug, Error)]
pub enum ToolSetError {
    /// The tool has no such backend.
    #[error(
        "{tool}={backend}: {why}; known are maths=native, maths=wolfram, rank=dpr:<folder>, and for each of maths, wiki and \
         rank <tool>=recorded:<cases file>"
    )]
    Unknown {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What is wrong with it.
        why: String,
    },
    /// Its file cannot be read.
    #[error("{tool}={backend}: {source}")]
    Unreadable {
        /// The tool.
        tool: String,
        /// The backend asked for.
        backend: String,
        /// What the system said.
        source: std::io::Error,
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
}

/// The tools there are, sorted. What models answer ([`Role::Qa`](lumos_tasks::Role)) is none of them.
pub const TOOLS: [&str; 3] = ["maths", "rank", "wiki"];

/// The tools of a worker.
#[derive(Default)]
pub struct ToolSets {
    /// By tool and backend.
    built: Mutex<HashMap<(String, String), Arc<dyn Tools>>>,
}

impl ToolSets {
    /// The identity of a backend: with a version or a hash, so that other answers are another configuration.
    ///
    /// # Errors
    /// If the tool has no such backend or its file cannot be read.
    pub fn identify(&self, tool: &str, backend: &str) -> Result<ToolBackend, ToolSetError> {
        let unknown = |why: &str| ToolSetError::Unknown {
            tool: tool.to_owned(),
            backend: backend.to_owned(),
            why: why.to_owned(),
        };
        if !TOOLS.contains(&tool) {
            return Err(unknown("there is no such tool"));
        }
        let (backend, version) = match backend.split_once(':') {
            None if tool == "maths" && backend == "native" => (backend.to_owned(), NativeMaths::VERSION),
            None if tool == "maths" && backend == "wolfram" => (backend.to_owned(), 0),
            Some(("dpr", folder)) if tool == "rank" => {
                let hash = hash_folder(folder.as_ref()).map_err(|source| ToolSetError::Unreadable {
                    tool: tool.to_owned(),
                    backend: backend.to_owned(),
                    source,
                })?;
                (format!("dpr:{folder}#{}", hash.short()), DprRanker::VERSION)
            }
            Some(("recorded", file)) => {
                let hash = hash_file(file.as_ref()).map_err(|source| ToolSetError::Unreadable {
                    tool: tool.to_owned(),
                    backend: backend.to_owned(),
                    source,
                })?;
                (format!("recorded:{file}#{}", hash.short()), 0)
            }
            _ => return Err(unknown("there is no such backend")),
        };
        Ok(ToolBackend { tool: tool.to_owned(), backend, version })
    }

    /// Whether a backend that a run was planned with is here and would answer the same. Reads files, so it blocks.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn verify(&self, planned: &ToolBackend) -> Result<(), String> {
        let ToolBackend { tool, backend, version } = planned;
        let here = match backend.rsplit_once('#') {
            // The hash stands behind the path.
            Some((file, _)) => self.identify(tool, file),
            None => self.identify(tool, backend),
        };
        let here = here.map_err(|error| format!("tool {tool}={backend} is not here: {error}"))?;
        if here.version != *version || here.backend != *backend {
            return Err(format!(
                "tool {tool}={backend} version {version} on this host is not what the run was planned with: \
                 here it is {} version {}",
                here.backend, here.version
            ));
        }
        if backend == "wolfram" {
            WolframSettings::from_environment()
                .map_err(|error| format!("tool {tool}={backend} cannot be asked from this host: {error}"))?;
        }
        Ok(())
    }

    /// The tools of a configuration.
    ///
    /// # Errors
    /// If a backend cannot be set up.
    pub fn of(&self, configuration: &Configuration) -> Result<Arc<dyn Tools>, ToolSetError> {
        let mut set = ToolSet::default();
        let native = ToolBackend { tool: "maths".to_owned(), backend: "native".to_owned(), version: 0 };
        let mathematics = configuration.tools.iter().all(|tool| tool.tool != "maths").then_some(&native);
        for ToolBackend { tool, backend, .. } in configuration.tools.iter().chain(mathematics) {
            set.set(tool, self.backend(tool, backend)?);
        }
        Ok(Arc::new(set))
    }

    /// A tool's backend, built once.
    fn backend(&self, tool: &str, backend: &str) -> Result<Arc<dyn Tools>, ToolSetError> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tool.to_owned(), backend.to_owned());
        if let Some(tools) = built.get(&key) {
            return Ok(Arc::clone(tools));
        }
        let tools = build(tool, backend)?;
        built.insert(key, Arc::clone(&tools));
        Ok(tools)
    }
}

/// Builds one backend of the mathematics tool: `native`, `wolfram`, `recorded:<cases file>`.
///
/// # Errors
/// If there is no such backend or it cannot be set up.
pub fn maths_backend(backend: &str) -> Result<Arc<dyn Tools>, ToolSetError> {
    build("maths", backend)
}

/// Builds one backend of the ranking tool: `dpr:<folder>`, or the folder alone.
///
/// # Errors
/// As [`maths_backend`].
pub fn rank_backend(backend: &str) -> Result<Arc<dyn Tools>, ToolSetError> {
    if std::path::Path::new(backend).is_dir() {
        return build("rank", &format!("dpr:{backend}"));
    }
    build("rank", backend)
}

fn build(tool: &str, backend: &str) -> Result<Arc<dyn Tools>, ToolSetError> {
    Ok(match (tool, backend.split_once(':')) {
        ("maths", None) if backend == "native" => Arc::new(NativeMaths),
        ("maths", None) if backend == "wolfram" => {
            let settings = WolframSettings::from_environment().map_err(ToolSetError::Wolfram)?;
            Arc::new(Wolfram::new(settings).map_err(ToolSetError::Wolfram)?)
        }
        ("rank", Some(("dpr", folder))) => {
            let path = folder.rsplit_once('#').map_or(folder, |(path, _)| path);
            let ranker = DprRanker::open(path.as_ref()).map_err(|source| ToolSetError::Model {
                tool: tool.to_owned(),
                backend: backend.to_owned(),
                source: Box::new(source),
            })?;
            Arc::new(ranker)
        }
        (_, Some(("recorded", file))) if TOOLS.contains(&tool) => {
            let path = file.rsplit_once('#').map_or(file, |(path, _)| path);
            let tools = RecordedTools::read(&PathBuf::from(path)).map_err(|source| {
                ToolSetError::Unreadable { tool: tool.to_owned(), backend: backend.to_owned(), source }
            })?;
            Arc::new(tools)
        }
        _ => {
            return Err(ToolSetError::Unknown {
                tool: tool.to_owned(),
                backend: backend.to_owned(),
                why: "there is no such backend".to_owned(),
            });
        }
    })
}
