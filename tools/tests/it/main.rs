//! Integration tests of lumos-tools.

mod live;
#[cfg(feature = "mcp")]
mod mcp;
mod site;
mod wolfram;
