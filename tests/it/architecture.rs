//! Checks which crates depend on which (`ARCHITECTURE.md`).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        // Packages for other platforms may be missing.
        .other_options(
            ["--offline", "--locked", "--filter-platform", env!("LUMOS_TARGET")].map(str::to_owned),
        )
        .exec()
        .unwrap()
}

#[test]
fn imports_go_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("lumos-tasks", &[][..]),
        ("lumos-environments", &["lumos-tasks"]),
        ("lumos-benchmarks", &["lumos-tasks", "lumos-environments"]),
        ("lumos-engine", &[]),
        ("lumos-queue", &["lumos-tasks"]),
        ("lumos-worker", &["lumos-tasks", "lumos-environments", "lumos-queue", "lumos-engine"]),
        ("lumos-coordinator", &["lumos-tasks", "lumos-benchmarks", "lumos-queue"]),
        // Machine capabilities that tests need.
        ("lumos-capabilities", &[]),
    ]);
    let metadata = metadata();
    let mut seen = BTreeSet::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        if name == "lumos-eval" {
            continue;
        }
        seen.insert(name.to_owned());
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} is missing in the table of crates"));
        for dependency in &package.dependencies {
            if dependency.kind == DependencyKind::Normal && dependency.name.starts_with("lumos-") {
                assert!(allowed.contains(&dependency.name.as_str()), "{name} imports {}", dependency.name);
            }
        }
    }
    assert_eq!(seen, allowed.keys().map(|name| (*name).to_owned()).collect());
}

#[test]
fn pure_crates_have_no_runtime_and_the_coordinator_no_models() {
    let metadata = metadata();
    let graph: BTreeMap<_, _> =
        metadata.resolve.as_ref().unwrap().nodes.iter().map(|node| (&node.id, node)).collect();
    let reached_by = |name: &str| {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name).unwrap();
        let mut reached = BTreeSet::from([&package.id]);
        let mut waiting = vec![&package.id];
        while let Some(id) = waiting.pop() {
            for dependency in &graph[id].deps {
                let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
                if normal && reached.insert(&dependency.pkg) {
                    waiting.push(&dependency.pkg);
                }
            }
        }
        let names = metadata.packages.iter().filter(|package| reached.contains(&package.id));
        names.map(|package| package.name.to_string()).collect::<BTreeSet<_>>()
    };
    for pure in ["lumos-tasks", "lumos-environments", "lumos-benchmarks"] {
        let reached = reached_by(pure);
        assert!(!reached.contains("tokio") && !reached.contains("reqwest"), "{pure} does I/O: {reached:?}");
    }
    let coordinator = reached_by("lumos-coordinator");
    for foreign in ["candle-core", "tokenizers", "reqwest"] {
        assert!(!coordinator.contains(foreign), "the coordinator reaches {foreign}");
    }
}
