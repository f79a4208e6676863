//! The small trained planner and grounder that ship within the binary (`training/tiny` made them).

use lumos_engine::{ModelFiles, ModelSource};
use lumos_tasks::{Formulation, Role};

use super::files::ModelFile;

macro_rules! embedded {
    ($folder:literal) => {
        ModelFiles {
            config: include_bytes!(concat!("../../assets/tiny/", $folder, "/config.json")),
            tokenizer: include_bytes!(concat!("../../assets/tiny/", $folder, "/tokenizer.json")),
            weights: include_bytes!(concat!("../../assets/tiny/", $folder, "/model.safetensors")),
        }
    };
}

static PLANNER_ITERATIVE: ModelFiles = embedded!("planner-iterative");
static PLANNER_ONETIME: ModelFiles = embedded!("planner-onetime");
static GROUNDER: ModelFiles = embedded!("grounder");

/// The files that serve a role. As with the published checkpoints there is a planner for each formulation; the
/// grounder serves both. There is no single answerer.
pub(super) fn files(role: Role, formulation: Formulation) -> Option<&'static ModelFiles> {
    match (role, formulation) {
        (Role::Answerer | Role::Qa | Role::Judge, _) => None,
        (Role::Grounder, _) => Some(&GROUNDER),
        (Role::Planner, Formulation::OneTime) => Some(&PLANNER_ONETIME),
        (Role::Planner, _) => Some(&PLANNER_ITERATIVE),
    }
}

/// The embedded model that serves a role under a formulation, where there is one.
pub fn source(role: Role, formulation: Formulation) -> Option<ModelSource> {
    files(role, formulation).map(|files| ModelSource::Memory(*files))
}

/// The embedded files, for the model's identity.
pub(super) fn listed(files: &ModelFiles) -> Vec<ModelFile> {
    vec![
        ModelFile::embedded("config.json", files.config),
        ModelFile::embedded("model.safetensors", files.weights),
        ModelFile::embedded("tokenizer.json", files.tokenizer),
    ]
}
