//! The backends with [`sessions`](crate::sessions): shops, databases and web pages, some of them in browsers.
//!
//! Names with an address may contain a password. Errors do not show them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_tasks::ContentHash;
use url::Url;

use crate::backend::{BackendDescription, BackendError, BackendResources, NamedBackend, hash_suffix};
use crate::browser::BrowserName;
use crate::browsers::Browsers;
use crate::sessions::catalogue::{SHOP_VERSION, ShopFiles};
use crate::sessions::shop::MemoryShop;
use crate::sessions::sql::{self, MySqlSettings, SqlTool};
use crate::sessions::web::{BROWSER_VERSION, WebPages};
use crate::tool::Tools;

/// `shop=memory`.
pub(super) const SHOP: BackendDescription = BackendDescription {
    tool: Some("shop"),
    forms: &["memory", "memory:<folder>"],
    parse: |_, backend| {
        let files = backend.strip_prefix("memory").and_then(ShopFiles::parse);
        Ok(files.map(|files| Box::new(NamedShop { browser: None, files }) as Box<dyn NamedBackend>))
    },
};

/// `shop=chromedriver`, `shop=http://…`.
pub(super) const BROWSER_SHOP: BackendDescription = BackendDescription {
    tool: Some("shop"),
    forms: &["chromedriver", "chromedriver:<folder>", "http://<WebDriver server>"],
    parse: |_, backend| {
        if !is_browser(backend) {
            return Ok(None);
        }
        let (browser, files) = ShopFiles::parse_in_browser(backend).map_err(invalid)?;
        Ok(Some(Box::new(NamedShop { browser: Some(browser), files })))
    },
};

/// `sql=sqlite`.
pub(super) const SQLITE: BackendDescription = BackendDescription {
    tool: Some("sql"),
    forms: &["sqlite", "sqlite:<folder>"],
    parse: |_, backend| {
        let folder = match backend.split_once(':') {
            None if backend == "sqlite" => None,
            Some(("sqlite", folder)) => Some(PathBuf::from(folder)),
            _ => return Ok(None),
        };
        Ok(Some(Box::new(NamedSqlite(folder))))
    },
};

/// `sql=mysql`.
pub(super) const MYSQL: BackendDescription = BackendDescription {
    tool: Some("sql"),
    forms: &["mysql", "mysql://<host>"],
    parse: |_, backend| {
        if backend != "mysql" {
            if !backend.starts_with("mysql:") {
                return Ok(None);
            }
            MySqlSettings::address_of(backend).map_err(no_mysql)?;
        }
        Ok(Some(Box::new(NamedMySql(backend.to_owned()))))
    },
};

/// `web=native`.
pub(super) const WEB: BackendDescription = BackendDescription {
    tool: Some("web"),
    forms: &["native"],
    parse: |_, backend| Ok((backend == "native").then(|| Box::new(WebPages) as Box<dyn NamedBackend>)),
};

/// `web=chromedriver`, `web=http://…`.
pub(super) const BROWSER_WEB: BackendDescription = BackendDescription {
    tool: Some("web"),
    forms: &["chromedriver", "http://<WebDriver server>"],
    parse: |_, backend| {
        if !is_browser(backend) {
            return Ok(None);
        }
        Ok(Some(Box::new(NamedPages(backend.parse().map_err(invalid)?))))
    },
};

/// The shop in this process, or as web pages in a browser.
struct NamedShop {
    browser: Option<BrowserName>,
    files: ShopFiles,
}

impl NamedBackend for NamedShop {
    fn version(&self) -> u32 {
        SHOP_VERSION
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        let mut paths = self.files.folder.iter().chain(&self.files.nouns);
        paths.try_for_each(|path| access.check_path(path))?;
        self.browser.as_ref().map_or(Ok(()), |browser| check_browser(browser, access))
    }

    fn content(&self) -> Result<String, BackendError> {
        let content = self.files.content()?;
        Ok(match &self.browser {
            // The identity contains only the hash of a name that has one, so the hash must cover the address.
            Some(browser @ BrowserName::Remote(_)) if !content.is_empty() => {
                hash_suffix(ContentHash::of_json(&(browser.to_string(), content)))
            }
            _ => content,
        })
    }

    fn check_host(&self) -> Result<(), String> {
        self.browser.as_ref().map_or(Ok(()), usable)
    }

    fn open(&self, resources: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let Some(browser) = &self.browser else { return Ok(Arc::new(MemoryShop::open(&self.files)?)) };
        let lent = resources.browsers.of(browser).map_err(BackendError::Unusable)?;
        Ok(resources.browsers.shop(&self.files, lent)?)
    }
}

/// Databases of episodes, from a folder of files or from the shipped samples.
struct NamedSqlite(Option<PathBuf>);

impl NamedBackend for NamedSqlite {
    fn version(&self) -> u32 {
        sql::VERSION
    }

    fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        self.0.as_ref().map_or(Ok(()), |folder| access.check_path(folder))
    }

    fn content(&self) -> Result<String, BackendError> {
        let content = self.0.as_ref().map(|folder| sql::SqliteFolder::content(folder)).transpose()?;
        Ok(content.map(hash_suffix).unwrap_or_default())
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(SqlTool::sqlite(self.0.clone(), None)?))
    }
}

/// Databases of episodes on a server.
struct NamedMySql(String);

impl NamedMySql {
    fn tool(&self) -> Result<SqlTool, String> {
        MySqlSettings::named(&self.0).and_then(SqlTool::mysql)
    }
}

impl NamedBackend for NamedMySql {
    fn version(&self) -> u32 {
        sql::VERSION
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        // `mysql` without an address refers to the server set in the environment.
        let server = MySqlSettings::of_url(&self.0);
        match server.and_then(|server| Url::parse(&server.address()).ok()) {
            Some(url) => access.check_url(&url),
            None => Ok(()),
        }
    }

    fn content(&self) -> Result<String, BackendError> {
        let address = MySqlSettings::address_of(&self.0).map_err(no_mysql)?;
        Ok(if self.0 == "mysql" { format!("#{address}") } else { String::new() })
    }

    fn check_host(&self) -> Result<(), String> {
        self.tool().map(drop).map_err(|why| format!("cannot be used from this host: {why}"))
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(self.tool().map_err(no_mysql)?))
    }
}

impl NamedBackend for WebPages {
    fn version(&self) -> u32 {
        Self::VERSION
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(Self))
    }
}

/// Web pages of tasks in a browser.
struct NamedPages(BrowserName);

impl NamedBackend for NamedPages {
    fn version(&self) -> u32 {
        BROWSER_VERSION
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        check_browser(&self.0, access)
    }

    fn check_host(&self) -> Result<(), String> {
        usable(&self.0)
    }

    fn open(&self, resources: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let lent = resources.browsers.of(&self.0).map_err(BackendError::Unusable)?;
        Ok(resources.browsers.pages(lent))
    }
}

fn check_browser(browser: &BrowserName, access: &AccessPolicy) -> Result<(), AccessRefusal> {
    match browser {
        BrowserName::Remote(url) => access.check_url(url),
        BrowserName::Chromedriver => Ok(()),
    }
}

fn usable(browser: &BrowserName) -> Result<(), String> {
    Browsers::check(browser).map_err(|why| format!("cannot be used on this host: {why}"))
}

/// Whether a backend of the shop or the web names a browser.
fn is_browser(backend: &str) -> bool {
    ["chromedriver", "http:", "https:"].iter().any(|beginning| backend.starts_with(beginning))
}

#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn invalid(error: crate::browser::UnknownBrowser) -> BackendError {
    BackendError::Invalid(error.to_string())
}

/// The error quotes neither the command line nor the environment.
#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn no_mysql(why: String) -> BackendError {
    BackendError::Named(format!("sql=mysql: {why}"))
}
