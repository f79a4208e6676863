//! The kernels under ThreadSanitizer, with a thread of the host for each thread of a block.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cuda::emulator::{NO_COMPILER, compile};

/// The program, unless this machine cannot compile it.
fn program() -> Option<PathBuf> {
    match compile("races", 2, &["-fsanitize=thread", "-pthread"]) {
        Ok(program) => Some(program),
        Err(reason) if reason.starts_with(NO_COMPILER) || reason.contains("tsan") => {
            lumos_capabilities::skip(lumos_capabilities::Capability::Cxx, &reason);
            None
        }
        Err(reason) => panic!("{reason}"),
    }
}

/// The output of the program, with one barrier of every thread left out; `None` if this machine cannot run it.
fn run(program: &Path, dropped: Option<u32>) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(dropped.map(|barrier| barrier.to_string()));
    let output = command.env("TSAN_OPTIONS", "exitcode=66 halt_on_error=1").output().unwrap();
    // ThreadSanitizer does not start with some layouts of the address space.
    if String::from_utf8_lossy(&output.stderr).contains("FATAL: ThreadSanitizer") {
        lumos_capabilities::skip(
            lumos_capabilities::Capability::Cxx,
            "ThreadSanitizer does not run on this machine",
        );
        return None;
    }
    Some(output)
}

#[test]
fn the_kernels_have_no_races() {
    let Some(program) = program() else { return };
    let Some(output) = run(&program, None) else { return };
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]), "{output:?}");
    // The test sees that a barrier is missing.
    let output = run(&program, Some(3)).unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("data race"), "{output:?}");
}
