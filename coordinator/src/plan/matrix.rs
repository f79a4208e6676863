//! Expands the matrix: benchmarks × formulations × models × behaviours × seeds.

use std::collections::{BTreeMap, HashSet};

use lumos_benchmarks::Benchmark;
use lumos_tasks::{Configuration, Formulation, ModelIdentity, Role, ToolBackend};
use thiserror::Error;

use crate::spec::ResolvedSpec;

/// Error of expanding the matrix.
#[derive(Debug, Error)]
pub enum MatrixError<E: std::error::Error + 'static> {
    /// Unknown benchmark.
    #[error("unknown benchmark `{0}`")]
    UnknownBenchmark(String),
    /// The specification has no model for a role, which means that it was not created by resolving.
    #[error("formulation {formulation} has no {role}")]
    NoModel {
        /// The formulation.
        formulation: Formulation,
        /// The role without a model.
        role: Role,
    },
    /// A model cannot be resolved.
    ///
    /// The message omits the name, because an invalid name may contain a key; the source shows it where that
    /// is safe.
    #[error("{role}: {source}")]
    Model {
        /// The role.
        role: Role,
        /// The model's name.
        name: String,
        /// The cause.
        source: E,
    },
}

/// Expands the matrix, in the order of reports.
///
/// `resolve_model` returns the identity of a named model, and `tools` the backends that a benchmark's
/// episodes call. Equal cells (two names for the same weights) are merged.
///
/// # Errors
/// If a benchmark or a model is unknown.
pub fn expand<E: std::error::Error + 'static>(
    spec: &ResolvedSpec,
    mut resolve_model: impl FnMut(&str, Role, Formulation) -> Result<ModelIdentity, E>,
    tools: impl Fn(&dyn Benchmark) -> Vec<ToolBackend>,
) -> Result<Vec<Configuration>, MatrixError<E>> {
    let mut configurations = Vec::new();
    let mut known = HashSet::new();
    for task in &spec.tasks {
        let benchmark =
            lumos_benchmarks::find(task).ok_or_else(|| MatrixError::UnknownBenchmark(task.clone()))?;
        let mut tools = tools(benchmark);
        tools.sort();
        for &formulation in &spec.formulation {
            for named in &spec.models {
                let mut models = BTreeMap::new();
                for &role in benchmark.roles(formulation) {
                    let name = named.0.get(&role).ok_or(MatrixError::NoModel { formulation, role })?;
                    let identity = resolve_model(name, role, formulation)
                        .map_err(|source| MatrixError::Model { role, name: name.clone(), source })?;
                    models.insert(role, identity);
                }
                for &behaviour in &spec.behaviour {
                    for &seed in &spec.seed {
                        let configuration = Configuration {
                            benchmark: task.clone(),
                            formulation,
                            behaviour,
                            max_rounds: benchmark.max_rounds(behaviour),
                            models: models.clone(),
                            // Formulations with a single model call no tools.
                            tools: if formulation.calls_tools() { tools.clone() } else { Vec::new() },
                            generation: spec.generation,
                            seed,
                            prompts: benchmark.prompts_hash(),
                        };
                        if known.insert(configuration.identity()) {
                            configurations.push(configuration);
                        }
                    }
                }
            }
        }
    }
    Ok(configurations)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use lumos_tasks::{Behaviour, ContentHash};

    use super::*;
    use crate::spec::{GenerationSpec, ModelSet, RunSpec};

    fn model(name: &str) -> ModelIdentity {
        ModelIdentity {
            name: name.to_owned(),
            content: ContentHash::of_bytes(name.trim_end_matches("-copy").as_bytes()),
            dtype: None,
        }
    }

    fn spec() -> RunSpec {
        RunSpec {
            tasks: Some(vec!["gsm8k".to_owned(), "svamp".to_owned()]),
            formulation: Some(vec![Formulation::Iterative, Formulation::Cot]),
            behaviour: Some(Behaviour::ALL.to_vec()),
            models: Some(vec![ModelSet::of("a"), ModelSet::of("b"), ModelSet::of("a-copy")]),
            seed: Some(vec![0, 1]),
            generation: GenerationSpec { temperature: Some(0.7), ..GenerationSpec::default() },
            ..RunSpec::default()
        }
    }

    fn tools(_: &dyn Benchmark) -> Vec<ToolBackend> {
        vec![ToolBackend { tool: "maths".to_owned(), backend: "native".to_owned(), version: 1 }]
    }

    #[test]
    fn the_matrix_has_every_cell_once_in_the_order_of_reports() {
        let spec = spec().resolve().unwrap();
        let cells = expand(&spec, |name, _, _| Ok::<_, Infallible>(model(name)), tools).unwrap();
        // 2 benchmarks × 2 formulations × 2 models × 2 behaviours × 2 seeds.
        assert_eq!(cells.len(), 32);
        let identities: HashSet<_> = cells.iter().map(Configuration::identity).collect();
        assert_eq!(identities.len(), 32);
        let labels: Vec<_> = cells[..3].iter().map(Configuration::label).collect();
        assert_eq!(
            labels,
            [
                "gsm8k iterative paper seed 0",
                "gsm8k iterative paper seed 1",
                "gsm8k iterative corrected seed 0"
            ]
        );
        let cot = cells.iter().find(|cell| cell.formulation == Formulation::Cot).unwrap();
        assert_eq!(cot.models.keys().copied().collect::<Vec<_>>(), [Role::Answerer]);
        assert!(cot.tools.is_empty() && cells[0].tools.len() == 1);
    }

    #[test]
    fn the_role_of_a_model_that_cannot_be_had_is_named() {
        let spec = spec().resolve().unwrap();
        let error = expand(&spec, |_, _, _| Err(std::fmt::Error), tools).unwrap_err();
        assert!(error.to_string().starts_with("planner: "), "{error}");
    }
}
