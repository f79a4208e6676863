//! The browsers of a worker's tools: one pool per browser name, created on first use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::browser::webdriver::BrowserPool;
use crate::browser::{BrowserName, BrowserSettings, found};
use crate::sessions::browser_shop::BrowserShop;
use crate::sessions::catalogue::ShopFiles;
use crate::sessions::web::BrowserPages;
use crate::tool::Tools;

/// Time limit for connecting to a WebDriver server.
const REACHED: Duration = Duration::from_secs(5);

/// Time limit for ending sites.
const CLOSING: Duration = Duration::from_secs(2);

/// Programs that chromedriver searches for if no path is set.
#[cfg(target_os = "linux")]
const CHROMIUMS: [&str; 5] =
    ["google-chrome", "google-chrome-stable", "chrome", "chromium", "chromium-browser"];

/// Browser pools by name, and the folder for screenshots.
#[derive(Default)]
pub(super) struct Browsers {
    pools: Mutex<BTreeMap<String, BrowserPool>>,
    screenshots: Option<PathBuf>,
    /// Tasks that serve sites to browsers, and the token that ends them.
    sites: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Browsers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Browsers {
    /// Creates an empty collection. If `screenshots` is given, screenshots of steps are written below that
    /// folder.
    pub(super) fn new(screenshots: Option<PathBuf>) -> Self {
        let (pools, sites, stop) = Default::default();
        Self { pools, screenshots, sites, stop }
    }

    /// Returns the pool of a browser and the folder for screenshots of its steps. Blocks.
    ///
    /// # Errors
    /// A message that states what is missing on this host.
    pub(super) fn of(&self, browser: &BrowserName) -> Result<(BrowserPool, Option<PathBuf>), String> {
        let settings = usable(browser)?;
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let name = browser.to_string();
        let pool = match pools.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(BrowserPool::new(settings).map_err(|fault| fault.to_string())?),
        };
        Ok((pool.clone(), self.screenshots.clone()))
    }

    /// Opens a shop that is used in a browser. Blocks; must be called within a tokio runtime.
    ///
    /// # Errors
    /// If its files cannot be read, or it cannot be served.
    pub(super) fn shop(
        &self,
        files: &ShopFiles,
        (pool, screenshots): (BrowserPool, Option<PathBuf>),
    ) -> std::io::Result<Arc<dyn Tools>> {
        let (shop, serving) = BrowserShop::open(files, pool, screenshots, self.stop.child_token())?;
        self.sites.spawn(serving);
        Ok(Arc::new(shop))
    }

    /// Creates the tool whose actions on web pages are executed in a browser.
    pub(super) fn pages(&self, (pool, screenshots): (BrowserPool, Option<PathBuf>)) -> Arc<dyn Tools> {
        Arc::new(BrowserPages::new(pool, screenshots))
    }

    /// Checks that a browser can be used on this host. Blocks.
    ///
    /// # Errors
    /// A message that states what is missing.
    pub(super) fn check(browser: &BrowserName) -> Result<(), String> {
        usable(browser).map(drop)
    }

    /// Ends the sites and the browsers that are not leased.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.sites.close();
        let pools: Vec<_> =
            self.pools.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for pool in pools {
            pool.close().await;
        }
        // Connections that clients keep open are closed when the process ends.
        let _ = tokio::time::timeout(CLOSING, self.sites.wait()).await;
    }
}

/// Returns the settings of a browser after checking that it can be used.
fn usable(browser: &BrowserName) -> Result<BrowserSettings, String> {
    let settings = BrowserSettings::from_environment(browser.clone())?;
    match browser {
        BrowserName::Remote(url) => reach(url)?,
        BrowserName::Chromedriver => {
            if found(&settings.chromedriver).is_none() {
                return Err(format!(
                    "{} not found; hint: install chromedriver, or set LUMOS_CHROMEDRIVER to its path",
                    settings.chromedriver.display()
                ));
            }
            match &settings.chromium {
                Some(program) if found(program).is_none() => {
                    return Err(format!("LUMOS_CHROMIUM: {} not found", program.display()));
                }
                Some(_) => {}
                #[cfg(target_os = "linux")]
                None if CHROMIUMS.iter().all(|name| found(Path::new(name)).is_none()) => {
                    return Err(
                        "Chromium not found; hint: install chromium, or set LUMOS_CHROMIUM to its path"
                            .to_owned(),
                    );
                }
                None => {}
            }
        }
    }
    Ok(settings)
}

/// Checks that a server accepts connections.
fn reach(url: &Url) -> Result<(), String> {
    let unreached =
        |error: &dyn std::fmt::Display| format!("cannot reach the WebDriver server {url}: {error}");
    let addresses = url.socket_addrs(|| None).map_err(|error| unreached(&error))?;
    let mut last = None;
    for address in &addresses {
        match TcpStream::connect_timeout(address, REACHED) {
            Ok(_) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| unreached(&"the host name has no address"), |error| unreached(&error)))
}

#[cfg(test)]
mod tests {
    use lumos_http::{AccessPolicy, AccessRefusal};
    use lumos_tasks::ToolBackend;

    use super::*;
    use crate::name::{identify, parse, parse_planned};

    #[test]
    fn browsers_are_named_without_secrets() {
        let nothing = AccessPolicy::only(&[], &[]).unwrap();
        let needs = |tool, backend| {
            let refusal = parse_planned(tool, backend).unwrap().check(&nothing).err();
            refusal.map(|refusal| match refusal {
                AccessRefusal::Path(path) => path,
                AccessRefusal::Host(host) => host,
                AccessRefusal::Tool(tool) => tool,
            })
        };
        for (tool, backend, needed) in [
            ("web", "chromedriver", None),
            ("web", "http://grid:4444", Some("grid:4444")),
            ("shop", "chromedriver", None),
            ("shop", "chromedriver:a#0123", Some("a")),
            ("shop", "http://grid:4444#0123", Some("grid:4444")),
            ("shop", "http://grid:4444,folder=a#0123", Some("a")),
        ] {
            assert_eq!(needs(tool, backend).as_deref(), needed, "{tool}={backend}");
        }
        for (tool, backend) in [
            ("shop", "http://user:hush@grid:4444"),
            ("web", "http://user:hush@grid:4444"),
            ("shop", "https://grid?key=hush,folder=a"),
            ("maths", "chromedriver"),
            ("web", "chromedriver:a"),
        ] {
            let error = parse(tool, backend).err().unwrap().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_browser_is_part_of_the_identity() {
        let folder = tempfile::tempdir().unwrap();
        let nouns = folder.path().join("nouns.jsonl");
        std::fs::write(&nouns, "").unwrap();
        let identity = |name: &str| identify("shop", &format!("{name},nouns={}", nouns.display())).unwrap();
        let (here, one, other) =
            (identity("chromedriver"), identity("http://one:4444"), identity("http://other:4444"));
        let hash = |backend: &ToolBackend| backend.backend.rsplit_once('#').unwrap().1.to_owned();
        assert_eq!(hash(&here), hash(&identity("memory")));
        assert_ne!(hash(&one), hash(&other), "identities contain only the hash of such a name");
        assert_ne!(hash(&one), hash(&here));
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert!(found(Path::new("sh")).is_some());
        assert!(found(Path::new("no-such-program")).is_none());
        assert!(found(Path::new("./no-such-program")).is_none());
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        assert_eq!(reach(&url), Ok(()));
        drop(listener);
        let error = Browsers::default().of(&BrowserName::Remote(url.clone())).err().unwrap();
        assert!(error.contains(url.as_str()), "{error}");
    }
}
