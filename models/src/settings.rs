//! Settings for finding and loading a worker's models.

use std::collections::BTreeMap;
use std::time::Duration;

use lumos_engine::DType;
use lumos_http::AccessPolicy;
use lumos_tasks::{Placement, Role};

use super::{EngineSettings, OpenAiSettings};
use crate::hub::HubSettings;

/// Settings for finding and loading models. Only the engine's precision is part of a model's identity.
#[derive(Debug, Clone, Default)]
pub struct ModelsSettings {
    /// How engines are loaded.
    pub engine: EngineSettings,
    /// Device of each role's models.
    pub placement: Placement,
    /// Data type of the weights by role, if it differs from the engine's.
    pub dtypes: BTreeMap<Role, DType>,
    /// Settings of model servers; from the environment if `None`.
    pub openai: Option<OpenAiSettings>,
    /// Settings of the hub; from the environment if `None`.
    pub hub: Option<HubSettings>,
    /// Whether hub models are only accepted at a commit, as in planned runs, so that a missing local folder
    /// on a worker's host is not looked up on the hub.
    pub pinned_only: bool,
    /// Duration of each recorded reply. Simulates slow models in rehearsals of a fleet.
    pub script_latency: Option<Duration>,
    /// Names that differ on this host, from the name a run was planned with to the local name.
    pub names: BTreeMap<String, String>,
    /// Which files and servers models may be loaded from, except those in [`ModelsSettings::names`].
    pub access: AccessPolicy,
}

impl From<EngineSettings> for ModelsSettings {
    fn from(engine: EngineSettings) -> Self {
        Self { placement: Placement::on(engine.device), engine, ..Self::default() }
    }
}

impl ModelsSettings {
    /// Returns the settings for loading the engine of a role.
    pub(super) fn engine_of(&self, role: Role) -> EngineSettings {
        let dtype = self.dtypes.get(&role).copied().unwrap_or(self.engine.dtype);
        EngineSettings { dtype, device: self.placement.of(role), ..self.engine }
    }

    /// Returns the name on this host for a planned name.
    pub(super) fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.get(name).map_or(name, String::as_str)
    }
}
