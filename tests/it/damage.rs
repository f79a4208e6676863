//! Damaged and missing files, full disks and memory limits: recorded data is restored or its loss is
//! reported, readers change nothing, and no message advises deleting anything.

use std::fs;
use std::path::Path;

use crate::support::{Ended, UNITS, all, content, finished_run, lumos, read_json, repository};
#[cfg(target_os = "linux")]
use crate::support::{limited, wait_until};

/// Runs a command on a run, which must end with a code and without advice to delete anything.
fn on(run: &Path, code: i32, command: &str) -> Ended {
    let ended = lumos().args(command).arg(run).exits(code);
    assert_no_bad_advice(&ended);
    ended
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 0x20;
    fs::write(file, bytes).unwrap();
}

/// Asserts that a message does not advise deleting anything.
fn assert_no_bad_advice(ended: &Ended) {
    for word in ["delete", "start over", "remove the"] {
        assert!(!ended.stderr.contains(word), "{ended}");
    }
}

#[test]
fn readers_change_nothing_and_read_a_damaged_checkpoint_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let whole = on(&run, 0, "report --format json").stdout;
    let checkpoint = run.join("checkpoint");
    let read_all = |what: &str| {
        let before = all(&checkpoint);
        let unchanged = |ended: &Ended| assert!(all(&checkpoint) == before, "{what}: {ended}");
        let report = on(&run, 0, "report --format json");
        assert_eq!(report.stdout, whole, "{what}: {report}");
        unchanged(&report);
        unchanged(&on(folder.path(), 0, "ls --output-path"));
        unchanged(&on(&run, 0, "score"));
        let show = lumos().args("show").arg(&run).args("3").ok();
        assert_no_bad_advice(&show);
        unchanged(&show);
    };
    read_all("whole");
    // An unfinished snapshot of the database, as left by a full disk.
    fs::write(checkpoint.join("snap.FFFFFFFFFFFFFFF0.generating"), b"").unwrap();
    read_all("unfinished snapshot");
    let db = checkpoint.join("db");
    flip(&db, fs::metadata(&db).unwrap().len() as usize / 2);
    read_all("database");
    on(&run, 0, "repair");
    read_all("repaired");
    let journal = checkpoint.join("journal");
    flip(&journal, fs::metadata(&journal).unwrap().len() as usize / 2);
    read_all("journal");
    on(&run, 0, "report").reports(["restored from the database", "lumos repair"]);
    fs::remove_file(&journal).unwrap();
    read_all("without a journal");
}

#[test]
fn damage_is_said_with_numbers_and_repaired_by_resume_and_repair() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let before = content(&run);
    let checkpoint = run.join("checkpoint");

    let repaired = on(&run, 0, "repair");
    assert_eq!(repaired.stderr, "");
    repaired.prints(["both copies of the checkpoint are intact", "30 items, 60 units settled"]);

    // The database silently loses everything, as sled does when certain bits are damaged.
    fs::remove_file(checkpoint.join("db")).unwrap();
    on(&run, 0, "resume").reports([
        format!("30 items, {UNITS} outcomes").as_str(),
        "restored from the journal",
        &format!("{UNITS} already settled"),
    ]);

    // Half of the journal is lost.
    let journal = checkpoint.join("journal");
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() / 2]).unwrap();
    let repaired = lumos().args("repair").arg(&run).ok().prints(["repaired, nothing lost"]);
    repaired.reports(["restored from the database", "kept in"]);
    assert_eq!(content(&run), before);

    // Both copies lose data: the loss is reported exactly, and the affected units run again.
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 1000]).unwrap();
    fs::remove_file(checkpoint.join("db")).unwrap();
    let repaired = on(&run, 5, "repair").prints(["except for entries lost in both copies"]);
    let repaired = repaired.reports(["lost in both copies", "lumos resume"]);
    let settled = number_before(&repaired.stdout, " units settled");
    let lost = number_before(repaired.stderr.split("lost in both copies").nth(1).unwrap(), " outcome");
    assert_eq!(settled + lost, UNITS, "{repaired}");
    lumos().args("resume").arg(&run).ok().reports([format!("{settled} already settled")]);
    assert_eq!(content(&run), before);
}

/// Returns the number before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap();
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn items_that_both_copies_lost_are_planned_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let before = content(&run);
    let checkpoint = run.join("checkpoint");
    fs::remove_file(checkpoint.join("db")).unwrap();
    // Items come first in the journal.
    let journal = checkpoint.join("journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[64..1064].fill(0);
    fs::write(&journal, bytes).unwrap();
    lumos().args("repair").arg(&run).exits(5).reports(["lost in both copies", " item"]);
    lumos().args("resume").arg(&run).ok();
    assert_eq!(content(&run), before);
    lumos().args("repair").arg(&run).ok().prints(["intact; 30 items, 60 units settled"]);
}

/// Limits between "cannot start" and "sufficient", at which every allocation fails at some point.
#[cfg(target_os = "linux")]
#[test]
fn under_a_memory_limit_it_ends_with_the_reason_and_nothing_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let before = content(&run);
    let mut refused = 0;
    for kibibytes in (260_000..=440_000).step_by(10_000) {
        let on_run = |command: &str| limited(kibibytes).args(command).arg(&run);
        let begin = limited(kibibytes).args("run --tasks svamp --model builtin:tiny --limit 2");
        let begin = begin.output(folder.path(), &format!("begun-{kibibytes}"));
        for command in [on_run("report"), on_run("resume"), on_run("repair"), begin] {
            let ended = command.run();
            assert!(!ended.stderr.contains("damaged"), "{ended}");
            assert_no_bad_advice(&ended);
            if ended.code != 0 {
                refused += 1;
                ended.with_code(1).reports(["memory", "hint: ", "ulimit -v"]);
            }
        }
    }
    assert!(refused > 0, "no limit was too low");
    lumos().args("repair").arg(&run).ok().prints(["intact; 30 items, 60 units settled"]);
    lumos().args("resume").arg(&run).ok();
    assert_eq!(content(&run), before);
}

/// glibc aborts if it cannot register a destructor of a thread, and a stack that cannot grow is a segmentation fault.
/// Both depend on the exact limit, so the signals are sent here.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_for_lack_of_memory_is_an_error_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for signal in ["ABRT", "SEGV", "BUS"] {
        let run = folder.path().join(signal);
        let command = limited(4_000_000).args("run --tasks svamp --model builtin:tiny --limit 30");
        let mut running = command.output(folder.path(), signal).follow();
        wait_until(|| run.join("manifest.json").exists() || !running.is_running(), || signal.to_owned());
        running.stop(&format!("-{signal}"));
        let ended = running.ended().with_code(1).reports(["out of memory", "hint: "]);
        assert_no_bad_advice(&ended);
        lumos().args("resume").arg(&run).ok();
    }
}

/// With some of these limits no thread can be started, in which case tokio panics.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_started_are_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    for kibibytes in (180_000..=260_000).step_by(5_000) {
        let run = limited(kibibytes).args("run --dry-run --tasks svamp --model builtin:tiny");
        let ended = run.args("--output-path").arg(folder.path()).run();
        assert!(
            matches!(ended.code, 0..=2) && !ended.stderr.contains("panicked"),
            "{kibibytes} KiB: {ended}"
        );
        assert!(ended.code == 0 || ended.stderr.contains("error: "), "{kibibytes} KiB: {ended}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_start_on_a_full_disk_leaves_a_run_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let Some(_disk) = crate::support::disk::SmallDisk::mount(&small, 8 << 10) else { return };
    let run = finished_run(&small);
    let whole = on(&run, 0, "report --format json").stdout;
    let filler = small.join("filler");
    for left in [0, 4096, 64 << 10] {
        // Fill the disk completely.
        let mut out = fs::File::create(&filler).unwrap();
        while std::io::Write::write(&mut out, &[1; 4096]).is_ok() {}
        let length = out.metadata().unwrap().len();
        out.set_len(length.saturating_sub(left)).unwrap();
        drop(out);
        for command in ["report", "resume", "report", "repair"] {
            let ended = lumos().args(command).arg(&run).run();
            assert_no_bad_advice(&ended);
            assert!(!ended.stderr.contains("damaged"), "with {left} bytes left: {ended}");
            if command == "report" {
                assert_eq!(ended.code, 0, "{ended}");
            } else if ended.code != 0 {
                ended.with_code(1).reports(["free disk space"]);
            }
        }
        fs::remove_file(&filler).unwrap();
        lumos().args("resume").arg(&run).ok();
        let report = on(&run, 0, "report --format json");
        assert_eq!((&report.stdout, report.stderr.as_str()), (&whole, ""), "with {left} bytes left");
    }
}

#[test]
fn temporary_files_of_killed_processes_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    for name in ["manifest.json.4242.tmp", "results_2025.json.17.tmp", "samples_svamp_2025.jsonl.17.tmp"] {
        fs::write(run.join(name), b"half").unwrap();
    }
    lumos().args("score").arg(&run).ok();
    let left: Vec<_> = fs::read_dir(&run)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn scorings_that_were_edited_out_of_the_manifest_are_reported_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let report = || lumos().args("report").arg(&run);
    let whole = report().ok().stdout;
    let file = run.join("manifest.json");
    let mut manifest = read_json(&file);
    assert_eq!(manifest["spec"]["scoring"], serde_json::json!(["paper", "corrected"]));
    manifest["spec"]["scoring"] = serde_json::json!(["corrected"]);
    fs::write(&file, manifest.to_string()).unwrap();
    let edited = report().ok();
    assert_eq!(edited.stdout, whole);
    edited.reports(["manifest.json: `scoring` was changed to [corrected]", "[paper, corrected]"]);
    report().args("--scoring corrected").ok().reports(["`scoring` was changed"]);
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
    for folder in folders.iter().chain(&["benchmarks/src", "engine/src", "engine/kernels/src"]) {
        look(&repository(folder), &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}
