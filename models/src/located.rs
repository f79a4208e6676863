//! Resolves `candle:` names to files: a folder, a GGUF file, or the folders of a base and a LoRA adapter;
//! local or from the hub.

use std::path::{Path, PathBuf};

use lumos_engine::{AdapterBase, LoadError, ModelSource, adapter_base};
use lumos_http::{AccessPolicy, AccessRefusal};
use thiserror::Error;

use crate::hub::{Hub, HubData, HubError, HubModel, HubName};

/// Separator between a base and its adapter.
const SEPARATOR: char = '+';
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// An engine's model whose files are on this host.
#[derive(Debug, Clone)]
pub struct EngineModel {
    /// What to load.
    pub source: ModelSource,
    /// Name that means the same on every host, with the commits of hub models. `None` if the model is not
    /// from the hub.
    pub pinned: Option<String>,
}

/// Errors of locating a model's files.
#[derive(Debug, Error)]
pub enum LocateError {
    /// The hub failed to provide the model.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The operator of this worker does not allow it.
    #[error(transparent)]
    NotAllowed(#[from] AccessRefusal),
    /// A folder holds several models, or an adapter does not name its base or cannot be merged into it.
    #[error(transparent)]
    Model(#[from] LoadError),
    /// The base that an adapter was trained on was not found.
    #[error(
        "{}: base_model_name_or_path is `{base}`, which is neither a folder nor a hub id; hint: name the \
         base before the adapter: candle:<base>+<adapter>",
        file.display()
    )]
    NoBase {
        /// Configuration file of the adapter.
        file: PathBuf,
        /// The base it names.
        base: String,
    },
}

/// A folder or file, with its hub name if it is from the hub.
struct Part {
    path: PathBuf,
    name: Option<HubName>,
}

impl Part {
    fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.path.display().to_string(), HubName::to_string)
    }
}

/// Locates the files of a model from the part after `candle:`. Blocks, because it downloads hub models that
/// are not in the cache. With `pinned_only`, hub models are only accepted at a commit. Local folders and
/// files, including the base of an adapter, are only used if `access` allows them.
///
/// # Errors
/// See [`LocateError`].
pub fn locate(
    path: &Path,
    hub: &Hub,
    pinned_only: bool,
    access: &AccessPolicy,
) -> Result<EngineModel, LocateError> {
    let of_hub = |path: &Path| HubName::of_path(path, access);
    // Refusals show the whole `name`, because a part would reveal where it was split.
    let find = |path: &Path, name: &Path| {
        let asked = of_hub(path).filter(|asked| !pinned_only || asked.commit().is_some());
        let Some(asked) = asked else {
            access.check_path(path).map_err(|_| AccessRefusal::path(name))?;
            return Ok(Part { path: path.to_owned(), name: None });
        };
        let model = fetch(hub, &asked)?;
        Ok::<_, LocateError>(Part { path: model.path(), name: Some(model.name) })
    };
    // Paths that are not allowed are not checked for existence, because the split of a name would reveal
    // whether they exist.
    let is_there = |path: &Path| of_hub(path).is_some() || (access.check_path(path).is_ok() && path.exists());
    if let Some((base, adapter)) = split(path, is_there) {
        if [base, adapter].iter().any(|part| of_hub(part).is_none() && access.check_path(part).is_err()) {
            return Err(AccessRefusal::path(path).into());
        }
        // Rejects unsupported names before anything is downloaded.
        let known = |part: &Path| of_hub(part).map_or_else(|| part.to_owned(), |name| file_of(&name));
        ModelSource::adapted(&known(base), &known(adapter))?;
        return adapted(&find(base, path)?, &find(adapter, path)?);
    }
    let part = find(path, path)?;
    let has = |file: &str| part.path.join(file).exists();
    if has(ADAPTER_CONFIG) && !has("config.json") {
        let base = base_path(&part.path, adapter_base(&part.path)?, access)?;
        return adapted(&find(&base, &base)?, &part);
    }
    let pinned = part.name.map(|name| format!("candle:{name}"));
    Ok(EngineModel { source: ModelSource::of_path(&part.path)?, pinned })
}

/// Provides a model of the hub, from the cache or as a download.
fn fetch(hub: &Hub, name: &HubName) -> Result<HubModel, HubError> {
    check_built(name)?;
    hub.fetch(name)
}

/// Provides a file of a data set of the hub, from the cache or as a download. Blocks during a download. `file` is its
/// path in the data set.
///
/// # Errors
/// See [`HubError`]. A build without the feature `hub` provides none.
pub fn fetch_data(hub: &Hub, name: &HubName, file: &str) -> Result<HubData, HubError> {
    check_built(name)?;
    hub.fetch_data(name, file)
}

/// Checks that this build has a client for the hub.
fn check_built(name: &HubName) -> Result<(), HubError> {
    if cfg!(feature = "hub") {
        return Ok(());
    }
    let message =
        format!("{name}: this program was built without `hub`; hint: build it with `--features hub`");
    Err(HubError::Settings { message })
}

fn adapted(base: &Part, adapter: &Part) -> Result<EngineModel, LocateError> {
    let is_of_hub = base.name.is_some() || adapter.name.is_some();
    let pinned = is_of_hub.then(|| format!("candle:{}{SEPARATOR}{}", base.shown(), adapter.shown()));
    Ok(EngineModel { source: ModelSource::adapted(&base.path, &adapter.path)?, pinned })
}

/// Returns the file that a hub name refers to, without the revision. For a whole repository, it is an empty path: a
/// folder of the same name on this host is something else.
fn file_of(name: &HubName) -> PathBuf {
    name.file().map_or_else(PathBuf::new, |file| Path::new(name.id()).join(file))
}

/// Splits a path into base and adapter: at the last separator with something known on both sides, or else at
/// the last one. Paths that exist as a whole are not split.
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

/// Resolves the base that an adapter was trained on: a folder relative to the adapter or to the working
/// directory, or a hub id.
fn base_path(adapter: &Path, base: AdapterBase, access: &AccessPolicy) -> Result<PathBuf, LocateError> {
    let AdapterBase { name, revision } = base;
    let folders = [adapter.join(&name), PathBuf::from(&name)];
    // An adapter of the hub may name any folder, so it is checked.
    let is_usable = |folder: &PathBuf| access.check_path(folder).is_ok() && folder.is_dir();
    if let Some(folder) = folders.into_iter().find(is_usable) {
        return Ok(folder);
    }
    let asked = revision.map_or_else(|| name.clone(), |revision| format!("{name}@{revision}"));
    if asked.parse::<HubName>().is_ok() {
        return Ok(asked.into());
    }
    access.check_path(Path::new(&name))?;
    Err(LocateError::NoBase { file: adapter.join(ADAPTER_CONFIG), base: name })
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
            base_path(&adapter, AdapterBase { name, revision }, &AccessPolicy::default())
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

    #[test]
    fn neither_a_part_nor_the_base_of_an_adapter_leads_out_of_the_allowed_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["data/adapter", "data/base", "secret", "c+d"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        let access = AccessPolicy::only(&[], &[path("data").into()]).unwrap();
        let refused = |name: &str| match locate(Path::new(name), &Hub::default(), true, &access) {
            Err(error @ LocateError::NotAllowed(_)) => {
                error.to_string().replace(folder.path().to_str().unwrap(), "")
            }
            other => panic!("{name}: {other:?}"),
        };
        let plus = |base: &str, adapter: &str| format!("{}+{}", path(base), path(adapter));
        // The message is the same whether the path exists or not.
        for (there, absent) in [
            (path("secret"), path("absent")),
            (plus("data/base", "secret"), plus("data/base", "absent")),
            (plus("secret", "data/adapter"), plus("absent", "data/adapter")),
            (path("c+d"), path("e+f")),
            // Tests run in the crate's folder, which has `src/hub`. Such a path may also be a name of the hub.
            ("src/hub".to_owned(), "src/none".to_owned()),
            ("src/hub+org/adapter".to_owned(), "src/none+org/adapter".to_owned()),
            ("org/base+src/hub".to_owned(), "org/base+src/none".to_owned()),
            (format!("src/hub+{}", path("data/adapter")), format!("src/none+{}", path("data/adapter"))),
        ] {
            let names = ["secret", "absent", "c+d", "e+f", "src/hub", "src/none"];
            let plain = |text: String| names.iter().fold(text, |text, name| text.replace(name, "NAME"));
            assert_eq!(plain(refused(&there)), plain(refused(&absent)));
        }
        assert!(refused("src/hub+org/adapter").contains("`src/hub+org/adapter`"));
        for base in [path("secret"), path("absent"), "../../secret".to_owned(), "../../absent".to_owned()] {
            let config = serde_json::json!({ "base_model_name_or_path": base });
            std::fs::write(path("data/adapter/adapter_config.json"), config.to_string()).unwrap();
            let message = refused(&path("data/adapter"));
            assert!(message.contains("--allow-path"), "{message}");
        }
    }
}
