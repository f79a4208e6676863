//! The pipeline of a run: [`Spec`] → [`Plan`] → [`Run`] → [`Report`].
//!
//! A [`Spec`] is what a command asks for, with the [`Executor`] for it: models, tools, and the workers of a queue if
//! there are any. [`Plan::of`] reads the data and identifies models and tools. [`Plan::open`] checks them, fits them
//! in memory and opens the run's folder. [`Run::execute`] executes the outstanding units, here or on the workers.
//! [`Report::publish`] writes the results and determines the exit code. The commands `run`, `resume`, `validate`,
//! `score --judge` and `verify` compose these stages.

mod data;
mod plan;
mod report;
mod run;
mod spec;
mod status;
mod tool_backends;

pub(crate) use plan::{Plan, check_vacant, is_planned, item_positions, model_record};
pub(crate) use report::{Report, lock_results, print_report, write_results};
pub(crate) use run::{Run, checkpoint_failure, manifest_failure, open_checkpoint};
pub(crate) use spec::{Executor, Options, Spec, identify};
