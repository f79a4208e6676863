//! Scores recorded runs, compares them, and writes reports, pages and exports.
//!
//! Everything here reads what the [coordinator](lumos_coordinator) recorded: [`results`] scores a run's units into a
//! table, [`report`] and [`viewer`] render one run, [`compare`] and [`gate`] decide about several, [`export`] writes files
//! for other tools, [`live`] follows a run in progress, and [`judge`] plans a pass in which a model grades predictions.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod compare;
mod display;
pub mod export;
pub mod gate;
pub mod judge;
mod ledger;
pub mod live;
mod model_id;
pub mod report;
pub mod results;
pub mod trajectory;
pub mod viewer;

pub use display::thousands;
pub use model_id::{ModelId, ModelNames};
pub use results::ScoreError;
