//! Resolves the names of models that are computed in this process to their files.

use std::path::Path;

use lumos_engine::ModelSource;
use lumos_http::AccessPolicy;
use lumos_models::ModelName;
use lumos_models::hub::Hub;
use lumos_models::{builtin_source, locate};
use lumos_tasks::{Formulation, Role};

use crate::exit::Failure;

/// Returns the source of a model for a role.
pub(crate) fn source(name: &str, role: Role, formulation: Formulation) -> Result<ModelSource, Failure> {
    let parsed = ModelName::given(name).map_err(Failure::usage)?;
    match parsed {
        ModelName::Candle(path) => at(&path),
        ModelName::Lumos(pair) => {
            let model = pair.resolve(role, formulation).map_err(Failure::input)?;
            at(Path::new(&model.to_string()))
        }
        ModelName::BuiltinTiny => builtin_source(role, formulation)
            .ok_or_else(|| Failure::input(format!("builtin:tiny has no {role} for {formulation}"))),
        ModelName::OpenAi(_) => Err(Failure::input(format!(
            "unsupported model `{name}`: this command computes models in this process; pass candle:<folder> or \
             builtin:tiny"
        ))),
        ModelName::Script(_) => Err(Failure::input(format!(
            "unsupported model `{name}`: a script cannot generate; pass candle:<folder> or builtin:tiny"
        ))),
    }
}

/// Locates a local model or the hub's model of that name. Blocks during a download.
fn at(path: &Path) -> Result<ModelSource, Failure> {
    locate(path, &Hub::default(), false, &AccessPolicy::default())
        .map(|located| located.source)
        .map_err(Failure::usage)
}
