//! A complete run, made once per process. Each test gets a copy of its own, which it may change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{all, lumos};

/// Number of units of [`finished_run`]: the thirty samples of SVAMP in two formulations.
pub(crate) const UNITS: u64 = 60;

/// Files of the run by path, and its folders without content.
static RUN: LazyLock<BTreeMap<PathBuf, Option<Vec<u8>>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = "run --tasks svamp --model builtin:tiny --formulation iterative,onetime";
    lumos().args(run).output(folder.path(), "sample").ok();
    let run = folder.path().join("sample");
    all(&run).into_iter().map(|(path, file)| (path.strip_prefix(&run).unwrap().to_owned(), file)).collect()
});

/// Copies the run `sample` into a folder. Returns the folder of the run.
pub(crate) fn finished_run(folder: &Path) -> PathBuf {
    let run = folder.join("sample");
    for (path, file) in &*RUN {
        match file {
            Some(content) => fs::write(run.join(path), content).unwrap(),
            None => fs::create_dir_all(run.join(path)).unwrap(),
        }
    }
    run
}
