//! Finding and showing records.

use lumos_benchmarks::{MetricKind, Scoring};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::samples::{configuration, item, manifest_of, state};
use lumos_coordinator::{Checkpoint, unit_of};
use lumos_tasks::Configuration;

use super::*;
use crate::results::tests::add_named;

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

#[test]
fn printed_arguments_find_their_items_if_names_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    // The first two are positions of other items.
    let names = [Some("1"), Some("0"), None, Some("-1"), Some("a\tb"), Some("one pear")];
    let items: Vec<Item> =
        (0..).zip(names).map(|(index, name)| Item { name: name.map(str::to_owned), ..item(index) }).collect();
    let own = Configuration { benchmark: "own".to_owned(), ..configuration(0) };
    let mut manifest = manifest_of(&[own], &items);
    add_named(&mut manifest, "own");
    let checkpoint = Checkpoint::create(folder.path()).unwrap();
    checkpoint.store_items("own", &items).unwrap();
    let units: Vec<UnitId> = items.iter().map(|item| unit_of(&manifest.configurations[0], item)).collect();
    let digits = |item: usize| units[item].short();
    let expected = ["1", "0", digits(2), digits(3), digits(4), "'one pear'"];
    for (item, expected) in items.iter().zip(expected) {
        let unit = units[usize::try_from(item.index).unwrap()].short();
        let argument = item_argument(&manifest.spec, "own", item.index, item.name.as_deref(), unit);
        assert_eq!(argument, expected);
        let found = find(&manifest, &checkpoint, argument.trim_matches('\''), |_| true).unwrap();
        assert_eq!(found.iter().map(|found| found.item.index).collect::<Vec<_>>(), [item.index]);
    }
    assert_eq!(first_item(&manifest, &checkpoint), Some(("own".to_owned(), "1".to_owned())));
    assert_eq!(item_argument(&manifest.spec, "svamp", 3, Some("item-3"), digits(3)), "3");
}

#[test]
fn verdicts_follow_the_definition_of_the_metric() {
    let solved = MetricDefinition::proportion("solved", "");
    let failed = MetricDefinition { higher_is_better: false, name: "failed", ..solved };
    let rating = MetricDefinition { kind: MetricKind::BoundedMean { least: 0.0, most: 10.0 }, ..solved };
    let balance = MetricDefinition { kind: MetricKind::BoundedMean { least: -1.0, most: 1.0 }, ..solved };
    let both = |metric: &MetricDefinition, main: &MetricDefinition| {
        [0.0, 1.0].map(|value| verdict("it", Share::once(value), Some(metric), Some(main)))
    };
    assert_eq!(both(&solved, &failed), ["wrong by it", "correct by it"]);
    assert_eq!(both(&failed, &failed), ["correct by it", "wrong by it"]);
    // If lower is better, only the main metric decides.
    for (metric, main) in [(rating, rating), (balance, balance), (failed, solved)] {
        assert_eq!(both(&metric, &main), ["0 of 1 by it", "1 of 1 by it"]);
    }
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
