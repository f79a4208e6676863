//! Backends of models that a program adds to the built-in ones: `<backend>:<model>`.
//!
//! A [`ModelBackendDescription`] names a backend and opens its models; [`register_backend`] adds it to this process. Names,
//! identities, the registry and the rendering of prompts treat all added backends alike, so a backend is one file and one
//! call.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_tasks::ContentHash;
use thiserror::Error;

use crate::ModelBackend;

/// Names of the built-in backends, before the colon.
pub(crate) const BUILT_IN: [&str; 6] = ["candle", "openai", "openai-chat", "builtin", "script", "lumos"];

/// A backend of models that a program adds.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use lumos_models::{ModelBackend, ModelBackendDescription, ModelError};
/// use lumos_tasks::{Completion, Request};
///
/// /// Replies with the same text to every prompt.
/// struct Says(String);
///
/// #[async_trait]
/// impl ModelBackend for Says {
///     async fn complete(&self, _request: Request) -> Result<Completion, ModelError> {
///         Ok(Completion::recorded(self.0.clone()))
///     }
/// }
///
/// static SAYS: ModelBackendDescription = ModelBackendDescription {
///     backend: "says",
///     version: 1,
///     identify: |text| Ok(text.as_bytes().to_vec()),
///     check: |_, _| Ok(()),
///     open: |text| Ok(Arc::new(Says(text.to_owned()))),
/// };
///
/// lumos_models::register_backend(&SAYS)?;
/// let name: lumos_models::ModelName = "says:Finish".parse()?;
/// assert_eq!(name.to_string(), "says:Finish");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ModelBackendDescription {
    /// Name before the colon, such as `vllm-grpc`: lower-case letters, digits and hyphens.
    pub backend: &'static str,
    /// Version of what the models reply, part of their identity. Raise it when the same name replies differently.
    pub version: u32,
    /// Returns what identifies a model, such as the content of its files, in bytes. Equal bytes are the same model.
    /// Blocks, because it may read files. The error is a message.
    pub identify: fn(model: &str) -> Result<Vec<u8>, String>,
    /// Whether a worker's access policy allows the model: its files and addresses. Models of runs that others plan are
    /// untrusted text.
    pub check: fn(model: &str, access: &AccessPolicy) -> Result<(), AccessRefusal>,
    /// Opens a model. Blocks, because it may read files. The error is a message.
    pub open: fn(model: &str) -> Result<Arc<dyn ModelBackend>, String>,
}

impl fmt::Debug for ModelBackendDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} version {}", self.backend, self.version)
    }
}

/// Name of a model of an added backend.
#[derive(Debug, Clone)]
pub struct AddedName {
    pub(crate) description: &'static ModelBackendDescription,
    /// The text after the colon.
    pub(crate) model: String,
}

impl AddedName {
    /// Parses the parts of a name; `None` if no backend of that name was added.
    pub(crate) fn of(backend: &str, model: &str) -> Option<Self> {
        let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
        let description = added.iter().find(|one| one.backend == backend)?;
        Some(Self { description, model: model.to_owned() })
    }

    /// Returns the hash that identifies the model.
    pub(crate) fn content(&self) -> Result<ContentHash, String> {
        let ModelBackendDescription { backend, version, identify, .. } = self.description;
        let content = ContentHash::of_bytes(&identify(&self.model)?);
        Ok(ContentHash::of_json(&("added model/1", backend, version, content)))
    }

    fn key(&self) -> (&str, &str) {
        (self.description.backend, &self.model)
    }
}

impl PartialEq for AddedName {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for AddedName {}

impl Hash for AddedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for AddedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AddedName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl fmt::Display for AddedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.description.backend, self.model)
    }
}

static ADDED: RwLock<Vec<&'static ModelBackendDescription>> = RwLock::new(Vec::new());

/// A backend of models that cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid model backend `{name}`: {why}")]
pub struct InvalidModelBackend {
    name: String,
    why: &'static str,
}

/// Adds a backend of models to this process.
///
/// # Errors
/// If the name is not one of lower-case letters, digits and hyphens, or exists.
pub fn register_backend(description: &'static ModelBackendDescription) -> Result<(), InvalidModelBackend> {
    let name = description.backend;
    let invalid = |why| Err(InvalidModelBackend { name: name.to_owned(), why });
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_allowed) {
        return invalid("expected lower-case letters, digits and hyphens");
    }
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    if BUILT_IN.contains(&name) || added.iter().any(|one| one.backend == name) {
        return invalid("the name is taken");
    }
    added.push(description);
    Ok(())
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Formulation, Role};

    use super::*;
    use crate::{ModelName, ModelRegistry, ModelsSettings};

    fn backend(backend: &'static str, version: u32) -> &'static ModelBackendDescription {
        Box::leak(Box::new(ModelBackendDescription {
            backend,
            version,
            identify: |model| match model {
                "missing" => Err("model not found".to_owned()),
                model => Ok(model.as_bytes().to_vec()),
            },
            check: |_, _| Ok(()),
            open: |_| Err("not opened in this test".to_owned()),
        }))
    }

    #[test]
    fn names_and_identities_of_added_models() {
        register_backend(backend("one", 1)).unwrap();
        register_backend(backend("two", 1)).unwrap();
        for name in ["candle", "one", "", "Capital", "a:b"] {
            assert!(
                register_backend(backend(Box::leak(name.to_owned().into_boxed_str()), 1)).is_err(),
                "{name}"
            );
        }
        let name: ModelName = "one:a/b@c:9".parse().unwrap();
        assert_eq!(name.to_string(), "one:a/b@c:9");
        assert!("one:".parse::<ModelName>().unwrap_err().to_string().contains("missing value after `one:`"));
        let models = ModelRegistry::new(ModelsSettings::default());
        let identify = |name: &str| models.identify(name, Role::Planner, Formulation::Iterative);
        let identity = identify("one:a").unwrap().identity;
        assert_eq!((identity.name.as_str(), &identity.dtype), ("one:a", &None));
        assert_ne!(identity.content, identify("two:a").unwrap().identity.content);
        assert_ne!(identity.content, identify("one:b").unwrap().identity.content);
        let newer = AddedName { description: backend("one", 2), model: "a".to_owned() };
        assert_ne!(newer.content().unwrap(), identity.content);
        assert!(identify("one:missing").unwrap_err().to_string().contains("model not found"));
    }
}
