//! Web pages whose candidates are parsed natively, and on which actions are executed in a browser.

mod carry;
mod sheet;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use lumos_tasks::families::web::PageAction;
use lumos_tasks::{Setup, ToolCall, ToolReply, WorkUnit};

use self::carry::carry;
use super::pages::{Pages, fault};
use crate::browser::webdriver::{BrowserPool, Screenshots};
use crate::tool::{ToolFault, Tools};

/// Opens sessions on the pages contained in units. Candidates are computed from the pages as in
/// [`WebPages`](super::WebPages); actions are executed in a leased browser.
#[derive(Clone)]
pub(crate) struct BrowserPages {
    pool: BrowserPool,
    screenshots: Option<PathBuf>,
}

impl BrowserPages {
    /// Creates the tool with the browsers of a pool. If `screenshots` is given, a screenshot of each step
    /// that marks the prediction and the true element is written below that folder.
    pub(crate) fn new(pool: BrowserPool, screenshots: Option<PathBuf>) -> Self {
        Self { pool, screenshots }
    }
}

#[async_trait]
impl Tools for BrowserPages {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("web pages are only available in an episode's session"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Setup::Web { steps } = &unit.setup else { return Ok(None) };
        let screenshots = Screenshots::begin(self.screenshots.as_deref(), &unit.id).await;
        Ok(Some(Arc::new(Session { pages: Pages::of(steps), pool: self.pool.clone(), screenshots })))
    }
}

/// The pages of one episode.
struct Session {
    pages: Pages,
    pool: BrowserPool,
    screenshots: Option<Screenshots>,
}

impl Session {
    async fn carry(&self, attempt: &PageAction) -> Result<ToolReply, ToolFault> {
        let page = self.pages.page(attempt.page)?;
        let (carried, picture) = carry(&self.pool, page, attempt, self.screenshots.is_some()).await?;
        if let (Some(screenshots), Some(picture)) = (&self.screenshots, picture) {
            screenshots.keep(attempt.step.saturating_add(1), picture).await;
        }
        Ok(ToolReply::Carried(carried))
    }
}

#[async_trait]
impl Tools for Session {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        match call {
            ToolCall::Candidates { step, scope } => self.pages.candidates(*step, *scope).await,
            ToolCall::Carry(attempt) => self.carry(attempt).await,
            _ => Err(fault("unsupported call of the web pages")),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Actions on pages in a real browser: those of the built-in samples, impossible ones, and those on hostile
    //! pages.
    //!
    //! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
    //! message.

    mod hostile;
    mod samples;
    mod stage;
    mod use_of_pages;
}
