//! How a worker's models are found and loaded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{EngineSettings, OpenAiSettings};
use crate::hub::HubSettings;

/// How models are found and loaded. Nothing of it but the engine's precision is part of a model's identity.
#[derive(Debug, Clone, Default)]
pub struct ModelsSettings {
    /// How engines are loaded.
    pub engine: EngineSettings,
    /// How servers are asked; by the environment where `None`.
    pub openai: Option<OpenAiSettings>,
    /// How the hub is asked; by the environment where `None`.
    pub hub: Option<HubSettings>,
    /// Whether models of the hub are taken by their commit only, as runs are planned: on a worker's host, a folder that is
    /// missing is not to be looked for on the hub.
    pub pinned_only: bool,
    /// How long each recorded reply takes: rehearses a fleet of slow models without any.
    pub script_latency: Option<Duration>,
    /// Models that lie elsewhere on this host: the name a run was planned with, and the name here.
    pub names: BTreeMap<String, String>,
}

impl From<EngineSettings> for ModelsSettings {
    fn from(engine: EngineSettings) -> Self {
        Self { engine, ..Self::default() }
    }
}

impl ModelsSettings {
    /// What a planned name is called on this host.
    pub(super) fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.get(name).map_or(name, String::as_str)
    }
}
