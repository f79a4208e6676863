//! Tests of the exported files.

use serde_json::Value;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::samples::{configuration, item, manifest_of, samples_file, state};
use crate::unit_view::unit_of;

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn files_are_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    let now: Timestamp = "2025-01-02T03:04:05.6Z".parse().unwrap();
    let first = export(folder, &manifest, &checkpoint, &[], now).unwrap();
    assert_eq!(first.total.outstanding, 10);
    assert!(is_current(folder, &first).unwrap());
    // Recorded in reverse order; exported in the order of the items.
    for item in items.iter().rev() {
        let unit = unit_of(&manifest.configurations[0], item);
        if let Some(record) = state(item.index, &unit) {
            checkpoint.record(record).await.unwrap();
        }
    }
    let later = now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    let grown = report(&manifest, &checkpoint, &[]).unwrap();
    assert!(!is_current(folder, &grown).unwrap(), "more is recorded than the files contain");
    let second = export(folder, &manifest, &checkpoint, &[], later).unwrap();
    assert!(is_current(folder, &second).unwrap());
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "checkpoint",
            "report",
            "report.html",
            "report.md",
            "results_2025-01-02T03-05-05.600000.json",
            "samples_svamp_2025-01-02T03-05-05.600000.jsonl",
        ]
    );
    let samples = lines(&samples_file(folder));
    let positions: Vec<_> = samples.iter().map(|sample| sample["doc_id"].as_u64().unwrap()).collect();
    assert_eq!(positions, (0..9).collect::<Vec<_>>(), "outstanding units are left out");
    for field in [
        "doc_id",
        "doc",
        "target",
        "arguments",
        "resps",
        "filtered_resps",
        "filter",
        "metrics",
        "doc_hash",
        "prompt_hash",
        "target_hash",
        "exact_match",
        "task",
        "formulation",
        "behaviour",
        "seed",
        "unit",
        "status",
        "error",
        "trajectory",
        "telemetry",
    ] {
        assert!(samples.iter().all(|sample| sample.get(field).is_some()), "{field}");
    }
    assert_eq!(samples[0]["exact_match"], 1.0);
    assert_eq!(samples[7]["exact_match"], 0.0);
    assert_eq!(samples[8]["exact_match"], Value::Null);
    assert_eq!((&samples[7]["status"], &samples[8]["status"]), (&"gave_up".into(), &"faulted".into()));
    assert_eq!(samples[4]["scores"]["corrected"]["exact_match"]["numerator"], 1.0);
    let same = export(folder, &manifest, &checkpoint, &[], later).unwrap();
    assert_eq!(same, second);
    assert_eq!(lines(&samples_file(folder)), samples);
}

#[test]
fn an_export_that_was_cut_short_is_not_current() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items: Vec<_> = (0..2).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    let empty = report(&manifest, &checkpoint, &[]).unwrap();
    assert!(!is_current(folder, &empty).unwrap(), "there is nothing yet");
    let exported = export(folder, &manifest, &checkpoint, &[], Timestamp::UNIX_EPOCH).unwrap();
    assert!(is_current(folder, &exported).unwrap());
    let page = folder.join(VIEWER).join(PAGE);
    fs::rename(&page, folder.join("moved")).unwrap();
    assert!(!is_current(folder, &exported).unwrap());
    fs::rename(folder.join("moved"), &page).unwrap();
    fs::remove_file(samples_file(folder)).unwrap();
    assert!(!is_current(folder, &exported).unwrap());
    checkpoint.close().unwrap();
}
