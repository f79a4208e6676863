//! Integration tests of the environments.

mod dom;
mod maths;
mod shop;
mod sql;
