//! Models and data sets of the Hugging Face hub, downloaded at a commit into the cache that Hugging Face's tools share.
//!
//! The hf-hub crate is not used. Version 0.5 waits only five seconds for another process's download, does not
//! read `HF_TOKEN`, does not hash downloaded files and does not expose `Retry-After`. Version 1.x adds a
//! second HTTP client and the Xet storage client, and neither hashes nor resumes plain downloads. The
//! remaining part, the paths of the cache, is in `layout`.

mod cached;
mod data;
mod error;
mod layout;
mod listing;
mod name;
mod settings;
mod site;
mod transfer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lumos_engine::shard_names;

pub use cached::{CachedModel, cached};
pub use error::HubError;
pub use name::{HubName, RepositoryKind};
pub use settings::HubSettings;

use layout::Layout;
use listing::{INDEX_SUFFIX, Listing};
use site::Site;

/// Number of files that an error about a missing one lists.
const SHOWN: usize = 8;

/// A model of the hub in the local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// Id, file if one is named, and commit.
    pub name: HubName,
    /// Folder that contains its files.
    pub folder: PathBuf,
}

impl HubModel {
    /// Path of the named file, or of the folder if no file is named.
    pub fn path(&self) -> PathBuf {
        self.name.file().map_or_else(|| self.folder.clone(), |file| self.folder.join(file))
    }
}

/// A file of a data set of the hub in the local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubData {
    /// Id and commit.
    pub name: HubName,
    /// Path of the file.
    pub path: PathBuf,
}

/// Client of the hub. Its settings come from the environment unless they are given.
#[derive(Debug, Default)]
pub struct Hub {
    settings: Option<HubSettings>,
    site: OnceLock<Site>,
    /// Locks of the repositories in use: of the threads that request the same one, one downloads it.
    turns: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Hub {
    /// Creates a client with the given settings, or with those from the environment.
    pub fn new(settings: Option<HubSettings>) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Provides a model on this host, downloading files that are not in the cache. Blocks; may be called from
    /// any thread.
    ///
    /// A cached commit needs no network. For a branch or tag the hub is asked for the current commit; if the
    /// hub cannot be reached, the last known commit is used.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn fetch(&self, name: &HubName) -> Result<HubModel, HubError> {
        match cached_commit(self.site()?, name) {
            Some(model) => Ok(model),
            None => self.run(name, async |site| fetch(site, name).await),
        }
    }

    /// Provides a file of a data set on this host, as [`fetch`](Self::fetch) does for models. `file` is its path in the
    /// data set.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn fetch_data(&self, name: &HubName, file: &str) -> Result<HubData, HubError> {
        match data::cached_commit(self.site()?, name, file) {
            Some(data) => Ok(data),
            None => self.run(name, async |site| data::fetch(site, name, file).await),
        }
    }

    /// Runs requests about a repository on a thread of their own, and waits for them. One thread at a time does so for
    /// the same repository.
    fn run<T: Send>(
        &self,
        name: &HubName,
        requests: impl AsyncFnOnce(&Site) -> Result<T, HubError> + Send,
    ) -> Result<T, HubError> {
        let site = self.site()?;
        let turn = self.turn(name);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let ran = std::thread::scope(|scope| {
            let fetching = scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                        HubError::Settings {
                            message: format!("failed to start a runtime for the hub: {error}"),
                        }
                    })?;
                runtime.block_on(requests(site))
            });
            fetching.join()
        });
        ran.unwrap_or_else(|_| Err(HubError::Settings { message: "the download thread panicked".to_owned() }))
    }

    /// Returns the lock of a repository, and removes those that no thread uses.
    fn turn(&self, name: &HubName) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(format!("{}/{}", name.kind().plural(), name.id())).or_default())
    }

    fn site(&self) -> Result<&Site, HubError> {
        if let Some(site) = self.site.get() {
            return Ok(site);
        }
        let settings = self.settings.clone().map_or_else(HubSettings::from_environment, Ok)?;
        let site = Site::new(settings)?;
        Ok(self.site.get_or_init(|| site))
    }
}

/// Finds a model at a commit in the cache, which needs no request.
fn cached_commit(site: &Site, name: &HubName) -> Option<HubModel> {
    let commit = name.commit()?;
    let folder = completed(&Layout::new(&site.settings.cache, name), name, commit)?;
    Some(HubModel { name: name.at(commit), folder })
}

/// Returns the commit's folder if it is complete. A file appears in it only when it is complete; for a whole folder, all
/// files must exist.
fn completed(layout: &Layout, name: &HubName, commit: &str) -> Option<PathBuf> {
    match name.file() {
        Some(file) => layout.has(commit, file),
        None => layout.completed(commit),
    }
}

async fn fetch(site: &Site, name: &HubName) -> Result<HubModel, HubError> {
    // Another thread may have downloaded it in the meantime.
    if let Some(model) = cached_commit(site, name) {
        return Ok(model);
    }
    let layout = Layout::new(&site.settings.cache, name);
    let here = |commit: &str, folder| HubModel { name: name.at(commit), folder };
    let kept = || {
        let commit = name.commit().map(str::to_owned).or_else(|| layout.noted(name.revision()))?;
        let usable = || name.file().map_or_else(|| layout.usable(&commit), |_| None);
        let folder = completed(&layout, name, &commit).or_else(usable)?;
        Some(here(&commit, folder))
    };
    if site.settings.offline {
        return kept().ok_or_else(|| site.offline(name));
    }
    let body = match site.describe(name).await {
        Ok(body) => body,
        Err(error @ HubError::Unreachable { .. }) => {
            let Some(model) = kept() else { return Err(error) };
            tracing::warn!("{error}; using the cached copy of {}", model.name);
            return Ok(model);
        }
        Err(error) => return Err(error),
    };
    let listing = Listing::read(&body).map_err(|message| site.answer(&message))?;
    let mut files = wanted(&listing, name, site)?;
    let pinned = name.at(listing.commit());
    let folder = layout.snapshot(listing.commit());
    for file in &files {
        transfer::ensure(site, &layout, &pinned, file).await?;
    }
    for shard in shards(&listing, name, site, &folder, &files)? {
        transfer::ensure(site, &layout, &pinned, &shard).await?;
        files.push(shard);
    }
    if name.commit().is_none() {
        layout.note(name.revision(), listing.commit());
    }
    if name.file().is_none() {
        layout.complete(listing.commit(), &files);
    }
    Ok(here(listing.commit(), folder))
}

/// Returns the names of the shards that the downloaded index lists; empty without an index. Fails if the hub lacks
/// one of them.
fn shards(
    listing: &Listing,
    name: &HubName,
    site: &Site,
    folder: &Path,
    files: &[String],
) -> Result<Vec<String>, HubError> {
    let Some(index) = files.iter().find(|file| file.ends_with(INDEX_SUFFIX)) else { return Ok(Vec::new()) };
    let shards = shard_names(&folder.join(index)).map_err(|error| HubError::Index(Box::new(error)))?;
    match shards.iter().find(|shard| !listing.files().any(|file| file == *shard)) {
        Some(missing) => Err(HubError::Missing {
            id: name.id().to_owned(),
            host: site.host(),
            what: missing.clone(),
            known: Vec::new(),
        }),
        None => Ok(shards),
    }
}

/// Selects the files to download: the named file, the files that the engine needs, or the only GGUF file.
fn wanted(listing: &Listing, name: &HubName, site: &Site) -> Result<Vec<String>, HubError> {
    let id = || name.id().to_owned();
    let mut models = listing.models();
    if let Some(file) = name.file() {
        models.retain(|model| model == file);
        let missing = || HubError::Missing {
            id: id(),
            host: site.host(),
            what: file.to_owned(),
            known: listing.models().into_iter().take(SHOWN).collect(),
        };
        return if models.is_empty() { Err(missing()) } else { Ok(models) };
    }
    let files = listing.wanted();
    match (files.is_empty(), models.len()) {
        (false, _) => Ok(files),
        (true, 0) => Err(HubError::NoWeights { id: id() }),
        (true, 1) => Ok(models),
        (true, _) => Err(HubError::SeveralModels { id: id(), files: models }),
    }
}
