//! Plans a run: turns a specification into configurations and items.
//!
//! [`expand`] returns the configurations of the matrix (benchmarks × formulations × models × behaviours ×
//! seeds), and [`select`] the items of a data set. Both perform no I/O; callers pass models, tools and items.

use std::collections::{BTreeMap, HashSet};

use lumos_benchmarks::Benchmark;
use lumos_tasks::{Configuration, Formulation, Item, ItemId, ModelIdentity, Role, ToolBackend};
use thiserror::Error;

use crate::spec::{CellSettings, ItemChoice, MissingBenchmark, ResolvedSpec, StopRule};

/// Error of expanding the matrix.
#[derive(Debug, Error)]
pub enum MatrixError<E: std::error::Error + 'static> {
    /// This program does not have a benchmark.
    #[error(transparent)]
    Benchmark(#[from] MissingBenchmark),
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

/// A configuration of the matrix with the settings that are not part of its identity.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCell {
    /// The configuration.
    pub configuration: Configuration,
    /// Number of items of the benchmark, from the first; `None` for all selected items.
    pub limit: Option<u64>,
    /// Priority of its units; higher ones are dispatched first.
    pub priority: i32,
    /// When it ends before its last item.
    pub stop: Option<StopRule>,
}

impl From<Configuration> for PlannedCell {
    fn from(configuration: Configuration) -> Self {
        Self { configuration, limit: None, priority: 0, stop: None }
    }
}

/// Expands the matrix, in the order of reports, without excluded configurations.
///
/// `resolve_model` returns the identity of a named model for a benchmark, and `tools` the backends that a benchmark's
/// episodes call, where backends by tool replace those of the run. Equal cells (two names for the same weights) are
/// merged.
///
/// # Errors
/// If a benchmark or a model is unknown.
pub fn expand<E: std::error::Error + 'static>(
    spec: &ResolvedSpec,
    mut resolve_model: impl FnMut(&dyn Benchmark, &str, Role, Formulation) -> Result<ModelIdentity, E>,
    tools: impl Fn(&dyn Benchmark, &BTreeMap<String, String>) -> Vec<ToolBackend>,
) -> Result<Vec<PlannedCell>, MatrixError<E>> {
    let mut cells = Vec::new();
    let mut known = HashSet::new();
    for (named, cell) in spec.cells() {
        let task = cell.task;
        let benchmark = spec.benchmark(task)?;
        let (formulation, behaviour, seed) = (cell.formulation, cell.behaviour, cell.seed);
        let CellSettings { generation, limit, tools: backends, priority, stop } = spec.settings_of(&cell);
        let mut models = BTreeMap::new();
        for &role in benchmark.roles(formulation) {
            let name = named.get(&role).ok_or(MatrixError::NoModel { formulation, role })?;
            let identity = resolve_model(benchmark, name, role, formulation)
                .map_err(|source| MatrixError::Model { role, name: name.clone(), source })?;
            models.insert(role, identity);
        }
        // Formulations with a single model call no tools.
        let mut tools = if formulation.calls_tools() { tools(benchmark, &backends) } else { Vec::new() };
        tools.sort();
        let configuration = Configuration {
            benchmark: task.to_owned(),
            formulation,
            behaviour,
            max_rounds: benchmark.max_rounds(behaviour),
            models,
            tools,
            generation,
            seed,
            prompts: benchmark.prompts_hash(),
            format: lumos_tasks::PromptFormat::default(),
            agent: benchmark.agent().filter(|_| formulation.has_modules()),
        };
        if known.insert(configuration.identity()) {
            cells.push(PlannedCell { configuration, limit, priority, stop });
        }
    }
    Ok(cells)
}

/// Error of selecting items.
#[derive(Debug, Error)]
pub enum SelectError<E: std::error::Error + 'static> {
    /// A record cannot be read, and malformed records are not skipped.
    #[error(transparent)]
    Load(#[from] E),
    /// A chosen position does not exist.
    #[error("{benchmark} has no item {missing}{}: its items are 0 to {}", if *more { " and others" } else { "" }, records.saturating_sub(1))]
    OutOfRange {
        /// The benchmark.
        benchmark: String,
        /// The first position that does not exist.
        missing: u64,
        /// Whether there are further ones.
        more: bool,
        /// Number of records read.
        records: u64,
    },
    /// No items were selected.
    #[error("no items of {benchmark} selected")]
    Nothing {
        /// The benchmark.
        benchmark: String,
    },
}

/// The selected items, and counts of the records read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// Positions and identities of the items, ordered by position. The items themselves are read again when
    /// they are stored, so that a plan of millions of items fits in memory.
    pub items: Vec<(u64, ItemId)>,
    /// Number of records read.
    pub records: u64,
    /// Number of malformed records that were skipped.
    pub invalid: u64,
}

/// Selects items from a stream.
///
/// `skippable` is called for every load error and returns whether the record is skipped and the stream
/// continues. It combines `--skip-invalid` with the kind of error.
///
/// # Errors
/// On the first malformed record that is not skipped, if a chosen item does not exist, or if no items are
/// selected.
pub fn select<E: std::error::Error + 'static>(
    benchmark: &str,
    items: impl IntoIterator<Item = Result<Item, E>>,
    choice: &ItemChoice,
    mut skippable: impl FnMut(&E) -> bool,
) -> Result<Selected, SelectError<E>> {
    let mut selected = Selected::default();
    let end = choice.end();
    // A malformed record also has a position, which no item gets.
    let mut items = items.into_iter();
    while end.is_none_or(|end| selected.records < end) {
        let Some(item) = items.next() else { break };
        selected.records += 1;
        match item {
            Ok(Item { index, id, .. }) if choice.keeps(index) => {
                selected.items.push((index, id));
            }
            Ok(_) => {}
            Err(error) if skippable(&error) => selected.invalid += 1,
            Err(error) => return Err(SelectError::Load(error)),
        }
    }
    if let ItemChoice::Chosen(selection) = choice {
        let mut missing = selection.positions().filter(|position| *position >= selected.records);
        if let Some(first) = missing.next() {
            return Err(SelectError::OutOfRange {
                benchmark: benchmark.to_owned(),
                missing: first,
                more: missing.next().is_some(),
                records: selected.records,
            });
        }
    }
    selected.items.sort_by_key(|(index, _)| *index);
    if selected.items.is_empty() {
        return Err(SelectError::Nothing { benchmark: benchmark.to_owned() });
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use lumos_tasks::{Behaviour, ContentHash};
    use proptest::prelude::*;

    use super::*;
    use crate::samples::item;
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

    fn tools(_: &dyn Benchmark, _: &BTreeMap<String, String>) -> Vec<ToolBackend> {
        vec![ToolBackend { tool: "maths".to_owned(), backend: "native".to_owned(), version: 1 }]
    }

    #[test]
    fn the_matrix_has_every_cell_once_in_the_order_of_reports() {
        let spec = spec().resolve().unwrap();
        let cells = expand(&spec, |_, name, _, _| Ok::<_, Infallible>(model(name)), tools).unwrap();
        let cells: Vec<Configuration> = cells.into_iter().map(|cell| cell.configuration).collect();
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
        let error = expand(&spec, |_, _, _, _| Err(std::fmt::Error), tools).unwrap_err();
        assert!(error.to_string().starts_with("planner: "), "{error}");
    }

    fn indices(selected: &Selected) -> Vec<u64> {
        selected.items.iter().map(|(index, _)| *index).collect()
    }

    fn stream(count: u64) -> impl Iterator<Item = Result<Item, std::fmt::Error>> {
        (0..count).map(|index| if index == 2 { Err(std::fmt::Error) } else { Ok(item(index)) })
    }

    #[test]
    fn limits_and_choices_select() {
        let choose = |choice, skip| select("gsm8k", stream(6), &choice, |_| skip);
        assert_eq!(indices(&choose(ItemChoice::First(2), false).unwrap()), [0, 1]);
        let all = choose(ItemChoice::All, true).unwrap();
        assert_eq!((indices(&all), all.records, all.invalid), (vec![0, 1, 3, 4, 5], 6, 1));
        assert!(matches!(choose(ItemChoice::All, false), Err(SelectError::Load(_))));
        let chosen = ItemChoice::Chosen("1,3-4".parse().unwrap());
        assert_eq!(indices(&choose(chosen, true).unwrap()), [1, 3, 4]);
        let beyond = choose(ItemChoice::Chosen("1,6-9".parse().unwrap()), true).unwrap_err();
        assert_eq!(beyond.to_string(), "gsm8k has no item 6 and others: its items are 0 to 5");
        assert!(matches!(
            choose(ItemChoice::Chosen("2".parse().unwrap()), true),
            Err(SelectError::Nothing { .. })
        ));
    }

    proptest! {
        #[test]
        fn a_first_choice_is_a_prefix(count in 1u64..30, first in 1u64..40) {
            let items = (0..count).map(|index| Ok::<_, std::fmt::Error>(item(index)));
            let selected = select("gsm8k", items, &ItemChoice::First(first), |_| false).unwrap();
            prop_assert_eq!(indices(&selected), (0..count.min(first)).collect::<Vec<_>>());
        }
    }
}
