//! The small trained planner and grounder embedded in the binary (created by `training/tiny`).

use lumos_engine::{ModelFiles, ModelSource};
use lumos_tasks::{Formulation, Role};

use crate::files::ModelFile;

macro_rules! embedded {
    ($folder:literal) => {
        ModelFiles {
            config: include_bytes!(concat!("../assets/tiny/", $folder, "/config.json")),
            tokenizer: include_bytes!(concat!("../assets/tiny/", $folder, "/tokenizer.json")),
            weights: include_bytes!(concat!("../assets/tiny/", $folder, "/model.safetensors")),
        }
    };
}

static PLANNER_ITERATIVE: ModelFiles = embedded!("planner-iterative");
static PLANNER_ONETIME: ModelFiles = embedded!("planner-onetime");
static GROUNDER: ModelFiles = embedded!("grounder");

/// Returns the files that serve a role. As with the published checkpoints, there is a planner for each
/// formulation, and one grounder for both. Questions of the QA tool also go to the planner, which was not
/// trained on them: a run works without another model, but the answers are meaningless. There is no answerer
/// and no judge.
pub(super) fn files(role: Role, formulation: Formulation) -> Option<&'static ModelFiles> {
    match (role, formulation) {
        (Role::Answerer | Role::Judge, _) => None,
        (Role::Grounder, _) => Some(&GROUNDER),
        (Role::Planner, Formulation::OneTime) => Some(&PLANNER_ONETIME),
        (Role::Planner | Role::Qa, _) => Some(&PLANNER_ITERATIVE),
    }
}

/// Returns the embedded model that serves a role under a formulation, if there is one.
pub fn source(role: Role, formulation: Formulation) -> Option<ModelSource> {
    files(role, formulation).map(|files| ModelSource::Memory(*files))
}

/// Total size of the embedded files in bytes.
pub fn bytes() -> u64 {
    let of = |files: &ModelFiles| files.config.len() + files.tokenizer.len() + files.weights.len();
    [&PLANNER_ITERATIVE, &PLANNER_ONETIME, &GROUNDER].into_iter().map(of).sum::<usize>() as u64
}

/// Returns the embedded files for the model's identity.
pub(super) fn listed(files: &ModelFiles) -> Vec<ModelFile> {
    vec![
        ModelFile::embedded("config.json", files.config),
        ModelFile::embedded("model.safetensors", files.weights),
        ModelFile::embedded("tokenizer.json", files.tokenizer),
    ]
}
