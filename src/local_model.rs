//! Models that are computed in this process, by hand: which files a name means.

use std::path::Path;

use lumos_engine::{ModelSource, RotaryPrecision};
use lumos_tasks::{Formulation, Role};
use lumos_worker::ModelName;
use lumos_worker::hub::Hub;
use lumos_worker::model::{EngineSettings, builtin_source, locate};

use crate::exit::Failure;

/// What a name means for a role.
pub(crate) fn source(name: &str, role: Role, formulation: Formulation) -> Result<ModelSource, Failure> {
    let parsed: ModelName = name.parse().map_err(Failure::usage)?;
    match parsed {
        ModelName::Candle(path) => folder(&path),
        ModelName::Lumos(pair) => {
            let model = pair.resolve(role, formulation).map_err(Failure::input)?;
            folder(Path::new(&model.to_string()))
        }
        ModelName::BuiltinTiny => builtin_source(role, formulation)
            .ok_or_else(|| Failure::input(format!("builtin:tiny has no {role} for {formulation}"))),
        ModelName::OpenAi(_) => Err(Failure::input(format!(
            "{name} is a model of a server, and this command computes models in this process; give candle:<folder> \
             or builtin:tiny"
        ))),
        ModelName::Script(_) => {
            Err(Failure::input("a script generates nothing; give candle:<folder> or builtin:tiny"))
        }
    }
}

/// What is there, or the hub's model of that name. Blocks while it is downloaded.
fn folder(path: &Path) -> Result<ModelSource, Failure> {
    locate(path, &Hub::default(), false).map(|located| located.source).map_err(Failure::usage)
}

/// How a source is computed: the shipped models were trained and measured in full rotary precision.
pub(crate) fn settings_for(source: &ModelSource, settings: EngineSettings) -> EngineSettings {
    match source {
        ModelSource::Memory(_) => EngineSettings { rotary: RotaryPrecision::Full, ..settings },
        _ => settings,
    }
}
