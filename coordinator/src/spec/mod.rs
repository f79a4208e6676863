//! Specification of a run: layers from files, environment and flags, resolved into a complete specification.
//!
//! A [`RunSpec`] is one layer, in which every field is optional. [`RunSpec::merge`] combines layers
//! (defaults, file, environment, flags), and [`RunSpec::resolve`] turns the result into a complete
//! [`ResolvedSpec`] or returns all errors.

mod computing;
mod file;
mod names;
mod partition;
mod resolve;
mod resolved;
mod run_spec;
mod selection;
mod task_file;
mod values;

pub use {
    computing::MemorySize,
    file::SpecError,
    names::expand_names,
    partition::Partition,
    resolved::{ItemChoice, MissingBenchmark, ResolvedSpec, RunLimits},
    run_spec::{GenerationSpec, LimitsSpec, ModelSet, Preset, RunSpec},
    selection::{Selection, parse_samples},
    task_file::{place_of_key, read_task_file},
    values::{BatchSize, FailOnError},
};
