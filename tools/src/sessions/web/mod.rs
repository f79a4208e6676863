//! Web pages of tasks: parsed natively ([`WebPages`]), with actions optionally executed in a browser.

#[cfg(feature = "browser")]
mod browser;
mod pages;

#[cfg(feature = "browser")]
pub(crate) use browser::BrowserPages;
pub(crate) use pages::{BROWSER_VERSION, WebPages};
