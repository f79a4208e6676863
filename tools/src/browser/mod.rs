//! Real browsers, controlled over WebDriver: their names and settings, and in builds with the feature `browser` the
//! client.

mod settings;
#[cfg(feature = "browser")]
pub(crate) mod webdriver;

pub(crate) use settings::found;
pub use settings::{BrowserName, BrowserSettings, UnknownBrowser};
