//! The module `browsers` of a build without the feature `browser`: every use is an error.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::browser::BrowserName;
use crate::sessions::catalogue::ShopFiles;
use crate::tool::{Tools, not_built_with};

/// No browsers.
#[derive(Default)]
pub(super) struct Browsers;

impl Browsers {
    pub(super) fn new(_: Option<PathBuf>) -> Self {
        Self
    }

    /// Reports that this build has no client for browsers.
    pub(super) fn of(&self, _: &BrowserName) -> Result<Infallible, String> {
        Err(not_built_with("browser"))
    }

    pub(super) fn shop(&self, _: &ShopFiles, lent: Infallible) -> io::Result<Arc<dyn Tools>> {
        match lent {}
    }

    pub(super) fn pages(&self, lent: Infallible) -> Arc<dyn Tools> {
        match lent {}
    }

    /// Reports that this build has no client for browsers.
    pub(super) fn check(_: &BrowserName) -> Result<(), String> {
        Err(not_built_with("browser"))
    }

    pub(super) async fn close(&self) {}
}
