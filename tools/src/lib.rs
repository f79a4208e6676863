//! Tools: the backends for the calls of an episode.
//!
//! [`ToolSets`] opens the backends that a run names. [`sessions`] have separate state for each episode; some of them
//! work in a [`browser`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod backend;
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
mod tool;
mod wolfram;

pub mod browser {
    //! Real browsers, controlled over WebDriver: their names and settings, and in builds with the feature `browser` the
    //! client.

    mod settings;
    #[cfg(feature = "browser")]
    pub(crate) mod webdriver;

    #[cfg(feature = "browser")]
    pub(crate) use settings::found;
    pub use settings::{BrowserName, BrowserSettings, UnknownBrowser};
}

pub mod sessions {
    //! Sessions: tools with separate state for each episode.

    #[cfg(feature = "browser")]
    pub(crate) mod browser_shop;
    pub mod catalogue;
    pub mod shop;
    pub mod site;
    pub mod sql;

    pub(crate) mod web {
        //! Web pages of tasks: parsed natively ([`WebPages`]), with actions optionally executed in a browser.

        #[cfg(feature = "browser")]
        mod browser;
        mod pages;

        #[cfg(feature = "browser")]
        pub(crate) use browser::BrowserPages;
        pub(crate) use pages::{BROWSER_VERSION, WebPages};
    }
}

pub use backend::{
    BackendDescription, BackendError, BackendResources, NamedBackend, ParsedBackend, hash_suffix,
};
pub use live::{LiveWiki, WikiSettings};
pub use name::{TOOLS, ToolSetError, backends, needs_permission, register_backend};
pub use ranking::rank_backend;
pub use registry::ToolSets;
pub use replies::Remembering;
pub use tool::{ToolFault, ToolOperation, Tools};
pub use wolfram::{Wolfram, WolframSettings};
