//! Specification of a run: layers from files, environment and flags, resolved into a complete specification.
//!
//! A [`RunSpec`] is one layer, in which every field is optional. [`RunSpec::merge`] combines layers
//! (defaults, file, environment, flags), and [`RunSpec::resolve`] turns the result into a complete
//! [`ResolvedSpec`] or returns all errors.

mod computing;
mod error;
mod file;
mod names;
mod partition;
mod resolve;
mod resolved;
mod run_spec;
mod selection;
mod values;

pub use computing::MemorySize;
pub use error::{SpecError, SpecProblem, SpecProblems};
pub use names::{expand_names, nearest};
pub use partition::{Partition, PartitionError};
pub use resolve::{BenchmarkFacts, known_benchmarks};
pub use resolved::{ItemChoice, ResolvedModels, ResolvedSpec, RunLimits};
pub use run_spec::{GenerationSpec, LimitsSpec, ModelSet, Preset, RunSpec};
pub use selection::{Selection, SelectionError, parse_samples};
pub use values::{BatchSize, FailOnError};
