//! The shop as web pages in a browser: `--tool shop=chromedriver`, `shop=http://grid:4444`.
//!
//! The site of `sessions::site` is served to the browsers; each episode has its own visit there, with an
//! unguessable address. A call leases a browser, opens the page of the visit, types and clicks, and reads the
//! reply from the page. Between calls the visit remains on the site, so one browser serves many episodes
//! while models generate. The replies are identical to those of the in-memory shop.

mod customer;
mod page;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt};
use lumos_environments::shop::Goal;
use lumos_http::HttpLimits;
use lumos_tasks::families::shop::ShopRequest;
use lumos_tasks::{ToolCall, ToolReply, WorkUnit};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::customer::{ShopDriver, Trouble};
use super::catalogue::ShopFiles;
use super::shop::{fault, goal_of, staff};
use super::site::{Site, serve};
use crate::browser::webdriver::{BrowserPool, Screenshots};
use crate::tool::{ToolFault, Tools};

/// The shop, used by episodes in browsers.
pub(crate) struct BrowserShop {
    shared: Arc<Shared>,
    screenshots: Option<PathBuf>,
}

/// State shared by visits.
struct Shared {
    site: Arc<Site>,
    /// Address of the site, as seen by browsers.
    address: String,
    pool: BrowserPool,
    /// Ends the site.
    _serving: DropGuard,
}

/// A future that serves a site until it is cancelled.
pub(crate) type Serving = BoxFuture<'static, ()>;

impl BrowserShop {
    /// Opens the shop as a site on a free port for the browsers of a pool. Returns the shop and the future
    /// that serves the site until `stop` is cancelled or the shop and its sessions are dropped. If `screenshots`
    /// is given, a screenshot of each step is written below that folder. Blocks; must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the files cannot be read, or no port can be bound.
    pub(crate) fn open(
        files: &ShopFiles,
        pool: BrowserPool,
        screenshots: Option<PathBuf>,
        stop: CancellationToken,
    ) -> io::Result<(Self, Serving)> {
        let site = Arc::new(Site::new(staff(files)?, Vec::new()));
        let (interface, host) = match pool.own_host() {
            None => (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST.to_string()),
            Some(host) => (Ipv4Addr::UNSPECIFIED, host.to_owned()),
        };
        let (host, port) =
            match host.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))) {
                Some((host, port)) => (host.to_owned(), port),
                None => (host, 0),
            };
        let listener = std::net::TcpListener::bind((interface, port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = format!("http://{host}:{}", listener.local_addr()?.port());
        let guard = stop.clone().drop_guard();
        let serving = serve(listener, Arc::clone(&site), HttpLimits::default(), stop).boxed();
        let shared = Arc::new(Shared { site, address, pool, _serving: guard });
        Ok((Self { shared, screenshots }, serving))
    }
}

impl From<Trouble> for ToolFault {
    fn from(trouble: Trouble) -> Self {
        fault(format!("browser: {trouble}"))
    }
}

#[async_trait]
impl Tools for BrowserShop {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("the shop tool only supports shop episodes"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Some(goal) = goal_of(unit)? else { return Ok(None) };
        let screenshots = Screenshots::begin(self.screenshots.as_deref(), &unit.id).await;
        let visit = Mutex::new(Visit::NotBegun);
        Ok(Some(Arc::new(Session { shared: Arc::clone(&self.shared), goal, screenshots, visit })))
    }
}

/// The visit of one episode.
struct Session {
    shared: Arc<Shared>,
    goal: Goal,
    screenshots: Option<Screenshots>,
    visit: Mutex<Visit>,
}

enum Visit {
    NotBegun,
    Begun(Begun),
    /// A call failed or was cancelled, so the state of the visit is unknown.
    Lost,
}

/// A visit on the site. Dropping it ends the visit.
struct Begun {
    site: Arc<Site>,
    path: String,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.site.end(&self.path);
    }
}

impl Session {
    fn begin(&self) -> Begun {
        let site = Arc::clone(&self.shared.site);
        let path = site.begin(self.goal.clone());
        Begun { site, path }
    }

    /// Executes a request in a browser.
    async fn serve(&self, visit: &Begun, request: &ShopRequest) -> Result<ToolReply, ToolFault> {
        let lease = self.shared.pool.session().await?;
        let address = format!("{}{}", self.shared.address, visit.path);
        let mut customer = ShopDriver::enter(lease, &address).await?;
        let mut raised = None;
        for action in request.replay.iter().chain([&request.action]) {
            if let Err(message) = customer.act(action).await? {
                raised = Some(message);
                break;
            }
        }
        if let Some(screenshots) = &self.screenshots {
            match customer.lease.screenshot().await {
                Ok(picture) => screenshots.keep_next(picture).await,
                Err(trouble) => tracing::warn!(%trouble, "failed to take a screenshot of a step"),
            }
        }
        Ok(match raised {
            Some(message) => ToolReply::Raised { message },
            None => ToolReply::Shop(customer.page.reply(customer.has_clicked)),
        })
    }
}

#[async_trait]
impl Tools for Session {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Shop(request) = call else { return Err(fault("unsupported call of the shop")) };
        let mut visit = self.visit.lock().await;
        let begun = match std::mem::replace(&mut *visit, Visit::Lost) {
            // A new visit starts from the first page.
            Visit::Begun(begun) if !request.reset => begun,
            Visit::Lost if !request.reset => return Err(fault("an earlier step of the visit failed")),
            Visit::NotBegun | Visit::Begun(_) | Visit::Lost => self.begin(),
        };
        let reply = self.serve(&begun, request).await?;
        *visit = Visit::Begun(begun);
        Ok(reply)
    }

    async fn close(&self) {
        *self.visit.lock().await = Visit::Lost;
    }
}

#[cfg(test)]
mod tests {
    //! The shop in a browser gives the same replies as the shop in memory.
    //!
    //! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
    //! message.

    mod support;

    mod faults;
    mod hostile;
    mod sequences;
}
