//! Specification of a run: layers from files, environment and flags, resolved into a complete specification.
//!
//! A [`RunSpec`] is one layer, in which every field is optional. [`RunSpec::merge`] combines layers
//! (defaults, file, environment, flags), and [`RunSpec::resolve`] turns the result into a complete
//! [`ResolvedSpec`] or returns all errors. Lists of a file may contain path patterns and list files (`lists`), and rules
//! exclude configurations, change their settings or stop them early ([`ConfigurationFilter`], [`OverrideRule`],
//! [`StopRule`]).

mod computing;
mod file;
mod lists;
mod matrix;
mod names;
mod partition;
mod path_pattern;
mod problems;
mod resolve;
mod resolved;
mod rule_problems;
mod rules;
mod run_spec;
mod selection;
mod stop;
mod task_file;
mod values;

pub(crate) use {
    rules::{CellSettings, is_default},
    stop::StopWatch,
};

pub use {
    computing::MemorySize,
    file::SpecError,
    names::expand_names,
    partition::Partition,
    resolved::{ItemChoice, MissingBenchmark, ResolvedSpec, RunLimits},
    rules::{ConfigurationFilter, DispatchOrder, OverrideRule},
    run_spec::{GenerationSpec, LimitsSpec, ModelSet, Preset, RulePlaces, RunSpec},
    selection::{Selection, parse_samples},
    stop::{StopRule, Stopped},
    task_file::{place_of_key, read_task_file},
    values::{BatchSize, FailOnError},
};
