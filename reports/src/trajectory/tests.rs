//! Finding and showing records.

use lumos_benchmarks::Scoring;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::samples::{configuration, item, manifest_of, state};
use lumos_coordinator::{Checkpoint, unit_of};

use super::*;

async fn run() -> (tempfile::TempDir, Manifest, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
    let checkpoint = Checkpoint::create(folder.path()).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    for item in &items {
        let unit = unit_of(&manifest.configurations[0], item);
        if let Some(record) = state(item.index, &unit) {
            checkpoint.record(record).await.unwrap();
        }
    }
    (folder, manifest, checkpoint)
}

#[tokio::test]
async fn units_are_found_by_position_name_and_digits() {
    let (_folder, manifest, checkpoint) = run().await;
    let places = |asked: &str| -> Vec<(String, u64, usize)> {
        find(&manifest, &checkpoint, asked, |_| true)
            .unwrap()
            .into_iter()
            .map(|found| (found.configuration.label.clone(), found.item.index, found.records.len()))
            .collect()
    };
    let both = [
        ("svamp iterative paper seed 0".to_owned(), 3, 1),
        ("svamp iterative paper seed 1".to_owned(), 3, 0),
    ];
    assert_eq!(places("3"), both);
    assert_eq!(places("item-3"), both);
    let unit = unit_of(&manifest.configurations[1], &item(4));
    assert_eq!(places(unit.short()), [("svamp iterative paper seed 1".to_owned(), 4, 0)]);
    assert!(places("nothing").is_empty());
    let second = find(&manifest, &checkpoint, "3", |one| one.label.ends_with("seed 1")).unwrap();
    assert_eq!(second.len(), 1);
}

#[tokio::test]
async fn records_are_shown() {
    let (_folder, manifest, checkpoint) = run().await;
    let mut text = String::new();
    for asked in ["4", "7", "8", "9"] {
        let found = find(&manifest, &checkpoint, asked, |one| one.label.ends_with("seed 0")).unwrap();
        let how = Show { width: 72, prompts: asked == "7", ..Show::default() };
        text.push_str(&show(&found[0], &Scoring::ALL, how).unwrap());
        text.push_str("\n========\n\n");
    }
    assert!(!text.contains('\u{1b}'));
    insta::assert_snapshot!(text);
    let found = find(&manifest, &checkpoint, "4", |_| true).unwrap();
    let coloured = show(&found[0], &Scoring::ALL, Show { colours: true, ..Show::default() }).unwrap();
    assert!(coloured.contains("\u{1b}[1mTask\u{1b}[0m"));
}
