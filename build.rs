//! Sets compile-time environment variables: the git revision, if available, for the program, and the target platform
//! for the tests.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/refs");
    if let Ok(target) = std::env::var("TARGET") {
        println!("cargo::rustc-env=LUMOS_TARGET={target}");
    }
    let revision = Command::new("git").args(["rev-parse", "HEAD"]).output();
    if let Ok(revision) = revision
        && revision.status.success()
    {
        println!("cargo::rustc-env=LUMOS_GIT_REVISION={}", String::from_utf8_lossy(&revision.stdout).trim());
    }
}
