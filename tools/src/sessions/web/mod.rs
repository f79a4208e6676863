//! Web pages of tasks: parsed natively ([`WebPages`]), with actions optionally executed in a browser
//! ([`BrowserPages`]).

mod browser;
mod carry;
mod pages;
mod sheet;

pub use browser::BrowserPages;
pub use pages::WebPages;
