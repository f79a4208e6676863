//! Tools: the backends for the calls of an episode.
//!
//! [`ToolSets`] opens the backends that a run names. [`sessions`] have separate state for each episode; some of them
//! work in a [`browser`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod backend;
pub mod browser;
#[cfg_attr(not(feature = "browser"), path = "browsers/absent.rs")]
mod browsers;
mod corpus;
mod external;
mod live;
mod maths;
mod name;
mod process_group;
mod ranking;
mod registry;
mod replies;
mod session_backends;
pub mod sessions;
mod tool;
mod wolfram;

pub use backend::{
    BackendDescription, BackendError, BackendResources, NamedBackend, ParsedBackend, hash_suffix,
};
pub use live::{LiveWiki, WikiSettings};
pub use name::{TOOLS, ToolSetError, backends, is_known, needs_permission, register_backend};
pub use ranking::rank_backend;
pub use registry::ToolSets;
pub use replies::Remembering;
pub use tool::{ToolFault, ToolOperation, Tools};
pub use wolfram::{Wolfram, WolframSettings};
