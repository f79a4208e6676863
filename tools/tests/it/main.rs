//! Integration tests of lumos-tools.

mod live;
mod site;
mod wolfram;
