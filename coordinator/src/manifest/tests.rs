//! Manifests in folders.

use lumos_tasks::Item;

use super::*;
use crate::samples::{configuration, item, manifest_of};
use crate::spec::ItemChoice;

fn items(count: u64) -> Vec<Item> {
    (0..count).map(item).collect()
}

#[test]
fn a_manifest_reads_back_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("runs/first");
    let manifest = manifest_of(&[configuration(0), configuration(1)], &items(3));
    assert!(matches!(Manifest::read(&folder), Err(ManifestError::Missing { .. })));
    assert_eq!(manifest.open_or_create(&folder).unwrap(), Opened::Created);
    assert_eq!(Manifest::read(&folder).unwrap(), manifest);
    let mut later = manifest.clone();
    later.created = Timestamp::from_second(99).unwrap();
    later.spec.device = "planner=cuda:0".parse().unwrap();
    assert_eq!(later.open_or_create(&folder).unwrap(), Opened::Continued(Box::new(manifest.clone())));
    assert_eq!(manifest.planned(), 6);
}

#[test]
fn another_run_is_refused_with_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = manifest_of(&[configuration(0)], &items(3));
    manifest.open_or_create(folder.path()).unwrap();
    let refused = |manifest: &Manifest| manifest.open_or_create(folder.path()).unwrap_err().to_string();

    let mut limited = manifest_of(&[configuration(0)], &items(2));
    limited.spec.items.insert("svamp".to_owned(), ItemChoice::First(2));
    let message = refused(&limited);
    assert!(message.contains(r#"items: {"svamp":"all"} there, {"svamp":{"first":2}} here"#), "{message}");
    assert!(message.contains("items of svamp: 3 there, 2 here"), "{message}");
    assert!(message.ends_with("give this run another name with --name, or delete that folder"), "{message}");

    let mut seeded = manifest_of(&[configuration(0), configuration(1)], &items(3));
    seeded.spec.seed = vec![0, 1];
    assert!(refused(&seeded).contains("seed: [0] there, [0,1] here"));

    let mut other = configuration(0);
    let content = ContentHash::of_bytes(b"retrained");
    other.models.values_mut().next().unwrap().content = content.clone();
    let mut retrained = manifest_of(&[other], &items(3));
    retrained.models[0].identity.content = content;
    retrained.models[0].files[0].sha256 = ContentHash::of_bytes(b"other");
    let message = refused(&retrained);
    assert!(message.contains("its content has changed (model.safetensors)"), "{message}");

    let unexplained = manifest_of(&[configuration(7)], &items(3));
    assert!(refused(&unexplained).contains("configurations: "));
}

#[test]
fn foreign_and_damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join(FILE_NAME), text).unwrap();
    let message = || Manifest::read(folder.path()).unwrap_err().to_string();
    write("{");
    assert!(message().contains("is no manifest"), "{}", message());
    write("{}");
    assert!(message().contains("no `schema`"), "{}", message());
    write(r#"{"schema": 99}"#);
    assert!(message().contains("has layout 99, this program knows 1"), "{}", message());
    let manifest = manifest_of(&[configuration(0)], &items(1));
    let text = serde_json::to_string(&manifest).unwrap();
    write(&text.replacen(r#""max_rounds":2"#, r#""max_rounds":3"#, 1));
    assert!(message().contains("is not the one it was planned as"), "{}", message());
}

#[test]
fn cells_that_differ_by_models_alone_have_labels_of_their_own() {
    let mut other = configuration(0);
    other.models.values_mut().for_each(|model| {
        model.name = "builtin:tiny".to_owned();
        model.content = ContentHash::of_bytes(b"tiny");
    });
    let manifest = manifest_of(&[configuration(0), other], &items(1));
    let labels: Vec<_> = manifest.configurations.iter().map(|one| one.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "svamp iterative paper seed 0 [candle:models/planner + candle:models/grounder]",
            "svamp iterative paper seed 0 [builtin:tiny]"
        ]
    );
}
