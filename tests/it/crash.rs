//! Runs that are killed at random times, interrupted, or out of disk space: nothing is lost or recorded
//! twice.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use crate::disk::SmallDisk;
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

/// Asserts that the samples contain every unit exactly once.
fn assert_complete(folder: &Path) {
    let (samples, _) = content(folder);
    let units: Vec<_> =
        samples.values().flatten().map(|row| row["unit"].as_str().unwrap().to_owned()).collect();
    assert_eq!(units.len(), UNITS);
    assert_eq!(units.iter().collect::<HashSet<_>>().len(), UNITS, "no unit is recorded twice");
}

/// Returns random times, which differ between runs of the test. A failure prints them.
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

    // Spread over the duration of a whole run, so that kills hit planning, the middle and the end.
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

/// Waits until a run publishes units and therefore handles signals. Returns the rest of its output.
#[cfg(unix)]
fn wait_until_running(child: &mut Child) -> impl std::io::BufRead + use<> {
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" units in ") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert!(read > 0, "the run ended before it was interrupted");
    }
    said
}

/// Returns the rest of a run's output and its exit code.
#[cfg(unix)]
fn ended(mut child: Child, mut said: impl std::io::BufRead) -> (i32, String) {
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), text)
}

#[cfg(unix)]
#[test]
fn interrupted_it_drains_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    finish(folder.path(), "whole");
    let mut child = start(folder.path(), "interrupted");
    let said = wait_until_running(&mut child);
    signal(&child, "-INT");
    let (code, stderr) = ended(child, said);
    // On a fast machine the run may have finished before the signal.
    if code != 0 {
        assert_eq!(code, 130, "{stderr}");
        let (_, said) = stderr.split_once("interrupted: waiting for ").unwrap_or_else(|| panic!("{stderr}"));
        let episodes: usize = said.split_whitespace().next().unwrap().parse().unwrap();
        assert!(episodes <= 8, "no more than were in progress: {stderr}");
        assert!(said.contains(" in progress"), "{stderr}");
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
    let said = wait_until_running(&mut child);
    signal(&child, "-TERM");
    signal(&child, "-INT");
    let (code, stderr) = ended(child, said);
    assert!(matches!(code, 130 | 0), "{code}: {stderr}");
    finish(folder.path(), "stopped");
    assert_complete(&folder.path().join("stopped"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_with_a_message_and_space_lets_it_go_on() {
    let folder = tempfile::tempdir().unwrap();
    finish(folder.path(), "whole");
    // Not enough for the checkpoint; enough for the checkpoint but not for the results.
    for kilobytes in [240, 640] {
        let small = folder.path().join(format!("small-{kilobytes}"));
        let Some(disk) = SmallDisk::mount(&small, kilobytes) else { return };
        let began = Instant::now();
        let (code, _, stderr) = text(&start(&small, "full").wait_with_output().unwrap());
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("full/") && stderr.contains("free disk space"), "{stderr}");
        assert!(began.elapsed() < Duration::from_secs(120), "the run did not end");
        disk.grow();
        finish(&small, "full");
        assert_complete(&small.join("full"));
        assert_eq!(content(&folder.path().join("whole")), content(&small.join("full")));
    }
}
