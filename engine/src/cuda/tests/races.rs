//! The kernels under ThreadSanitizer, with a thread of the host for each thread of a block.

use std::process::{Command, Output};

use crate::cuda::emulator::{NO_COMPILER, compile};

/// The output of the program, with one barrier of every thread left out; `None` if this machine cannot run it.
fn run(dropped: Option<u32>) -> Option<Output> {
    let dropped = dropped.map(|barrier| format!("-DDROPPED={barrier}"));
    let options =
        [&["-fsanitize=thread", "-pthread"][..], &dropped.as_deref().map_or(vec![], |text| vec![text])];
    let skip = |reason: &str| lumos_capabilities::skip(lumos_capabilities::Capability::Cxx, reason);
    let program = match compile("races", 2, &options.concat()) {
        Ok(program) => program,
        Err(reason) if reason.starts_with(NO_COMPILER) || reason.contains("tsan") => {
            skip(&reason);
            return None;
        }
        Err(reason) => panic!("{reason}"),
    };
    let output = Command::new(program).env("TSAN_OPTIONS", "exitcode=66").output().unwrap();
    // ThreadSanitizer does not start with some layouts of the address space.
    if String::from_utf8_lossy(&output.stderr).contains("FATAL: ThreadSanitizer") {
        skip("ThreadSanitizer does not run on this machine");
        return None;
    }
    Some(output)
}

#[test]
fn the_kernels_have_no_races() {
    let Some(output) = run(None) else { return };
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]), "{output:?}");
    // The test sees that a barrier is missing.
    let output = run(Some(3)).unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("data race"), "{output:?}");
}
