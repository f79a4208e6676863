//! Finds the run that a command refers to.

use std::path::{Component, Path, PathBuf};

use clap::Args;

use crate::exit::Failure;

/// The folder in which run names are looked up.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunsArgs {
    /// Look up run names in this folder
    #[arg(long, value_name = "PATH", default_value = "runs", env = "LUMOS_OUTPUT_PATH")]
    pub(crate) output_path: PathBuf,
}

impl RunsArgs {
    /// Returns the folder of a run, given by path or by name: an existing path, otherwise the folder with that name
    /// in the output path.
    ///
    /// # Errors
    /// If neither exists.
    pub(crate) fn folder(&self, run: &Path) -> Result<PathBuf, Failure> {
        if run.exists() {
            return Ok(run.to_owned());
        }
        let mut parts = run.components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        let below = self.output_path.join(run);
        match is_name {
            true if below.exists() => Ok(below),
            true => Err(not_found(run, &format!("neither {} nor {} exists", run.display(), below.display()))),
            false => Err(not_found(run, "no such folder")),
        }
    }
}

fn not_found(run: &Path, why: &str) -> Failure {
    Failure::input(format!("run `{}` not found: {why}", run.display())).hint("list the runs: lumos ls")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_exists_comes_before_a_name_below_the_output_path() {
        let folder = tempfile::tempdir().unwrap();
        let runs = RunsArgs { output_path: folder.path().to_owned() };
        std::fs::create_dir(folder.path().join("mine")).unwrap();
        assert_eq!(runs.folder(Path::new("mine")).unwrap(), folder.path().join("mine"));
        assert_eq!(runs.folder(&folder.path().join("mine")).unwrap(), folder.path().join("mine"));
        // Tests run in the package's folder, which has one of that name.
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert_eq!(runs.folder(Path::new("src")).unwrap(), Path::new("src"));
        let refused = |run: &str| runs.folder(Path::new(run)).unwrap_err().error.to_string();
        assert!(refused("yours").contains("neither yours nor") && refused("yours").contains("run `yours`"));
        // Only names are looked up there.
        std::fs::create_dir(folder.path().join("mine/inner")).unwrap();
        assert!(refused("mine/inner").contains("no such folder"));
        assert!(refused("../mine/../nowhere").contains("no such folder"));
    }
}
