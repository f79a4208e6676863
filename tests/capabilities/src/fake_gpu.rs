//! A GPU without hardware: CUDA's driver, cuBLAS and NVRTC as one library that computes on the CPU.
//!
//! Its source is `engine/src/cuda/emulator/fake_driver.cpp`, which documents its rules and its environment variables.
//! [`fake_gpu`] compiles it once per version of the sources and returns the folder for `LD_LIBRARY_PATH`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Capability, skip};

const SOURCES: [&str; 7] = [
    "emulator/fake_driver.cpp",
    "emulator/threads.hpp",
    "emulator/intrinsics.hpp",
    "emulator/tensor_cores.hpp",
    "kernels.cu",
    "attention.cu",
    "sampling.cu",
];
/// The names under which programs look for the three libraries.
const NAMES: [&str; 3] = ["libcuda.so", "libcublas.so", "libnvrtc.so"];

/// The folder with the libraries of a fake GPU; `None` (and the test is skipped) without a C++ compiler.
///
/// # Panics
/// Panics if the compiler rejects the source; and as [`skip`].
#[track_caller]
pub fn fake_gpu() -> Option<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOLDER.get_or_init(compiled) {
        Ok(folder) => Some(folder.clone()),
        Err(reason) => {
            skip(Capability::Cxx, reason);
            None
        }
    }
}

/// The folder, or why a compiler is not available.
fn compiled() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = root.join("engine/src/cuda");
    let mut version = 0xcbf2_9ce4_8422_2325_u64;
    for file in SOURCES {
        let text = std::fs::read(source.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        version =
            text.iter().fold(version, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
    let folder = root.join(format!("target/fake-gpu/{version:016x}"));
    if folder.join(NAMES[2]).exists() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).unwrap();
    // One test program compiles it, others wait.
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    if folder.join(NAMES[2]).exists() {
        return Ok(folder);
    }
    let library = folder.join(format!("building-{}", std::process::id()));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let output = Command::new(&compiler)
        .args(["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"])
        .args(["-Wno-unknown-pragmas", "-I"])
        .arg(&source)
        .arg(source.join(SOURCES[0]))
        .arg("-o")
        .arg(&library)
        .output()
        .map_err(|error| format!("cannot run the C++ compiler `{compiler}` ({error})"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Each name appears at once, the last one behind the others.
    let common = folder.join("libfake.so");
    std::fs::rename(&library, &common).unwrap();
    for name in NAMES {
        let own = folder.join(format!("{name}-{}", std::process::id()));
        std::os::unix::fs::symlink("libfake.so", &own).unwrap();
        std::fs::rename(&own, folder.join(name)).unwrap();
    }
    Ok(folder)
}
