//! Pages of tasks on the web: read ([`WebPages`]), or shown in a browser besides ([`BrowserPages`]).

mod browser;
mod carry;
mod pages;
mod sheet;

pub use browser::BrowserPages;
pub use pages::WebPages;
