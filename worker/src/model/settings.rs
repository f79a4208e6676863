//! How a worker's models are found and loaded.

use std::collections::BTreeMap;
use std::time::Duration;

use lumos_engine::DType;
use lumos_tasks::{Placement, Role};

use super::{EngineSettings, OpenAiSettings};
use crate::access::AccessPolicy;
use crate::hub::HubSettings;

/// How models are found and loaded. Nothing of it but the engine's precision is part of a model's identity.
#[derive(Debug, Clone, Default)]
pub struct ModelsSettings {
    /// How engines are loaded.
    pub engine: EngineSettings,
    /// Where the models of each role are computed.
    pub placement: Placement,
    /// The type that weights of a role are kept in, where not the engine's.
    pub dtypes: BTreeMap<Role, DType>,
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
    /// Which files and servers models may be taken from, except those named in [`ModelsSettings::names`].
    pub access: AccessPolicy,
}

impl From<EngineSettings> for ModelsSettings {
    fn from(engine: EngineSettings) -> Self {
        Self { placement: Placement::on(engine.device), engine, ..Self::default() }
    }
}

impl ModelsSettings {
    /// How the engine of a role is loaded.
    pub(super) fn engine_of(&self, role: Role) -> EngineSettings {
        let dtype = self.dtypes.get(&role).copied().unwrap_or(self.engine.dtype);
        EngineSettings { dtype, device: self.placement.of(role), ..self.engine }
    }

    /// What a planned name is called on this host.
    pub(super) fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.get(name).map_or(name, String::as_str)
    }
}
