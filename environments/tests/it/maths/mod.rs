//! Tests of the exact mathematics through its public interface.

mod comparison;
mod limits;
mod properties;
mod recorded;
mod table;
