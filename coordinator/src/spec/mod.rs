//! What a run is asked to do: files and flags in layers, resolved into one complete specification.
//!
//! A [`RunSpec`] is one layer with every field optional. Layers are put over one another with
//! [`RunSpec::merge`] (defaults, file, environment, flags) and [`RunSpec::resolve`] turns the result into a
//! [`ResolvedSpec`] that needs no further decisions, or says in words what is wrong with it.

mod computing;
mod error;
mod file;
mod names;
mod nearest;
mod partition;
mod resolve;
mod resolved;
mod run_spec;
mod selection;
mod values;

pub use computing::MemorySize;
pub use error::{SpecError, SpecProblem, SpecProblems};
pub use names::expand_names;
pub use nearest::nearest;
pub use partition::{Partition, PartitionError};
pub use resolve::{BenchmarkFacts, known_benchmarks};
pub use resolved::{ItemChoice, Limits, ResolvedModels, ResolvedSpec};
pub use run_spec::{GenerationSpec, LimitsSpec, ModelSet, Preset, RunSpec};
pub use selection::{Selection, SelectionError, parse_samples};
pub use values::{BatchSize, FailOnError};
