//! A browser and the connection to it.

use std::path::PathBuf;
use std::time::Duration;

use fantoccini::error::CmdError;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::{ParseError, Url};

use super::connection::LimitedConnector;
use super::driver::Driver;
use super::error::{BrowserError, BrowserFault, read};
use super::hosts::{BLANK, resolver_rules};
use super::leftovers::Owner;
use crate::browser::{BrowserName, BrowserSettings};

/// Time beyond the page limit that the driver gets to report a timeout.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit for ending a session on a remote server.
const CLOSING: Duration = Duration::from_secs(10);
/// Time limit for resetting a browser before it is lent again. It needs no network, so a browser that does not respond is
/// replaced early.
const REFRESH_LIMIT: Duration = Duration::from_secs(10);

/// Whether commands can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// A command is in progress, or was cancelled.
    Busy,
    Ended,
}

/// What a browser shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// An empty page; no site has left any data.
    Nothing,
    /// A page that was built in the empty one, without network access.
    Built,
    /// A page of a site, or the first page of a new browser.
    Site,
}

/// A browser. Dropping it ends the browser.
pub(super) struct Session {
    client: Client,
    driver: Option<Driver>,
    state: State,
    /// Whether it supports the Chrome DevTools Protocol.
    is_chromium: bool,
    /// Whether the network is disabled.
    pub(super) is_offline: bool,
    pub(super) shown: Shown,
    /// Number of leases so far.
    pub(super) leases: usize,
    page_limit: Duration,
    command_limit: Duration,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

impl Session {
    /// Starts a driver, if `owner` is given, and a browser.
    pub(super) async fn start(
        settings: &BrowserSettings,
        owner: Option<&Owner>,
    ) -> Result<Self, BrowserFault> {
        const DOING: &str = "starting a browser";
        let driver = match owner {
            Some(owner) => Some(Driver::start(settings, owner).await?),
            None => None,
        };
        let mut address = match (&driver, &settings.browser) {
            (Some(driver), _) => driver.address(),
            (None, BrowserName::Remote(url)) => url.to_string(),
            (None, BrowserName::Chromedriver) => {
                return Err(BrowserFault::new(DOING, "the pool has no folder for profiles"));
            }
        };
        if !address.ends_with('/') {
            address.push('/');
        }
        let Value::Object(capabilities) = capabilities(settings, driver.as_ref()) else {
            return Err(BrowserFault::new(DOING, "the capabilities are not a JSON object"));
        };
        let mut builder = ClientBuilder::new(LimitedConnector(HttpConnector::new()));
        let connecting = builder.capabilities(capabilities).connect(&address);
        let client = timeout(settings.start_limit, connecting)
            .await
            .map_err(|_| {
                let seconds = settings.start_limit.as_secs();
                BrowserFault::new(DOING, format!("the browser did not start within {seconds} s"))
            })?
            .map_err(|error| BrowserFault::not_started(DOING, &error))?;
        let name = client.capabilities().and_then(|found| found.get("browserName")?.as_str());
        let is_chromium = name.is_some_and(|name| {
            let name = name.to_lowercase();
            name.starts_with("chrom") || name.contains("edge")
        });
        Ok(Self {
            client,
            driver,
            state: State::Ready,
            is_chromium,
            is_offline: false,
            shown: Shown::Site,
            leases: 0,
            page_limit: settings.page_limit,
            command_limit: settings.command_limit,
        })
    }

    /// Whether a command can be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Ends the browser and all its child processes.
    fn end(&mut self) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        if let Some(mut driver) = self.driver.take() {
            driver.kill();
            return;
        }
        // Remote servers need a request to end the session. The response is not awaited.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move {
                let _ = timeout(CLOSING, client.close()).await;
            });
        }
    }

    /// Ends the browser and waits until a remote server confirms.
    pub(super) async fn close(mut self) {
        if self.driver.is_none() && self.state != State::Ended {
            self.state = State::Ended;
            let _ = timeout(CLOSING, self.client().close()).await;
        }
    }

    /// Sends a command that loads no page.
    pub(super) async fn command<T>(
        &mut self,
        doing: &'static str,
        command: impl Future<Output = Result<T, CmdError>>,
    ) -> Result<T, BrowserError> {
        self.bounded(doing, self.command_limit, command).await
    }

    /// Sends a command that may load a page or wait for one.
    pub(super) async fn loading<T>(
        &mut self,
        doing: &'static str,
        command: impl Future<Output = Result<T, CmdError>>,
    ) -> Result<T, BrowserError> {
        self.bounded(doing, self.page_limit + GRACE, command).await
    }

    /// Sends a command of the DevTools Protocol. It may set a whole page.
    pub(super) async fn devtools(
        &mut self,
        command: &'static str,
        parameters: Value,
    ) -> Result<Value, BrowserError> {
        if !self.is_chromium {
            return Err(
                BrowserFault::new(command, "this browser does not support the DevTools Protocol").into()
            );
        }
        let client = self.client();
        self.loading(command, client.issue_cmd(DevTools { command, parameters })).await
    }

    /// Runs a command with a time limit. A timeout or an infrastructure fault ends the session.
    async fn bounded<T>(
        &mut self,
        doing: &'static str,
        limit: Duration,
        command: impl Future<Output = Result<T, CmdError>>,
    ) -> Result<T, BrowserError> {
        if self.state != State::Ready {
            return Err(BrowserFault::new(doing, "the browser session has ended").into());
        }
        self.state = State::Busy;
        let answer = match timeout(limit, command).await {
            Ok(answer) => answer.map_err(|error| read(doing, &error)),
            Err(_) => {
                let reason = format!("timed out after {:.1} s", limit.as_secs_f64());
                Err(BrowserFault::new(doing, reason).into())
            }
        };
        match &answer {
            Err(BrowserError::Fault(_)) => self.end(),
            Ok(_) | Err(BrowserError::Refused(_)) => self.state = State::Ready,
        }
        answer
    }

    /// Disables or enables the page's network.
    pub(super) async fn set_offline(&mut self, is_offline: bool) -> Result<(), BrowserError> {
        if self.is_offline != is_offline {
            let conditions = json!({
                "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
            });
            self.devtools("Network.enable", json!({})).await?;
            self.devtools("Network.emulateNetworkConditions", conditions).await?;
            self.is_offline = is_offline;
        }
        Ok(())
    }

    /// Shows the empty page.
    pub(super) async fn show_nothing(&mut self) -> Result<(), BrowserError> {
        let client = self.client();
        self.loading("leaving the page", client.goto(BLANK)).await
    }

    /// Resets the browser to its initial state before it is lent again: one empty window and no data of visited sites.
    /// Fails if the browser no longer works; if it does not respond, early.
    pub(super) async fn refresh(&mut self) -> Result<(), BrowserError> {
        let reset = timeout(REFRESH_LIMIT.min(self.page_limit), self.reset()).await;
        reset
            .unwrap_or_else(|_| Err(BrowserFault::new("resetting the browser", "it does not respond").into()))
    }

    /// Resets the browser to its initial state.
    pub(super) async fn reset(&mut self) -> Result<(), BrowserError> {
        const DOING: &str = "resetting the browser";
        let client = self.client();
        if !self.is_chromium {
            // Deletes only the cookies of the current page; WebDriver has no command for the others.
            self.command(DOING, client.delete_all_cookies()).await?;
        }
        self.show_nothing().await?;
        // Without network access, scripts and an origin, a page leaves neither windows nor data.
        if self.shown == Shown::Built {
            self.shown = Shown::Nothing;
            return Ok(());
        }
        let windows = self.command(DOING, client.windows()).await?;
        if windows.len() > 1 {
            let own = self.command(DOING, client.window()).await?;
            for other in windows.into_iter().filter(|window| *window != own) {
                self.command(DOING, client.switch_to_window(other)).await?;
                self.command(DOING, client.close_window()).await?;
            }
            self.command(DOING, client.switch_to_window(own)).await?;
        }
        if self.is_chromium {
            self.devtools("Network.clearBrowserCookies", json!({})).await?;
            let everything = json!({ "origin": "*", "storageTypes": "all" });
            self.devtools("Storage.clearDataForOrigin", everything).await?;
        }
        self.shown = Shown::Nothing;
        Ok(())
    }
}

/// A Chrome DevTools Protocol command, sent through chromedriver.
#[derive(Debug)]
struct DevTools {
    command: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        let body = json!({ "cmd": self.command, "params": self.parameters });
        (http::Method::POST, Some(body.to_string()))
    }
}

/// Builds the requested WebDriver capabilities.
fn capabilities(settings: &BrowserSettings, driver: Option<&Driver>) -> Value {
    let milliseconds = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let [width, height] = settings.window;
    let mut arguments: Vec<String> = [
        "--headless",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // Pages that are left are not kept, and the next page of a site needs no new process for that.
        "--disable-back-forward-cache",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--hide-scrollbars",
        "--mute-audio",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--window-size={width},{height}"));
    arguments.push(format!("--host-resolver-rules={}", resolver_rules(&settings.hosts)));
    // The resolver rules do not cover UDP: keeps WebRTC from contacting other servers to find its own
    // address.
    arguments.push("--force-webrtc-ip-handling-policy=disable_non_proxied_udp".to_owned());
    let mut options = json!({
        // Downloads are disabled, as they always are in a headless shell.
        "prefs": { "download_restrictions": 3, "profile.default_content_setting_values.notifications": 2 },
    });
    if let Some(driver) = driver {
        arguments.push(format!("--user-data-dir={}", driver.profile().display()));
        #[cfg(unix)]
        if rustix::process::geteuid().is_root() {
            // Chromium's sandbox does not start as root.
            arguments.push("--no-sandbox".to_owned());
        }
    }
    if let Some(program) = &settings.chromium {
        options["binary"] = json!(program);
    }
    options["args"] = json!(arguments);
    // Under its own name the driver gives a headless shell a first page.
    let is_shell =
        |program: &PathBuf| program.to_string_lossy().replace('_', "-").ends_with("headless-shell");
    let name =
        if settings.chromium.as_ref().is_some_and(is_shell) { "chrome-headless-shell" } else { "chrome" };
    json!({
        "browserName": name,
        "pageLoadStrategy": "normal",
        "unhandledPromptBehavior": "dismiss",
        "timeouts": {
            "implicit": 0,
            "script": milliseconds(settings.command_limit),
            "pageLoad": milliseconds(settings.page_limit),
        },
        "goog:chromeOptions": options,
    })
}
