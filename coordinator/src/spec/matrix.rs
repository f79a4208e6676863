//! The matrix of a specification: every combination of benchmark, formulation, models, behaviour and seed, with the
//! rules that apply to it.

use std::collections::BTreeMap;

use lumos_tasks::{Behaviour, Formulation, Role};

use super::resolved::{ItemChoice, ResolvedSpec};
use super::rules::{Cell, CellSettings, ConfigurationFilter, OverrideRule};
use super::run_spec::Preset;

/// Largest number of combinations, before exclusions.
pub(super) const MOST_CONFIGURATIONS: usize = 10_000;

/// The lists whose product is the matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes<'a> {
    pub(super) tasks: &'a [String],
    pub(super) formulations: &'a [Formulation],
    pub(super) models: &'a [BTreeMap<Role, String>],
    pub(super) behaviours: &'a [Behaviour],
    pub(super) seeds: &'a [u64],
}

impl<'a> Axes<'a> {
    /// Number of combinations.
    pub(super) fn product(&self) -> usize {
        [
            self.tasks.len(),
            self.formulations.len(),
            self.models.len(),
            self.behaviours.len(),
            self.seeds.len(),
        ]
        .into_iter()
        .fold(1, usize::saturating_mul)
    }

    /// All combinations in the order of reports, each with the index of its set of models.
    pub(super) fn cells(self) -> impl Iterator<Item = (usize, Cell<'a>)> {
        let Self { tasks, formulations, models, behaviours, seeds } = self;
        tasks.iter().flat_map(move |task| {
            formulations.iter().flat_map(move |&formulation| {
                models.iter().enumerate().flat_map(move |(set, models)| {
                    behaviours.iter().flat_map(move |&behaviour| {
                        seeds.iter().map(move |&seed| {
                            let models = models.values().map(String::as_str).collect();
                            (set, Cell { task, formulation, behaviour, seed, models })
                        })
                    })
                })
            })
        })
    }
}

impl ResolvedSpec {
    /// The configurations that are not excluded, in the order of reports, each with its set of models.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&BTreeMap<Role, String>, Cell<'_>)> {
        let axes = Axes {
            tasks: &self.tasks,
            formulations: &self.formulation,
            models: &self.models,
            behaviours: &self.behaviour,
            seeds: &self.seed,
        };
        let is_kept =
            |cell: &Cell<'_>| !self.exclude.iter().any(|rule: &ConfigurationFilter| rule.selects(cell));
        axes.cells().filter(move |(_, cell)| is_kept(cell)).map(|(set, cell)| (&self.models[set], cell))
    }

    /// Returns the settings of a configuration.
    pub(crate) fn settings_of(&self, cell: &Cell<'_>) -> CellSettings {
        let mut settings = CellSettings::of(cell, &self.overrides, self.generation);
        let published = self.preset.and_then(|preset: Preset| preset.first_items(cell.task));
        settings.limit = match (settings.limit, self.items.get(cell.task)) {
            (Some(limit), _) => Some(published.map_or(limit, |published| limit.min(published))),
            (None, Some(ItemChoice::First(count))) => Some(*count),
            (None, _) => None,
        };
        settings
    }

    /// Returns the overrides that affect results, without priorities and stop rules.
    pub(crate) fn overriding(&self) -> Vec<OverrideRule> {
        let plain = |rule: &OverrideRule| OverrideRule { priority: None, stop: None, ..rule.clone() };
        self.overrides.iter().map(plain).filter(OverrideRule::has_settings).collect()
    }

    /// Whether a configuration of a benchmark calls a tool with the backend of the run: no rule sets another one.
    pub fn needs_backend(&self, task: &str, tool: &str) -> bool {
        self.cells()
            .filter(|(_, cell)| cell.task == task && cell.formulation.calls_tools())
            .any(|(_, cell)| !self.settings_of(&cell).tools.contains_key(tool))
    }

    /// Returns the items of a benchmark that any of its configurations needs.
    pub fn needed_items(&self, task: &str) -> ItemChoice {
        let choice = self.items.get(task).cloned().unwrap_or(ItemChoice::All);
        if self.overrides.iter().all(|rule| rule.limit.is_none()) {
            return choice;
        }
        let mut limits =
            self.cells().filter(|(_, cell)| cell.task == task).map(|(_, cell)| self.settings_of(&cell).limit);
        let most = limits.try_fold(0, |most: u64, limit| Some(most.max(limit?)));
        match (choice, most) {
            // Limits and chosen items exclude each other.
            (ItemChoice::Chosen(selection), _) => ItemChoice::Chosen(selection),
            // All configurations of the benchmark are excluded.
            (choice, Some(0)) => choice,
            (_, Some(most)) => ItemChoice::First(most),
            (_, None) => ItemChoice::All,
        }
    }
}
