//! Integration tests of the environments.

mod dom;
mod maths;
mod sql;
