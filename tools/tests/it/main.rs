//! Integration tests of lumos-tools.

mod browser;
mod live;
mod pages_browser;
mod shopping_browser;
mod site;
mod sql;
mod wolfram;
