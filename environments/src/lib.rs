//! Environments and their rewards: data structures and functions that take files as readers or bytes and do
//! no other I/O.
//!
//! [`maths`] computes exactly, [`retrieval`] searches and ranks passages, [`dom`] writes web pages as text,
//! [`sql`] grades query results, [`shop`] implements WebShop. [`lines`] reads line-based files within limits.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod dom;
pub mod lines;
pub mod maths;
pub mod retrieval;
pub mod shop;
pub mod sql;
