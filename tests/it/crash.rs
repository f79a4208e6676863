//! Killed at random moments, interrupted, out of disk: nothing recorded is lost, nothing is recorded twice.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{content, expect, lumos, text};

const TASKS: [&str; 6] =
    ["--tasks", "gsm8k,svamp", "--model", "builtin:tiny", "--formulation", "iterative,onetime"];

/// 30 items of each benchmark under two formulations.
const UNITS: usize = 120;

fn start(folder: &Path, name: &str) -> Child {
    let output_path = folder.to_str().unwrap();
    lumos()
        .arg("run")
        .args(TASKS)
        .args(["--output-path", output_path, "--name", name, "--batch-size", "8"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(folder: &Path, name: &str) {
    let output = start(folder, name).wait_with_output().unwrap();
    let (code, _, stderr) = text(&output);
    assert_eq!(code, 0, "{stderr}");
}

/// Every unit stands in the samples, once.
fn assert_complete(folder: &Path) {
    let (samples, _) = content(folder);
    let units: Vec<_> =
        samples.values().flatten().map(|row| row["unit"].as_str().unwrap().to_owned()).collect();
    assert_eq!(units.len(), UNITS);
    assert_eq!(units.iter().collect::<HashSet<_>>().len(), UNITS, "no unit is recorded twice");
}

/// A small generator of our own: the moments differ from run to run, and a failure says which they were.
fn moments(span: Duration, count: usize) -> Vec<Duration> {
    let mut state =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            span.mul_f64((state >> 33) as f64 / f64::from(1u32 << 31))
        })
        .collect()
}

#[test]
fn killed_twenty_times_it_ends_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    finish(folder.path(), "whole");
    let whole = began.elapsed();
    assert_complete(&folder.path().join("whole"));

    // Spread over the length of a whole run, so that kills hit planning, the middle and the end.
    let moments = moments(whole.div_f64(3.0), 20);
    for moment in &moments {
        let mut child = start(folder.path(), "killed");
        std::thread::sleep(*moment);
        let _ = child.kill();
        child.wait().unwrap();
    }
    finish(folder.path(), "killed");
    assert_complete(&folder.path().join("killed"));
    assert_eq!(
        content(&folder.path().join("whole")),
        content(&folder.path().join("killed")),
        "killed after {moments:?}"
    );
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits until a run has recorded something.
#[cfg(unix)]
fn wait_until_recording(folder: &Path, child: &mut Child) {
    let began = Instant::now();
    while !folder.join("checkpoint/db").exists() && !folder.join("checkpoint/blobs").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the run did not begin");
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(150));
}

#[cfg(unix)]
#[test]
fn interrupted_it_drains_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    finish(folder.path(), "whole");
    let mut child = start(folder.path(), "interrupted");
    wait_until_recording(&folder.path().join("interrupted"), &mut child);
    signal(&child, "-INT");
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    // A machine so fast that all is done by then has nothing to drain.
    if code != 0 {
        assert_eq!(code, 130, "{stderr}");
        assert!(stderr.contains("waiting for"), "{stderr}");
    }
    let run = folder.path().join("interrupted");
    expect(0, &["resume", run.to_str().unwrap()]);
    assert_complete(&run);
    assert_eq!(content(&folder.path().join("whole")), content(&run));
}

#[cfg(unix)]
#[test]
fn interrupted_twice_it_stops_at_once_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "stopped");
    wait_until_recording(&folder.path().join("stopped"), &mut child);
    signal(&child, "-TERM");
    signal(&child, "-INT");
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    assert!(matches!(code, 130 | 0), "{code}: {stderr}");
    finish(folder.path(), "stopped");
    assert_complete(&folder.path().join("stopped"));
}

/// A file system of a few hundred kilobytes; `None` where mounting one is not allowed.
#[cfg(target_os = "linux")]
struct SmallDisk(std::path::PathBuf);

#[cfg(target_os = "linux")]
impl SmallDisk {
    fn mount(folder: &Path, kilobytes: u32) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "tmpfs"])
            .arg(folder)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(folder.to_owned()))
    }

    fn grow(&self) {
        let status = std::process::Command::new("mount")
            .args(["-o", "remount,size=200m"])
            .arg(&self.0)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_with_a_message_and_space_lets_it_go_on() {
    let folder = tempfile::tempdir().unwrap();
    finish(folder.path(), "whole");
    // Too little for the checkpoint, and enough for that but not for the results.
    for kilobytes in [240, 640] {
        let small = folder.path().join(format!("small-{kilobytes}"));
        let Some(disk) = SmallDisk::mount(&small, kilobytes) else {
            eprintln!("skipped: no small file system can be mounted here");
            return;
        };
        let began = Instant::now();
        let (code, _, stderr) = text(&start(&small, "full").wait_with_output().unwrap());
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("full/") && stderr.contains("free some space"), "{stderr}");
        assert!(began.elapsed() < Duration::from_secs(120), "it exits by itself");
        disk.grow();
        finish(&small, "full");
        assert_complete(&small.join("full"));
        assert_eq!(content(&folder.path().join("whole")), content(&small.join("full")));
    }
}
