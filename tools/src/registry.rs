//! The tools of a worker by backend, each set up once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lumos_http::AccessPolicy;
use lumos_tasks::{Configuration, ToolBackend};
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use super::Tools;
use super::backend::{BackendError, BackendResources, NamedBackend};
use super::browsers::Browsers;
use super::name::{ToolSetError, identify, named, parse_planned, planned_name, without_hash};
use super::tool::ToolSet;

/// Number of backends above which those that are not in use are shut down.
const MOST_BACKENDS: usize = 64;

/// The tool, the name of the backend and, if the name is that of a file or a folder, the canonical path instead of it.
type Key = (String, String, Option<PathBuf>);

/// A backend that is set up by the first caller.
type Built = Arc<OnceCell<Arc<dyn Tools>>>;

/// The tools of a worker.
#[derive(Default)]
pub struct ToolSets {
    /// Backends, least recently requested first.
    built: Mutex<Vec<(Key, Built)>>,
    /// Backends that are being shut down.
    closing: TaskTracker,
    browsers: Arc<Browsers>,
    access: AccessPolicy,
}

impl ToolSets {
    /// Creates tools that store a screenshot of every step in a browser below `folder`, if given.
    pub fn with_screenshots(folder: Option<PathBuf>) -> Self {
        Self { browsers: Arc::new(Browsers::new(folder)), ..Self::default() }
    }

    /// Returns the same tools with an access policy. Backends that it does not allow are rejected.
    #[must_use]
    pub fn restricted_to(self, access: AccessPolicy) -> Self {
        Self { access, ..self }
    }

    /// Releases resources that would outlive the process: sessions of remote WebDriver servers, accounts on
    /// database servers.
    pub async fn close(&self) {
        self.browsers.close().await;
        let built: Vec<Built> = {
            let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
            built.drain(..).map(|(_, tool)| tool).collect()
        };
        shut_down(built).await;
        self.closing.close();
        self.closing.wait().await;
    }

    /// Returns the identity of a backend. It contains a version or a hash, so that different replies are
    /// different configurations. Reads files, so it blocks.
    ///
    /// # Errors
    /// If the tool has no such backend, or a file of the backend cannot be read.
    pub fn identify(&self, tool: &str, backend: &str) -> Result<ToolBackend, ToolSetError> {
        identify(tool, backend)
    }

    /// Checks that a backend that a run was planned with is available here and is identical. Reads files, so
    /// it blocks.
    ///
    /// # Errors
    /// A message that states what is missing or different.
    pub fn verify(&self, planned: &ToolBackend) -> Result<(), String> {
        let ToolBackend { tool, backend, version } = planned;
        let parsed = self.permitted(planned).map_err(|error| error.to_string())?;
        let here = identify(tool, without_hash(backend))
            .map_err(|error| format!("tool {tool}={backend} not available on this host: {error}"))?;
        // The local identity is not reported: it would reveal the content of local files to the planner of a
        // run.
        if here.version != *version || here.backend != *backend {
            let why = match here.version == *version {
                true => "different files or a different server".to_owned(),
                false => format!("this host has version {}", here.version),
            };
            return Err(format!(
                "tool {tool}={backend} version {version} on this host differs from the tool that the run was \
                 planned with: {why}"
            ));
        }
        parsed.check_host().map_err(|why| format!("tool {tool}={backend} {why}"))
    }

    /// Parses a backend's name and checks that it may be used here.
    fn permitted(&self, planned: &ToolBackend) -> Result<Box<dyn NamedBackend>, ToolSetError> {
        let ToolBackend { tool, backend, .. } = planned;
        let parsed = parse_planned(tool, backend)?;
        let backend = without_hash(backend);
        let permission = match parsed.needs_permission() {
            true => self.access.check_tool(&format!("{tool}={backend}")),
            false => Ok(()),
        };
        permission.and_then(|()| parsed.check(&self.access)).map_err(|refusal| ToolSetError::NotAllowed {
            tool: tool.clone(),
            backend: backend.to_owned(),
            refusal,
        })?;
        Ok(parsed)
    }

    /// Returns the tools of a configuration. Sets up those that are not set up yet.
    ///
    /// # Errors
    /// If a backend cannot be set up.
    pub async fn of(&self, configuration: &Configuration) -> Result<Arc<dyn Tools>, ToolSetError> {
        let mut set = ToolSet::default();
        let native = ToolBackend { tool: "maths".to_owned(), backend: "native".to_owned(), version: 0 };
        let mathematics = configuration.tools.iter().all(|tool| tool.tool != "maths").then_some(&native);
        for planned in configuration.tools.iter().chain(mathematics) {
            set.set(&planned.tool, self.backend(planned).await?);
        }
        Ok(Arc::new(set))
    }

    /// Returns a backend. Concurrent callers set it up only once. If there are many, others that are not in use are
    /// shut down.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub async fn backend(&self, planned: &ToolBackend) -> Result<Arc<dyn Tools>, ToolSetError> {
        let parsed = self.permitted(planned)?;
        let key = key(planned, parsed.as_ref());
        let (cell, unused) = {
            let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
            let cell = match built.iter().position(|(known, _)| *known == key) {
                Some(known) => built.remove(known).1,
                None => Built::default(),
            };
            built.push((key, Arc::clone(&cell)));
            (cell, remove_unused(&mut built))
        };
        if !unused.is_empty() {
            // As a task: the caller may be dropped, and does not depend on it.
            self.closing.spawn(shut_down(unused));
        }
        let (tool, backend) = (&planned.tool, &planned.backend);
        let broken = |error: tokio::task::JoinError| {
            ToolSetError::Unusable(format!("failed to set up {tool}={backend}: {error}"))
        };
        let set_up = async || {
            let resources = BackendResources { browsers: Arc::clone(&self.browsers) };
            let planned = planned.clone();
            let opened = tokio::task::spawn_blocking(move || open(parsed.as_ref(), &planned, &resources));
            opened.await.map_err(broken)?.map_err(|error| named(error, tool, backend))
        };
        cell.get_or_try_init(set_up).await.cloned()
    }
}

/// Opens a backend. Returns an error if it is a program and a file of its command has changed since the run was
/// planned. Blocks.
fn open(
    parsed: &dyn NamedBackend,
    planned: &ToolBackend,
    resources: &BackendResources,
) -> Result<Arc<dyn Tools>, BackendError> {
    let ToolBackend { tool, backend, .. } = planned;
    let opened = parsed.open(resources)?;
    // Compared after it was opened: from then on, the tool itself detects changes. The files of a program are hashed once
    // for both.
    if parsed.needs_permission() && planned_name(tool, without_hash(backend), parsed)? != *backend {
        let why = "the program's files differ from those that the run was planned with";
        return Err(BackendError::Unusable(why.to_owned()));
    }
    Ok(opened)
}

/// Returns the key of a backend. A file or a folder has one key, however its path is written.
fn key(planned: &ToolBackend, parsed: &dyn NamedBackend) -> Key {
    let ToolBackend { tool, backend, .. } = planned;
    let path = parsed.path().and_then(|path| path.canonicalize().ok());
    let name = match (&path, backend.split_once(':')) {
        (Some(_), Some((prefix, _))) => format!("{prefix}:{}", &backend[without_hash(backend).len()..]),
        _ => backend.clone(),
    };
    (tool.clone(), name, path)
}

/// Removes backends that are not in use, the least recently requested first, while there are more than [`MOST_BACKENDS`].
fn remove_unused(built: &mut Vec<(Key, Built)>) -> Vec<Built> {
    let mut excess = built.len().saturating_sub(MOST_BACKENDS);
    let unused = built.extract_if(.., |(_, cell)| {
        let is_removed = excess > 0 && is_unused(cell);
        excess -= usize::from(is_removed);
        is_removed
    });
    unused.map(|(_, cell)| cell).collect()
}

/// Whether a backend is neither in use nor being set up.
fn is_unused(cell: &mut Built) -> bool {
    let cell = Arc::get_mut(cell);
    cell.is_some_and(|cell| cell.get_mut().is_none_or(|tool| Arc::get_mut(tool).is_some()))
}

/// Shuts backends down, if they were set up.
async fn shut_down(backends: Vec<Built>) {
    for backend in backends {
        if let Some(tool) = backend.get() {
            tool.shut_down().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_loaded_once_and_backends_that_are_not_in_use_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        for number in 0..=MOST_BACKENDS {
            let line = "{\"title\": \"A\", \"text\": \"b\"}\n";
            std::fs::write(folder.path().join(format!("{number}.jsonl")), line).unwrap();
        }
        let tools = ToolSets::default();
        let planned = |name: &str| ToolBackend {
            tool: "wiki".to_owned(),
            backend: format!("corpus:{}/{name}#0123456789ab", folder.path().display()),
            version: 0,
        };
        let held = tools.backend(&planned("0.jsonl")).await.unwrap();
        for same in ["./0.jsonl", "/0.jsonl", "data/../0.jsonl"] {
            assert!(Arc::ptr_eq(&held, &tools.backend(&planned(same)).await.unwrap()), "{same}");
        }
        assert_eq!(tools.built.lock().unwrap().len(), 1);
        for number in 1..=MOST_BACKENDS {
            tools.backend(&planned(&format!("{number}.jsonl"))).await.unwrap();
        }
        let is_kept = |name: &str| {
            let built = tools.built.lock().unwrap();
            built.iter().any(|((.., path), _)| path.as_ref().is_some_and(|path| path.ends_with(name)))
        };
        assert_eq!(tools.built.lock().unwrap().len(), MOST_BACKENDS);
        assert!(is_kept("0.jsonl") && !is_kept("1.jsonl") && is_kept("2.jsonl"));
        assert!(Arc::ptr_eq(&held, &tools.backend(&planned("0.jsonl")).await.unwrap()));
    }

    #[tokio::test]
    async fn a_program_that_was_replaced_after_planning_is_not_set_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather.sh");
        std::fs::write(&path, "one").unwrap();
        let tools = ToolSets::default();
        let planned = tools.identify("weather", &format!("exec:sh '{}'", path.display())).unwrap();
        tools.verify(&planned).unwrap();
        std::fs::write(&path, "two").unwrap();
        let error = tools.backend(&planned).await.err().unwrap().to_string();
        assert!(error.ends_with("files differ from those that the run was planned with"), "{error}");
        std::fs::write(&path, "one").unwrap();
        assert!(tools.backend(&planned).await.is_ok());
        // The name of a server has no hash.
        let server = tools.identify("weather", "http://127.0.0.1:9/").unwrap();
        assert!(tools.backend(&server).await.is_ok());
    }

    #[tokio::test]
    async fn a_run_uses_only_the_files_and_hosts_that_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        for path in [data.join("pages.jsonl"), folder.path().join("secret.jsonl")] {
            std::fs::write(path, "{\"title\": \"A\", \"text\": \"b\"}\n").unwrap();
        }
        let access = AccessPolicy::only(&["grid.example:4444".to_owned()], &[data]).unwrap();
        let tools = ToolSets::default().restricted_to(access);
        let planned = |tool: &str, backend: &str| ToolBackend {
            tool: tool.to_owned(),
            backend: backend.to_owned(),
            version: 0,
        };
        let root = folder.path().display();
        for (tool, backend) in [
            ("wiki", format!("corpus:{root}/secret.jsonl")),
            ("wiki", format!("corpus:{root}/absent.jsonl")),
            ("wiki", format!("corpus:{root}/data/../secret.jsonl")),
            ("wiki", format!("recorded:{root}/secret.jsonl")),
            ("rank", format!("dpr:{root}/secret")),
            ("rank", format!("cross-encoder:{root}/secret")),
            ("sql", format!("sqlite:{root}")),
            ("shop", format!("memory:{root}/secret")),
            ("shop", format!("memory,nouns={root}/secret.jsonl")),
            ("shop", format!("chromedriver:{root}/secret")),
            ("sql", "mysql://attacker.example:3306".to_owned()),
            ("web", "http://attacker.example:4444".to_owned()),
            ("web", "http://grid.example:4445".to_owned()),
            ("shop", "http://169.254.169.254/latest".to_owned()),
        ] {
            let planned = planned(tool, &format!("{backend}#0123456789ab"));
            let refused = tools.verify(&planned).unwrap_err();
            let is_path = backend.contains(&*folder.path().to_string_lossy());
            let flag = if is_path { "--allow-path <PATH>" } else { "--allow-host <HOST[:PORT]>" };
            assert!(refused.contains("does not allow") && refused.contains(flag), "{refused}");
            assert!(!refused.contains('#'), "no hash: {refused}");
            // A caller that does not verify it first cannot set it up either.
            let error = tools.backend(&planned).await.err().unwrap();
            assert!(matches!(error, ToolSetError::NotAllowed { .. }), "{error}");
        }
        let allowed = tools.identify("wiki", &format!("corpus:{root}/data/pages.jsonl")).unwrap();
        tools.verify(&allowed).unwrap();
        tools.backend(&allowed).await.unwrap();
        // If a backend is allowed but differs, the error does not describe the difference.
        let hash = allowed.backend.split('#').nth(1).unwrap().to_owned();
        let other = planned("wiki", &format!("corpus:{root}/data/pages.jsonl#0123456789ab"));
        let refused = tools.verify(&ToolBackend { version: allowed.version, ..other }).unwrap_err();
        assert!(refused.contains("differs from the tool that the run was planned with"), "{refused}");
        assert!(!refused.contains(&hash), "{refused}");
    }
}
