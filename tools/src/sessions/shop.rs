//! The in-memory shop: `--tool shop=memory`, `shop=memory:<folder>`.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lumos_environments::shop::{Goal, ShopServices, ShopSession};
use lumos_tasks::{Setup, ToolCall, ToolReply, WorkUnit};
use serde::Deserialize;

use super::catalogue::ShopFiles;
use crate::tool::{ToolFault, Tools, blocking};

/// The shop, with a separate visit for each episode.
#[derive(Debug)]
pub(crate) struct MemoryShop {
    staff: ShopServices,
}

impl MemoryShop {
    /// Opens the shop. Blocks.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub(crate) fn open(files: &ShopFiles) -> std::io::Result<Self> {
        Ok(Self { staff: staff(files)? })
    }
}

/// Returns the shop with its search engine and its tagger. Blocks.
///
/// # Errors
/// If its files cannot be read.
pub fn staff(files: &ShopFiles) -> std::io::Result<ShopServices> {
    let shop = Arc::new(files.open()?);
    Ok(ShopServices {
        search: Arc::<lumos_environments::shop::Shop>::clone(&shop),
        shop,
        tagger: Arc::new(files.tagger()?),
    })
}

pub(super) fn fault(message: impl Into<String>) -> ToolFault {
    ToolFault { tool: "shop".into(), message: message.into() }
}

/// Returns the goal of a shop episode, or `None` for another kind of episode.
pub(super) fn goal_of(unit: &WorkUnit) -> Result<Option<Goal>, ToolFault> {
    let Setup::Shop { goal } = &unit.setup else { return Ok(None) };
    Goal::deserialize(goal).map(Some).map_err(|error| fault(format!("invalid goal: {error}")))
}

#[async_trait]
impl Tools for MemoryShop {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("the shop tool only supports shop episodes"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Some(goal) = goal_of(unit)? else { return Ok(None) };
        let visit = ShopSession::new(self.staff.clone(), goal);
        Ok(Some(Arc::new(Session { visit: Arc::new(Mutex::new(visit)) })))
    }
}

/// The visit of one episode.
struct Session {
    visit: Arc<Mutex<ShopSession>>,
}

#[async_trait]
impl Tools for Session {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Shop(request) = call else { return Err(fault("unsupported call of the shop")) };
        let (visit, request) = (Arc::clone(&self.visit), request.clone());
        // A search among a million products takes milliseconds, which is too long for a thread of the
        // runtime.
        blocking("shop", move || {
            let mut visit = visit.lock().unwrap_or_else(PoisonError::into_inner);
            match visit.serve(&request) {
                Ok(reply) => ToolReply::Shop(reply),
                Err(raised) => ToolReply::Raised { message: raised.to_string() },
            }
        })
        .await
    }
}
