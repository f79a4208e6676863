//! The tools of a worker by backend, each set up once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lumos_engine::{CrossEncoder, DprReader};
use lumos_http::AccessPolicy;
use lumos_tasks::{Configuration, ToolBackend};
use tokio::sync::OnceCell;

use super::browsers::Browsers;
use super::corpus::Corpus;
use super::maths::NativeMaths;
use super::name::{Named, ToolSetError, identify, unusable, without_hash};
use super::ranking::Bm25Ranking;
use super::replies::{RecordedTools, Remembering};
use super::tool::ToolSet;
use super::{LiveWiki, Tools, WikiSettings, Wolfram, WolframSettings};
use crate::sessions::shop::MemoryShop;
use crate::sessions::sql::{MySqlSettings, SqlTool};
use crate::sessions::web::WebPages;

/// A backend that is set up by the first caller.
type Built = Arc<OnceCell<Arc<dyn Tools>>>;

/// The tools of a worker.
#[derive(Default)]
pub struct ToolSets {
    /// Backends by tool and name.
    built: Mutex<HashMap<(String, String), Built>>,
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
            built.drain().map(|(_, tool)| tool).collect()
        };
        for tool in built {
            if let Some(tool) = tool.get() {
                tool.shut_down().await;
            }
        }
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
        let named = self.permitted(planned).map_err(|error| error.to_string())?;
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
        let usable = match &named {
            Named::Wolfram => WolframSettings::from_environment().map(drop).map_err(|why| (why, "from")),
            Named::MySql => MySqlSettings::named(without_hash(backend))
                .and_then(SqlTool::mysql)
                .map(drop)
                .map_err(|why| (why, "from")),
            named => named.browser().map_or(Ok(()), Browsers::check).map_err(|why| (why, "on")),
        };
        usable.map_err(|(why, at)| format!("tool {tool}={backend} cannot be used {at} this host: {why}"))
    }

    /// Parses a backend's name and checks that it may be used here.
    fn permitted(&self, planned: &ToolBackend) -> Result<Named, ToolSetError> {
        let ToolBackend { tool, backend, .. } = planned;
        let named = Named::parse_planned(tool, backend)?;
        let backend = without_hash(backend);
        named.check(backend, &self.access).map_err(|refusal| ToolSetError::NotAllowed {
            tool: tool.clone(),
            backend: backend.to_owned(),
            refusal,
        })?;
        Ok(named)
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

    /// Returns a backend. Concurrent callers set it up only once.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub async fn backend(&self, planned: &ToolBackend) -> Result<Arc<dyn Tools>, ToolSetError> {
        self.permitted(planned)?;
        let key = (planned.tool.clone(), planned.backend.clone());
        let cell = {
            let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(built.entry(key).or_default())
        };
        let (tool, backend) = (&planned.tool, &planned.backend);
        let broken = |error: tokio::task::JoinError| {
            ToolSetError::Unusable(format!("failed to set up {tool}={backend}: {error}"))
        };
        let set_up = async || {
            let (planned, browsers) = (planned.clone(), Arc::clone(&self.browsers));
            tokio::task::spawn_blocking(move || build(&planned, &browsers)).await.map_err(broken)?
        };
        cell.get_or_try_init(set_up).await.cloned()
    }
}

fn build(planned: &ToolBackend, browsers: &Browsers) -> Result<Arc<dyn Tools>, ToolSetError> {
    let ToolBackend { tool, backend, .. } = planned;
    let unreadable =
        |source| ToolSetError::Unreadable { tool: tool.clone(), backend: backend.clone(), source };
    let unopened = |source| ToolSetError::Model {
        tool: tool.clone(),
        backend: backend.clone(),
        source: Box::new(source),
    };
    let no_browser = |why| unusable(&format!("{tool}={backend}"), why);
    Ok(match Named::parse_planned(tool, backend)? {
        Named::Native => Arc::new(NativeMaths),
        Named::Wolfram => {
            let wolfram = WolframSettings::from_environment().and_then(Wolfram::new);
            let wolfram = wolfram.map_err(|why| unusable("maths=wolfram", why))?;
            Arc::new(Remembering::new(Arc::new(wolfram)))
        }
        Named::Bm25 => Arc::new(Bm25Ranking),
        Named::Dpr(folder) => Arc::new(DprReader::open(&folder, None).map_err(unopened)?),
        Named::CrossEncoder(folder) => Arc::new(CrossEncoder::open(&folder, None).map_err(unopened)?),
        Named::Live => {
            let wiki = WikiSettings::from_environment().and_then(LiveWiki::new);
            let wiki = wiki.map_err(|why| unusable("wiki=live", why))?;
            Arc::new(Remembering::new(Arc::new(wiki)))
        }
        Named::Samples => Arc::new(Corpus::samples().map_err(unreadable)?),
        Named::Corpus(file) => Arc::new(Corpus::read(&file).map_err(unreadable)?),
        Named::Web => Arc::new(WebPages),
        Named::Recorded(file) => Arc::new(RecordedTools::read(&file).map_err(unreadable)?),
        Named::Sqlite(folder) => Arc::new(SqlTool::sqlite(folder, None).map_err(unreadable)?),
        Named::MySql => {
            let tool = MySqlSettings::named(without_hash(backend)).and_then(SqlTool::mysql);
            Arc::new(tool.map_err(|why| unusable("sql=mysql", why))?)
        }
        Named::Shop(files) => Arc::new(MemoryShop::open(&files).map_err(unreadable)?),
        Named::BrowserShop(browser, files) => {
            let lent = browsers.of(&browser).map_err(no_browser)?;
            browsers.shop(&files, lent).map_err(unreadable)?
        }
        Named::BrowserWeb(browser) => browsers.pages(browsers.of(&browser).map_err(no_browser)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
