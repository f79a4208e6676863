//! Damaged and missing files, full disks and memory limits: recorded data is restored or its loss is
//! reported, readers change nothing, and no message advises deleting anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{content, expect, lumos, run, text};

/// Thirty items in two formulations.
const UNITS: u64 = 60;

/// Performs a complete run.
fn complete(folder: &Path) -> PathBuf {
    let output_path = folder.to_str().unwrap();
    let tasks = ["--tasks", "svamp", "--model", "builtin:tiny", "--formulation", "iterative,onetime"];
    expect(0, &[&["run"], &tasks[..], &["--output-path", output_path, "--name", "sample"]].concat());
    folder.join("sample")
}

/// Returns every file in a folder with its content.
fn all(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 0x20;
    fs::write(file, bytes).unwrap();
}

/// Asserts that a message does not advise deleting anything.
fn assert_no_bad_advice(stderr: &str) {
    for word in ["delete", "start over", "remove the"] {
        assert!(!stderr.contains(word), "{stderr}");
    }
}

#[test]
fn readers_change_nothing_and_read_a_damaged_checkpoint_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    let name = run_folder.to_str().unwrap();
    let whole = expect(0, &["report", name, "--format", "json"]).0;
    let checkpoint = run_folder.join("checkpoint");
    let read_all = |what: &str| {
        let before = all(&checkpoint);
        for arguments in [
            &["report", name, "--format", "json"][..],
            &["show", name, "3"],
            &["score", name],
            &["ls", "--output-path", folder.path().to_str().unwrap()],
        ] {
            let (stdout, stderr) = expect(0, arguments);
            assert_no_bad_advice(&stderr);
            if arguments[0] == "report" {
                assert_eq!(stdout, whole, "{what}: {stderr}");
            }
            assert!(all(&checkpoint) == before, "{what}: {arguments:?} wrote to the checkpoint");
        }
    };
    read_all("whole");
    // An unfinished snapshot of the database, as left by a full disk.
    fs::write(checkpoint.join("snap.FFFFFFFFFFFFFFF0.generating"), b"").unwrap();
    read_all("unfinished snapshot");
    let db = checkpoint.join("db");
    flip(&db, fs::metadata(&db).unwrap().len() as usize / 2);
    read_all("database");
    expect(0, &["repair", name]);
    read_all("repaired");
    let journal = checkpoint.join("journal");
    flip(&journal, fs::metadata(&journal).unwrap().len() as usize / 2);
    read_all("journal");
    let (_, stderr) = expect(0, &["report", name]);
    assert!(stderr.contains("restored from the database") && stderr.contains("lumos repair"), "{stderr}");
    fs::remove_file(&journal).unwrap();
    read_all("without a journal");
}

#[test]
fn damage_is_said_with_numbers_and_repaired_by_resume_and_repair() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    let name = run_folder.to_str().unwrap();
    let before = content(&run_folder);
    let checkpoint = run_folder.join("checkpoint");

    let (stdout, stderr) = expect(0, &["repair", name]);
    assert!(stdout.contains("both copies of the checkpoint are intact"), "{stdout}");
    assert!(stdout.contains("30 items, 60 units settled"), "{stdout}");
    assert_eq!(stderr, "");

    // The database silently loses everything, as sled does when certain bits are damaged.
    fs::remove_file(checkpoint.join("db")).unwrap();
    let (_, stderr) = expect(0, &["resume", name]);
    assert!(stderr.contains(&format!("30 items, {UNITS} outcomes")), "{stderr}");
    assert!(stderr.contains("restored from the journal"), "{stderr}");
    assert!(stderr.contains(&format!("{UNITS} already settled")), "{stderr}");
    assert_no_bad_advice(&stderr);

    // Half of the journal is lost.
    let journal = checkpoint.join("journal");
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() / 2]).unwrap();
    let (stdout, stderr) = expect(0, &["repair", name]);
    assert!(stdout.contains("repaired, nothing lost"), "{stdout}");
    assert!(stderr.contains("restored from the database") && stderr.contains("kept in"), "{stderr}");
    assert_eq!(content(&run_folder), before);

    // Both copies lose data: the loss is reported exactly, and the affected units run again.
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 1000]).unwrap();
    fs::remove_file(checkpoint.join("db")).unwrap();
    let (stdout, stderr) = expect(5, &["repair", name]);
    assert!(stdout.contains("except for entries lost in both copies"), "{stdout}");
    assert!(stderr.contains("lost in both copies") && stderr.contains("lumos resume"), "{stderr}");
    assert_no_bad_advice(&stderr);
    let settled: u64 = number_before(&stdout, " units settled");
    let lost: u64 = number_before(stderr.split("lost in both copies").nth(1).unwrap(), " outcome");
    assert_eq!(settled + lost, UNITS, "{stdout}\n{stderr}");
    let (_, stderr) = expect(0, &["resume", name]);
    assert!(stderr.contains(&format!("{settled} already settled")), "{stderr}");
    assert_eq!(content(&run_folder), before);
}

/// Returns the number before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap();
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn items_that_both_copies_lost_are_planned_again() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    let name = run_folder.to_str().unwrap();
    let before = content(&run_folder);
    let checkpoint = run_folder.join("checkpoint");
    fs::remove_file(checkpoint.join("db")).unwrap();
    // Items come first in the journal.
    let journal = checkpoint.join("journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[64..1064].fill(0);
    fs::write(&journal, bytes).unwrap();
    let (_, stderr) = expect(5, &["repair", name]);
    assert!(stderr.contains("lost in both copies") && stderr.contains(" item"), "{stderr}");
    expect(0, &["resume", name]);
    assert_eq!(content(&run_folder), before);
    let (stdout, _) = expect(0, &["repair", name]);
    assert!(stdout.contains("intact; 30 items, 60 units settled"), "{stdout}");
}

/// Runs the program with a limit on its address space in KiB. Returns `None` if it did not end.
#[cfg(target_os = "linux")]
fn limited(kibibytes: u64, arguments: &[&str]) -> Option<Output> {
    limited_while(kibibytes, arguments, |_| {})
}

/// As [`limited`], and calls `meanwhile` repeatedly until the program has ended.
#[cfg(target_os = "linux")]
fn limited_while(
    kibibytes: u64,
    arguments: &[&str],
    meanwhile: impl Fn(&std::process::Child),
) -> Option<Output> {
    let program = lumos();
    let mut command = Command::new("sh");
    for (name, value) in program.get_envs() {
        if value.is_none() {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(["-c", "ulimit -v $0 && exec \"$@\"", &kibibytes.to_string()])
        .arg(program.get_program())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(600) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        meanwhile(&child);
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(child.wait_with_output().unwrap())
}

/// Limits between "cannot start" and "sufficient", at which every allocation fails at some point.
#[cfg(target_os = "linux")]
#[test]
fn under_a_memory_limit_it_ends_with_the_reason_and_nothing_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    let name = run_folder.to_str().unwrap();
    let before = content(&run_folder);
    let mut refused = 0;
    for kibibytes in (260_000..=440_000).step_by(10_000) {
        let begun = format!("begun-{kibibytes}");
        let begin = ["run", "--tasks", "svamp", "--model", "builtin:tiny", "--limit", "2", "--output-path"];
        let begin = [&begin[..], &[folder.path().to_str().unwrap(), "--name", &begun]].concat();
        for arguments in [&["report", name][..], &["resume", name], &["repair", name], &begin] {
            let command = arguments[0];
            let output = limited(kibibytes, arguments);
            let (code, _, stderr) =
                text(&output.unwrap_or_else(|| panic!("{command} hangs at {kibibytes} KiB")));
            assert!(!stderr.contains("damaged"), "{command} at {kibibytes} KiB: {stderr}");
            assert_no_bad_advice(&stderr);
            if code != 0 {
                refused += 1;
                assert_eq!(code, 1, "{command} at {kibibytes} KiB: {stderr}");
                assert!(stderr.contains("memory"), "{command} at {kibibytes} KiB: {stderr}");
                assert!(stderr.contains("hint: ") && stderr.contains("ulimit -v"), "{stderr}");
            }
        }
    }
    assert!(refused > 0, "no limit was too low");
    let (stdout, stderr) = expect(0, &["repair", name]);
    assert!(stdout.contains("intact; 30 items, 60 units settled"), "{stdout}\n{stderr}");
    expect(0, &["resume", name]);
    assert_eq!(content(&run_folder), before);
}

/// glibc aborts if it cannot register a destructor of a thread, and a stack that cannot grow is a segmentation fault.
/// Both depend on the exact limit, so the signals are sent here.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_for_lack_of_memory_is_an_error_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let output_path = folder.path().to_str().unwrap();
    for signal in ["ABRT", "SEGV", "BUS"] {
        let tasks = [
            "run",
            "--tasks",
            "all",
            "--model",
            "builtin:tiny",
            "--output-path",
            output_path,
            "--name",
            signal,
        ];
        let run_folder = folder.path().join(signal);
        let send = |child: &std::process::Child| {
            if run_folder.join("manifest.json").exists() {
                Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
            }
        };
        let (code, _, stderr) = text(&limited_while(4_000_000, &tasks, send).expect("the run hangs"));
        assert_eq!(code, 1, "{signal}: {stderr}");
        assert!(stderr.contains("out of memory") && stderr.contains("hint: "), "{signal}: {stderr}");
        assert_no_bad_advice(&stderr);
        expect(0, &["resume", run_folder.to_str().unwrap()]);
    }
}

/// With some of these limits no thread can be started, in which case tokio panics.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_started_are_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let output_path = folder.path().to_str().unwrap();
    let tasks =
        ["run", "--dry-run", "--tasks", "svamp", "--model", "builtin:tiny", "--output-path", output_path];
    for kibibytes in (180_000..=260_000).step_by(5_000) {
        let output = limited(kibibytes, &tasks).unwrap_or_else(|| panic!("the run hangs at {kibibytes} KiB"));
        let (code, _, stderr) = text(&output);
        assert!(matches!(code, 0..=2) && !stderr.contains("panicked"), "{code} at {kibibytes} KiB: {stderr}");
        assert!(code == 0 || stderr.contains("error: "), "{kibibytes} KiB: {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_start_on_a_full_disk_leaves_a_run_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let Some(_disk) = crate::disk::SmallDisk::mount(&small, 8 << 10) else { return };
    let run_folder = complete(&small);
    let name = run_folder.to_str().unwrap();
    let whole = expect(0, &["report", name, "--format", "json"]).0;
    let filler = small.join("filler");
    for left in [0, 4096, 64 << 10] {
        // Fill the disk completely.
        let mut out = fs::File::create(&filler).unwrap();
        while std::io::Write::write(&mut out, &[1; 4096]).is_ok() {}
        let length = out.metadata().unwrap().len();
        out.set_len(length.saturating_sub(left)).unwrap();
        drop(out);
        for command in ["report", "resume", "report", "repair"] {
            let (code, _, stderr) = text(&run(&[command, name]));
            assert_no_bad_advice(&stderr);
            assert!(!stderr.contains("damaged"), "{command} with {left} bytes left: {stderr}");
            if command == "report" {
                assert_eq!(code, 0, "{stderr}");
            } else if code != 0 {
                assert_eq!(code, 1, "{stderr}");
                assert!(stderr.contains("free disk space"), "{command} with {left} bytes left: {stderr}");
            }
        }
        fs::remove_file(&filler).unwrap();
        expect(0, &["resume", name]);
        let (stdout, stderr) = expect(0, &["report", name, "--format", "json"]);
        assert_eq!((stdout, stderr.as_str()), (whole.clone(), ""), "with {left} bytes left");
    }
}

#[test]
fn temporary_files_of_killed_processes_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    for name in ["manifest.json.4242.tmp", "results_2025.json.17.tmp", "samples_svamp_2025.jsonl.17.tmp"] {
        fs::write(run_folder.join(name), b"half").unwrap();
    }
    expect(0, &["score", run_folder.to_str().unwrap()]);
    let left: Vec<_> = fs::read_dir(&run_folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn scorings_that_were_edited_out_of_the_manifest_are_reported_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = complete(folder.path());
    let name = run_folder.to_str().unwrap();
    let (whole, _) = expect(0, &["report", name]);
    let file = run_folder.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(manifest["spec"]["scoring"], serde_json::json!(["paper", "corrected"]));
    manifest["spec"]["scoring"] = serde_json::json!(["corrected"]);
    fs::write(&file, manifest.to_string()).unwrap();
    let (stdout, stderr) = expect(0, &["report", name]);
    assert_eq!(stdout, whole);
    assert!(stderr.contains("manifest.json: `scoring` was changed to [corrected]"), "{stderr}");
    assert!(stderr.contains("[paper, corrected]"), "{stderr}");
    let (_, stderr) = expect(0, &["report", name, "--scoring", "corrected"]);
    assert!(stderr.contains("`scoring` was changed"), "{stderr}");
}

/// Checks the messages in all sources except tests.
#[test]
fn no_message_advises_to_delete_what_was_recorded() {
    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "tests" {
                    look(&path, found);
                }
            } else if name.ends_with(".rs") && !name.contains("tests") {
                let source = fs::read_to_string(&path).unwrap();
                for (number, line) in source.lines().enumerate() {
                    let line = line.to_lowercase();
                    let advice = [
                        "start over",
                        "delete the",
                        "delete that",
                        "delete it",
                        "remove the folder",
                        "rm -r",
                    ];
                    let comment = line.trim_start().starts_with("//");
                    if !comment && advice.iter().any(|advice| line.contains(advice)) {
                        found.push(format!("{}:{}: {line}", path.display(), number + 1));
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    let folders =
        ["src", "coordinator/src", "queue/src", "worker/src", "models/src", "tools/src", "http/src"];
    for folder in folders.iter().chain(&["benchmarks/src", "engine/src"]) {
        look(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}
