//! Where the files lie that a `candle:` name means: one folder, one GGUF file, or the folders of a base and of a LoRA adapter;
//! here or on the hub.

use std::path::{Path, PathBuf};

use lumos_engine::{AdapterBase, LoadError, ModelSource, adapter_base};
use thiserror::Error;

use crate::hub::{Hub, HubError, HubName};

/// What stands between a base and its adapter.
const SEPARATOR: char = '+';
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// A model of the engine whose files are here.
#[derive(Debug, Clone)]
pub struct Located {
    /// What to load.
    pub source: ModelSource,
    /// The name that means the same on every host, with the commits of what is of the hub; nothing where nothing is.
    pub pinned: Option<String>,
}

/// Why a model's files are not here.
#[derive(Debug, Error)]
pub enum LocateError {
    /// The hub does not have it, or not for everybody.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A folder holds several models; or the adapter does not say what it was trained on, or is not merged into such a
    /// base.
    #[error(transparent)]
    Model(#[from] LoadError),
    /// What an adapter was trained on is not here.
    #[error(
        "{}: base_model_name_or_path is `{base}`, which is no folder here and no id of the hub; name the base before the \
         adapter: candle:<base>+<adapter>",
        file.display()
    )]
    NoBase {
        /// The adapter's configuration.
        file: PathBuf,
        /// What it names.
        base: String,
    },
}

/// One folder or file, and what it is on the hub if it is of it.
struct Part {
    path: PathBuf,
    name: Option<HubName>,
}

impl Part {
    fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.path.display().to_string(), HubName::to_string)
    }
}

/// Has the files of a model here: what follows `candle:`. Downloads those of the hub that are not in its cache, so it
/// blocks. With `pinned_only` models of the hub are taken by their commit only.
///
/// # Errors
/// See [`LocateError`].
pub fn locate(path: &Path, hub: &Hub, pinned_only: bool) -> Result<Located, LocateError> {
    let find = |path: &Path| {
        let asked = HubName::of_path(path).filter(|asked| !pinned_only || asked.commit().is_some());
        let Some(asked) = asked else { return Ok(Part { path: path.to_owned(), name: None }) };
        let model = hub.fetch(&asked)?;
        Ok::<_, HubError>(Part { path: model.path(), name: Some(model.name) })
    };
    let is_there = |path: &Path| path.exists() || HubName::of_path(path).is_some();
    if let Some((base, adapter)) = split(path, is_there) {
        // What is refused by its name is not downloaded before.
        ModelSource::adapted(&unpinned(base), &unpinned(adapter))?;
        return adapted(&find(base)?, &find(adapter)?);
    }
    let part = find(path)?;
    let has = |file: &str| part.path.join(file).exists();
    if has(ADAPTER_CONFIG) && !has("config.json") {
        let base = base_path(&part.path, adapter_base(&part.path)?)?;
        return adapted(&find(&base)?, &part);
    }
    let pinned = part.name.map(|name| format!("candle:{name}"));
    Ok(Located { source: ModelSource::of_path(&part.path)?, pinned })
}

fn adapted(base: &Part, adapter: &Part) -> Result<Located, LocateError> {
    let is_of_hub = base.name.is_some() || adapter.name.is_some();
    let pinned = is_of_hub.then(|| format!("candle:{}{SEPARATOR}{}", base.shown(), adapter.shown()));
    Ok(Located { source: ModelSource::adapted(&base.path, &adapter.path)?, pinned })
}

/// A path without the revision where it means a file of the hub.
fn unpinned(path: &Path) -> PathBuf {
    let file = HubName::of_path(path).and_then(|name| Some(format!("{}/{}", name.id(), name.file()?)));
    file.map_or_else(|| path.to_owned(), PathBuf::from)
}

/// Base and adapter, where a path means both: at the last separator that has something known on either side, or else at the
/// last. What is there as a whole is not split.
fn split(path: &Path, is_there: impl Fn(&Path) -> bool) -> Option<(&Path, &Path)> {
    let text = path.to_str()?;
    if is_there(path) {
        return None;
    }
    let parts = || {
        text.rmatch_indices(SEPARATOR).filter_map(|(at, separator)| {
            let (base, adapter) = (&text[..at], &text[at + separator.len()..]);
            (!base.is_empty() && !adapter.is_empty()).then_some((Path::new(base), Path::new(adapter)))
        })
    };
    parts().find(|(base, adapter)| is_there(base) && is_there(adapter)).or_else(|| parts().next())
}

/// What an adapter was trained on: a folder below the adapter's own or here, or an id of the hub.
fn base_path(adapter: &Path, base: AdapterBase) -> Result<PathBuf, LocateError> {
    let AdapterBase { name, revision } = base;
    let folders = [adapter.join(&name), PathBuf::from(&name)];
    if let Some(folder) = folders.into_iter().find(|folder| folder.is_dir()) {
        return Ok(folder);
    }
    let asked = revision.map_or_else(|| name.clone(), |revision| format!("{name}@{revision}"));
    match asked.parse::<HubName>() {
        Ok(_) => Ok(asked.into()),
        Err(()) => Err(LocateError::NoBase { file: adapter.join(ADAPTER_CONFIG), base: name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_where_both_sides_mean_something() {
        let split = |text: &'static str, known: &[&str]| {
            let is_there = |path: &Path| known.iter().any(|known| Path::new(known) == path);
            split(Path::new(text), is_there).map(|(base, adapter)| (base.to_owned(), adapter.to_owned()))
        };
        let parts = |base: &str, adapter: &str| Some((base.into(), adapter.into()));
        assert_eq!(split("a+b", &["a", "b"]), parts("a", "b"));
        assert_eq!(split("a+b", &["a+b", "a", "b"]), None);
        assert_eq!(split("a+b+c", &[]), parts("a+b", "c"));
        assert_eq!(split("a+b+c", &["a", "b+c"]), parts("a", "b+c"));
        assert_eq!(split("a+b+c", &["a", "b+c", "a+b", "c"]), parts("a+b", "c"));
        for whole in ["a", "+a", "a+", "+"] {
            assert_eq!(split(whole, &["a"]), None, "{whole}");
        }
    }

    #[test]
    fn the_base_of_an_adapter_is_looked_for_beside_it_first() {
        let folder = tempfile::tempdir().unwrap();
        let adapter = folder.path().join("adapter");
        for name in ["adapter", "base"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let base = |name: &str, revision: Option<&str>| {
            let (name, revision) = (name.to_owned(), revision.map(str::to_owned));
            base_path(&adapter, AdapterBase { name, revision })
        };
        assert_eq!(base("../base", None).unwrap(), adapter.join("../base"));
        let absolute = folder.path().join("base");
        assert_eq!(base(absolute.to_str().unwrap(), Some("main")).unwrap(), absolute);
        assert_eq!(base("org/model", None).unwrap(), Path::new("org/model"));
        assert_eq!(base("org/model", Some("v1")).unwrap(), Path::new("org/model@v1"));
        let error = base("/scratch/trained/base", None).unwrap_err().to_string();
        assert!(
            error.contains("/scratch/trained/base") && error.contains("candle:<base>+<adapter>"),
            "{error}"
        );
    }
}
