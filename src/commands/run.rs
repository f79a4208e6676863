//! `lumos run` and `lumos resume`.

use std::path::{Path, PathBuf};

use lumos_coordinator::Checkpoint;
use lumos_coordinator::manifest::Manifest;

use crate::cli::{EngineArgs, ResumeArgs, RunArgs, Verbosity};
use crate::exit::{CommandResult, Failure};
use crate::pipeline::{Executor, Options, Plan, Run, Spec, is_planned, manifest_failure, open_checkpoint};
use crate::{fleet, settings, writable};

pub(crate) async fn run(arguments: &RunArgs, verbosity: Verbosity) -> CommandResult {
    if arguments.bench.is_some() || arguments.like.is_some() {
        return Err(Failure::input("--bench and --like estimate a plan and need --dry-run")
            .hint("add --dry-run to print the plan without running it"));
    }
    let spec = Spec::of(arguments, verbosity)?.with_fleet(&arguments.fleet).await?;
    Plan::of(spec).await?.open().await?.finish().await
}

pub(crate) async fn resume(arguments: &ResumeArgs, verbosity: Verbosity) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let mut manifest = Manifest::read(&folder).map_err(manifest_failure)?;
    manifest.check_program().map_err(Failure::usage)?;
    writable::check_folder(&folder, None)?;
    arguments.record.as_deref().map_or(Ok(()), writable::check_file)?;
    // Memory settings of this command replace those of the run.
    let (spec, memory) = (&mut manifest.spec, &arguments.memory);
    spec.memory = memory.memory.or(spec.memory);
    spec.swap = memory.swap.unwrap_or(spec.swap);
    spec.concurrency = memory.concurrency.or(spec.concurrency);
    let options = Options {
        verbosity,
        json: arguments.json,
        record: arguments.record.clone(),
        fail_under: None,
        screenshots: arguments.screenshots,
        stall_warning: fleet::stall_warning(&arguments.fleet)?,
    };
    let mut resolved = manifest.spec.clone();
    (resolved.output_path, resolved.name) = named(&folder)?;
    let checkpoint = open_checkpoint(&folder, Checkpoint::create, options.stall_warning).await?;
    let checkpoint = match is_planned(&manifest, &checkpoint) {
        Ok(true) => Some(checkpoint),
        Ok(false) => {
            checkpoint.close()?;
            None
        }
        Err(failure) => {
            checkpoint.abandon();
            return Err(failure);
        }
    };
    let engine = EngineArgs { speed: arguments.speed, ..EngineArgs::default() };
    let models = settings::models_of(&resolved, &engine, settings::Computes::of(&arguments.fleet))?;
    let executor = Executor::new(models, &resolved.folder(), options);
    let spec = Spec { resolved, executor }.with_fleet(&arguments.fleet).await?;
    let Some(checkpoint) = checkpoint else {
        // Planning was interrupted: plan again, using the folder's current name.
        return Plan::of(spec).await?.open().await?.finish().await;
    };
    let executor = spec.executor;
    executor.check_models(&manifest).await?;
    // Workers of a queue check their own tools.
    if executor.fleet.is_none() && checkpoint.settled() < manifest.planned() {
        executor.check_tools_of(&manifest).await?;
    }
    Executor::note_gpu(&manifest);
    Run { manifest, folder, checkpoint, executor, in_phases: None, budget: None }.finish().await
}

/// Returns the output path and the run's name for a folder.
fn named(folder: &Path) -> Result<(PathBuf, String), Failure> {
    let folder = folder.canonicalize()?;
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(Failure::input(format!("not a run folder: `{}`", folder.display())));
    };
    let name = name.to_str().ok_or_else(|| writable::not_utf8(&folder).hint("rename the folder"))?;
    Ok((parent.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_name_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (above, run) = (folder.path().canonicalize().unwrap(), folder.path().join("mine"));
        std::fs::create_dir(&run).unwrap();
        assert_eq!(named(&run).unwrap(), (above, "mine".to_owned()));
    }

    /// Other systems reject such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_whose_name_is_not_utf_8_is_refused() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir(&run).unwrap();
        let message = named(&run).unwrap_err().error.to_string();
        assert!(message.ends_with("caf\u{fffd}` is not UTF-8"), "{message}");
    }
}
