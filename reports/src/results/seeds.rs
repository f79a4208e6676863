//! Groups of configurations that differ only in their seed, and the settings in which groups differ.

use std::fmt;
use std::str::FromStr;

use lumos_tasks::{Configuration, ContentHash, ModelIdentity, UnknownName};

use super::table::{CellRows, RunTable, UnitRow};

/// Configurations of one benchmark that differ in nothing but the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeedGroup {
    /// Identity of the configuration with seed 0.
    pub(crate) key: ContentHash,
    /// Positions in [`RunTable::cells`], in their order.
    pub(crate) cells: Vec<usize>,
}

impl SeedGroup {
    /// Number of items of its configurations, at most those of the benchmark.
    pub(crate) fn items(&self, table: &RunTable) -> usize {
        self.cells.iter().map(|&cell| table.cells[cell].rows.len()).max().unwrap_or(0)
    }

    /// Returns the units of the item at a position, one per configuration that has the item.
    pub(crate) fn rows<'a>(&'a self, table: &'a RunTable, item: usize) -> impl Iterator<Item = &'a UnitRow> {
        self.cells.iter().filter_map(move |&cell| table.cells[cell].rows.get(item))
    }

    /// Returns the first configuration.
    pub(crate) fn configuration<'a>(&self, table: &'a RunTable) -> &'a Configuration {
        &self.first(table).planned.configuration
    }

    /// Returns the first configuration with its rows.
    pub(crate) fn first<'a>(&self, table: &'a RunTable) -> &'a CellRows {
        &table.cells[self.cells[0]]
    }
}

/// Returns the groups of a run, in the order of their first configurations.
pub(crate) fn seed_groups(table: &RunTable) -> Vec<SeedGroup> {
    let mut groups: Vec<SeedGroup> = Vec::new();
    for (position, cell) in table.cells.iter().enumerate() {
        let configuration = Configuration { seed: 0, ..(*cell.planned.configuration).clone() };
        let key = configuration.identity();
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.cells.push(position),
            None => groups.push(SeedGroup { key, cells: vec![position] }),
        }
    }
    groups
}

/// A setting in which the configurations of a benchmark can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingsAxis {
    /// The models of all roles.
    Model,
    /// How planner and grounder take turns.
    Formulation,
    /// Agent behaviour.
    Behaviour,
    /// The seed of the repetition.
    Seed,
    /// Backends of the tools.
    Tool,
}

impl SettingsAxis {
    /// All axes, in the order of labels.
    pub const ALL: [Self; 5] = [Self::Model, Self::Formulation, Self::Behaviour, Self::Tool, Self::Seed];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Formulation => "formulation",
            Self::Behaviour => "behaviour",
            Self::Seed => "seed",
            Self::Tool => "tool",
        }
    }

    /// Returns a configuration's value. `name` returns the name of a model.
    pub(crate) fn value(
        self,
        configuration: &Configuration,
        name: impl Fn(&ModelIdentity) -> String,
    ) -> String {
        match self {
            Self::Model => {
                let mut names: Vec<String> = configuration.models.values().map(name).collect();
                names.dedup();
                names.join(" + ")
            }
            Self::Formulation => configuration.formulation.to_string(),
            Self::Behaviour => configuration.behaviour.to_string(),
            Self::Seed => configuration.seed.to_string(),
            Self::Tool => {
                let tools = configuration.tools.iter();
                tools.map(|tool| format!("{}={}", tool.tool, tool.backend)).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl fmt::Display for SettingsAxis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for SettingsAxis {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|axis| axis.name() == word).ok_or_else(|| UnknownName {
            what: "axis",
            word: word.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}
