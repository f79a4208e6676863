//! Tests of merging parts.

use lumos_tasks::Configuration;

use super::*;
use crate::samples::{configuration, item, manifest_of as whole_of, state};
use crate::unit_view::{for_each_unit, unit_of};

const ITEMS: u64 = 60;

/// Creates a part of the sample run in a folder; `None` creates the whole run. Leaves out units without a
/// record.
async fn run(
    folder: &Path,
    partition: Option<Partition>,
    configurations: &[Configuration],
    settle_all: bool,
) -> PathBuf {
    let items: Vec<Item> = (0..ITEMS).map(item).collect();
    run_over(&items, folder, partition, configurations, settle_all).await
}

/// The same for items in another order.
async fn run_over(
    items: &[Item],
    folder: &Path,
    partition: Option<Partition>,
    configurations: &[Configuration],
    settle_all: bool,
) -> PathBuf {
    let name = partition.map_or("whole".to_owned(), |one| format!("part-{}", one.part()));
    let folder = folder.join(name);
    let mut manifest = whole_of(configurations, items);
    if let Some(partition) = partition {
        let spec = crate::spec::ResolvedSpec { partition: Some(partition), ..manifest.spec.clone() };
        manifest = crate::samples::manifest_with(spec, configurations, items);
    }
    manifest.write(&folder).unwrap();
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).unwrap();
    let kept = items.iter().filter(|item| partition.is_none_or(|one| one.keeps(&item.id)));
    let stored = checkpoint.store_items("svamp", kept.clone()).unwrap();
    assert_eq!(stored, manifest.data[0].selected);
    for (position, planned) in (0..).zip(&manifest.configurations) {
        for item in kept.clone() {
            let index = if settle_all { item.index / 10 * 10 } else { item.index };
            let unit = unit_of(planned, item);
            if let Some(record) = state(index, &unit) {
                let record = Record { configuration: position, item: item.index, ..record };
                checkpoint.record(record).await.unwrap();
            }
        }
    }
    checkpoint.note_seconds(1.5).unwrap();
    let identity = manifest.identity.clone();
    checkpoint
        .plan_complete(&PlanMark { identity, items: stored, scoring: manifest.spec.scoring.clone() })
        .unwrap();
    checkpoint.close().unwrap();
    folder
}

async fn parts(folder: &Path, of: u32, configurations: &[Configuration], settle_all: bool) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for part in 1..=of {
        folders.push(run(folder, Partition::new(part, of), configurations, settle_all).await);
    }
    folders
}

/// All records in the order of reports.
fn records(manifest: &Manifest, checkpoint: &CheckpointReader) -> Vec<Record> {
    let mut all = Vec::new();
    let visited = for_each_unit::<CheckpointError>(manifest, checkpoint, |view| {
        all.extend(view.earlier.iter().chain(&view.record).cloned());
        Ok(())
    });
    visited.unwrap();
    assert!(!all.is_empty());
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_make_the_whole() {
    for settle_all in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let configurations = [configuration(0), configuration(1)];
        let whole = run(folder.path(), None, &configurations, settle_all).await;
        let mut parts = parts(folder.path(), 3, &configurations, settle_all).await;
        parts.reverse();
        let into = folder.path().join("merged");
        // Left by a merge that was killed.
        let left = folder.path().join("merged.17.tmp");
        std::fs::create_dir_all(left.join("checkpoint")).unwrap();
        if !settle_all {
            let error = merge(&parts, &into, false).unwrap_err().to_string();
            assert!(error.contains("part-3` has ") && error.contains("--allow-incomplete"), "{error}");
            assert!(!into.exists());
        }
        let merged = merge(&parts, &into, !settle_all).unwrap();
        assert!(!left.exists());
        let expected = Manifest::read(&whole).unwrap();
        assert_eq!(merged.identity, expected.identity);
        assert_eq!(merged.data, expected.data);
        assert_eq!(merged.configurations, expected.configurations);
        let mut found = Manifest::read(&into).unwrap();
        assert_eq!(found, merged);
        assert_eq!(found.spec.name, "merged");
        found.spec = expected.spec.clone();
        let checkpoint = Checkpoint::open(&into.join("checkpoint")).unwrap();
        let other = Checkpoint::open(&whole.join("checkpoint")).unwrap();
        assert_eq!(checkpoint.settled(), other.settled());
        assert_eq!(checkpoint.plan().unwrap(), other.plan().unwrap());
        let seconds = [&checkpoint, &other].map(|one| one.seconds().unwrap());
        assert_eq!(seconds, [Some(4.5), Some(1.5)], "the parts' times are added up");
        assert_eq!(records(&found, &checkpoint), records(&expected, &other));
        checkpoint.close().unwrap();
        other.close().unwrap();
        assert!(matches!(merge(&parts, &into, true), Err(MergeError::Occupied { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let configurations = [configuration(0)];
    let whole = run(folder.path(), None, &configurations, true).await;
    let parts = parts(folder.path(), 3, &configurations, true).await;
    let into = folder.path().join("merged");
    let refused = |parts: &[&PathBuf]| {
        let parts: Vec<PathBuf> = parts.iter().map(|&folder| folder.clone()).collect();
        merge(&parts, &into, true).unwrap_err().to_string()
    };
    assert!(refused(&[]).contains("no parts given"));
    assert_eq!(refused(&[&parts[0]]), "missing parts: hash:2/3, hash:3/3");
    assert_eq!(refused(&[&parts[2], &parts[0]]), "missing part: hash:2/3");
    let twice = refused(&[&parts[0], &parts[1], &parts[0]]);
    assert!(twice.contains("are both part hash:1/3"), "{twice}");
    assert!(refused(&[&whole, &parts[0]]).contains("is not part of a run"));

    let elsewhere = tempfile::tempdir().unwrap();
    let other = run(elsewhere.path(), Partition::new(2, 3), &[configuration(5)], true).await;
    let differs = refused(&[&parts[0], &other, &parts[2]]);
    assert!(differs.contains("are parts of different runs"), "{differs}");
    let halves = run(elsewhere.path(), Partition::new(1, 2), &configurations, true).await;
    let differs = refused(&[&parts[0], &halves]);
    assert!(differs.contains("2 parts instead of 3"), "{differs}");
    assert!(!into.exists());

    let running = Checkpoint::open(&parts[1].join("checkpoint")).unwrap();
    assert!(refused(&parts.iter().collect::<Vec<_>>()).contains("in use by another process"));
    running.close().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_whose_data_files_have_different_orders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let configurations = [configuration(0)];
    let first = run(folder.path(), Partition::new(1, 2), &configurations, true).await;
    let reversed: Vec<Item> = (0..ITEMS).map(|index| Item { index, ..item(ITEMS - 1 - index) }).collect();
    let second = run_over(&reversed, folder.path(), Partition::new(2, 2), &configurations, true).await;
    let into = folder.path().join("merged");
    let refused = merge(&[first, second], &into, true).unwrap_err().to_string();
    assert!(refused.contains("have the items of svamp in different orders"), "{refused}");
    assert!(refused.contains("part-1` and `") && refused.contains("part-2`"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
}
