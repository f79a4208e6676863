//! What a backend declares: [`BackendDescription`] is its row in the table of `name.rs`, [`NamedBackend`] a backend as
//! a run names it (`corpus:pages.jsonl` in `--tool wiki=corpus:pages.jsonl`), which can be identified, checked against
//! an access policy and opened.
//!
//! A program that is built on this library adds backends with [`register_backend`](crate::register_backend).

use std::io;
use std::path::Path;
use std::sync::Arc;

use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_tasks::ContentHash;
use thiserror::Error;

use crate::browsers::Browsers;
use crate::tool::Tools;

/// A backend of a tool, as a row of a table.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use lumos_tasks::{ExternalReply, ToolBackend, ToolCall, ToolReply};
/// use lumos_tools::{
///     BackendDescription, BackendError, BackendResources, NamedBackend, ToolFault, ToolSets, Tools,
///     register_backend,
/// };
///
/// /// Answers every call with the text in its name: `--tool weather=always:sunny`.
/// struct Always(String);
///
/// #[async_trait]
/// impl Tools for Always {
///     async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolFault> {
///         Ok(ToolReply::External(ExternalReply::Text(self.0.clone())))
///     }
/// }
///
/// impl NamedBackend for Always {
///     fn version(&self) -> u32 {
///         1
///     }
///
///     fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
///         Ok(Arc::new(Self(self.0.clone())))
///     }
/// }
///
/// static ALWAYS: BackendDescription = BackendDescription {
///     tool: Some("weather"),
///     forms: &["always:<text>"],
///     parse: |_, backend| {
///         let text = backend.strip_prefix("always:");
///         Ok(text.map(|text| Box::new(Always(text.to_owned())) as Box<dyn NamedBackend>))
///     },
/// };
///
/// register_backend(&ALWAYS)?;
/// let planned: ToolBackend = ToolSets::default().identify("weather", "always:sunny")?;
/// assert_eq!((planned.backend.as_str(), planned.version), ("always:sunny", 1));
/// # Ok::<(), lumos_tools::ToolSetError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BackendDescription {
    /// The tool whose calls it answers. `None`: every tool that is not built in.
    pub tool: Option<&'static str>,
    /// The forms of its name, for lists: `corpus:<JSON lines>`.
    pub forms: &'static [&'static str],
    /// Parses the name of a tool and of a backend, without the suffix of its content. Returns `None` if the name is not
    /// one of this backend.
    pub parse: fn(&str, &str) -> ParsedBackend,
}

/// The result of parsing the name of a backend; `None` if it is a name of another one.
pub type ParsedBackend = Result<Option<Box<dyn NamedBackend>>, BackendError>;

/// A backend as named on the command line or in the configurations of a run.
pub trait NamedBackend: Send + Sync {
    /// Returns the version of its replies. It is incremented when they change, so that results with old and new replies
    /// are different configurations.
    fn version(&self) -> u32;

    /// Returns the file or the folder that its name consists of, after a prefix that ends with `:`. Other names of the same
    /// file or folder share the backend. `None` if its name contains anything else.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Checks that a run may use it on this worker: the files that it reads, the servers in its name.
    ///
    /// # Errors
    /// If the operator of this worker does not allow one of them.
    fn check(&self, _access: &AccessPolicy) -> Result<(), AccessRefusal> {
        Ok(())
    }

    /// Whether whoever starts a run must have named it, and the operator of a worker must allow its name: it starts a
    /// program or sends calls to a server. Such a backend is not used only because a task file names it.
    fn needs_permission(&self) -> bool {
        false
    }

    /// Returns the suffix of its name in a configuration, with `#`: a hash of its files ([`hash_suffix`]) or the address
    /// of its server. Blocks.
    ///
    /// The suffix need not cover the name. Configurations have a hash of both instead if the name has a `:` that is not
    /// followed by a [path](Self::path), or if the name contains `#` and the suffix is empty.
    ///
    /// # Errors
    /// If a file cannot be read, or a setting is invalid.
    fn content(&self) -> Result<String, BackendError> {
        Ok(String::new())
    }

    /// Checks that this host has what it needs. Blocks.
    ///
    /// # Errors
    /// A message such as `cannot be used on this host: chromedriver not found`.
    fn check_host(&self) -> Result<(), String> {
        Ok(())
    }

    /// Sets it up. Blocks; called within a tokio runtime.
    ///
    /// # Errors
    /// If it cannot be set up.
    fn open(&self, resources: &BackendResources) -> Result<Arc<dyn Tools>, BackendError>;
}

/// What the backends of a worker share.
pub struct BackendResources {
    pub(super) browsers: Arc<Browsers>,
}

/// Errors of a backend. The caller adds the names of the tool and the backend, except to [`BackendError::Named`].
#[derive(Debug, Error)]
pub enum BackendError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// A model cannot be opened.
    #[error(transparent)]
    Model(Box<lumos_engine::LoadError>),
    /// Its name is invalid. The name is not shown, because it may contain a password.
    #[error("{0}")]
    Invalid(String),
    /// Its settings are invalid, or this host or this build lacks what it needs.
    #[error("{0}")]
    Unusable(String),
    /// The same, with a message that begins with a name that can be shown: `sql=mysql: …`.
    #[error("{0}")]
    Named(String),
}

/// Returns the suffix of a backend's name for a hash.
#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
pub fn hash_suffix(hash: ContentHash) -> String {
    format!("#{}", hash.short())
}
