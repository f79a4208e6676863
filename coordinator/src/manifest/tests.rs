//! Tests of manifests in folders.

use lumos_benchmarks::task_file::{TaskDefinition, TaskFamily};
use lumos_benchmarks::{BenchmarkBuilder, Content};
use lumos_tasks::families::added::FamilyDescription;
use lumos_tasks::{Formulation, Item, Role, Sampling, ToolBackend};

use super::compare::differences;
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
    assert_eq!(manifest.open_or_create(&folder).unwrap(), None);
    assert_eq!(Manifest::read(&folder).unwrap(), manifest);
    let mut later = manifest.clone();
    later.created = Timestamp::from_second(99).unwrap();
    later.spec.device = "planner=cuda:0".parse().unwrap();
    assert_eq!(later.open_or_create(&folder).unwrap(), Some(manifest.clone()));
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
    let lines: Vec<_> = message.lines().skip(1).collect();
    assert_eq!(lines, ["  --limit 2, which the run does not have"], "one line for one setting");
    assert!(!message.contains("delete"), "{message}");

    let mut seeded = manifest_of(&[configuration(0), configuration(1)], &items(3));
    seeded.spec.seed = vec![0, 1];
    assert!(refused(&seeded).contains("--seed 0,1 instead of 0"));

    let mut other = configuration(0);
    let content = ContentHash::of_bytes(b"retrained");
    other.models.values_mut().next().unwrap().content = content.clone();
    let mut retrained = manifest_of(&[other], &items(3));
    retrained.models[0].identity.content = content;
    retrained.models[0].files[0].sha256 = ContentHash::of_bytes(b"other");
    let message = refused(&retrained);
    assert!(
        message.contains("planner candle:models/planner: its content has changed (model.safetensors)"),
        "{message}"
    );

    let unexplained = manifest_of(&[configuration(7)], &items(3));
    assert!(refused(&unexplained).contains("  configurations "));
}

#[test]
fn a_run_continues_with_the_same_version_of_a_family_only() {
    static DIAL: FamilyDescription = FamilyDescription {
        name: "dial",
        version: 2,
        formulations: &[Formulation::Iterative],
        tools: &[],
        start: |_, _| unreachable!(),
    };
    let mut definition = TaskDefinition::new("dials", TaskFamily::Custom, "dials/items.jsonl");
    definition.added_family = Some(&DIAL);
    let dials = BenchmarkBuilder::new(definition).read(|_| Ok(Content::question("", ""))).build().unwrap();
    assert_eq!(check_family(dials, &dials.prompts_hash()), Ok(()));
    let error = check_family(dials, &ContentHash::of_bytes(b"version 1")).unwrap_err().to_string();
    let expected = "benchmark `dials`: family `dial` (version 2 in this program) or fields differ";
    assert!(error.starts_with(expected), "{error}");
    // Benchmarks without a family in Rust are not compared.
    assert_eq!(manifest_of(&[configuration(0)], &items(1)).check_program(), Ok(()));
}

#[test]
fn a_name_that_is_several_models_has_not_changed() {
    // `builtin:tiny` is one model for the planner and another for the grounder.
    let shipped = || {
        let mut cell = configuration(0);
        for (role, model) in &mut cell.models {
            model.name = "builtin:tiny".to_owned();
            model.content = ContentHash::of_bytes(role.name().as_bytes());
        }
        cell
    };
    let limited = |count: u64| {
        let mut manifest = manifest_of(&[shipped()], &items(count));
        manifest.spec.items.insert("svamp".to_owned(), ItemChoice::First(count));
        manifest
    };
    assert_eq!(differences(&limited(3), &limited(4)), ["--limit 4 instead of 3"]);
    let mut other = shipped();
    other.models.get_mut(&Role::Grounder).unwrap().content = ContentHash::of_bytes(b"retrained");
    let retrained = manifest_of(&[other], &items(3));
    let lines = differences(&manifest_of(&[shipped()], &items(3)), &retrained);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("grounder builtin:tiny: its content has changed"), "{lines:?}");
}

#[test]
fn the_setting_that_differs_is_named_by_its_flag() {
    let manifest = || manifest_of(&[configuration(0)], &items(3));
    let changed = |change: fn(&mut Manifest)| {
        let mut asked = manifest();
        change(&mut asked);
        differences(&manifest(), &asked).join("\n")
    };
    let sampling = changed(|asked| {
        let random = Sampling::Random { temperature: 0.7, top_p: None, top_k: Some(5) };
        asked.spec.generation.sampling = random;
        asked.spec.generation.max_new_tokens = 64;
    });
    assert!(sampling.contains("--temperature 0.7, which the run does not have"), "{sampling}");
    assert!(sampling.contains("--max-new-tokens 64 instead of 512"), "{sampling}");
    let chosen = ItemChoice::Chosen("0-1".parse().unwrap());
    let mut asked = manifest();
    asked.spec.items.insert("svamp".to_owned(), chosen);
    assert_eq!(differences(&manifest(), &asked)[0], "--samples 0-1, which the run does not have");
    assert_eq!(differences(&asked, &manifest())[0], "no --samples, the run has --samples 0-1");
    let tool = changed(|asked| {
        let tool =
            |backend: &str| ToolBackend { tool: "maths".to_owned(), backend: backend.to_owned(), version: 1 };
        Arc::make_mut(&mut asked.configurations[0].configuration).tools = vec![tool("wolfram")];
    });
    assert!(tool.starts_with("configurations "), "a tool that only one of them has: {tool}");
    let model = changed(|asked| {
        let name = "openai:gpt-4".to_owned();
        asked.spec.models[0].insert(Role::Planner, name);
    });
    assert_eq!(model, "--planner openai:gpt-4 instead of candle:models/planner");
    let model = changed(|asked| {
        asked.spec.models[0].values_mut().for_each(|name| *name = "openai:gpt-4".to_owned());
    });
    assert_eq!(model, "--model openai:gpt-4 instead of candle:models/planner");
}

#[test]
fn foreign_and_damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join(FILE_NAME), text).unwrap();
    let message = || Manifest::read(folder.path()).unwrap_err().to_string();
    write("{");
    assert!(message().contains("invalid manifest"), "{}", message());
    write("{}");
    assert!(message().contains("missing field `schema`"), "{}", message());
    write(r#"{"schema": 99}"#);
    assert!(message().contains("unsupported layout 99"), "{}", message());
    let manifest = manifest_of(&[configuration(0)], &items(1));
    let text = serde_json::to_string(&manifest).unwrap();
    write(&text.replacen(r#""max_rounds":2"#, r#""max_rounds":3"#, 1));
    assert!(message().contains("does not match its identity"), "{}", message());
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

/// Returns a manifest whose second configuration has a limit.
fn limited(limit: Option<u64>, partition: Option<&str>) -> Manifest {
    let base = manifest_of(&[configuration(0)], &items(6));
    let mut cells: Vec<PlannedCell> = [configuration(0), configuration(1)].map(Into::into).into();
    cells[1].limit = limit;
    let items: Vec<(u64, ItemId)> = items(6).into_iter().map(|item| (item.index, item.id)).collect();
    Manifest::new(ManifestParts {
        spec: ResolvedSpec { partition: partition.map(|part| part.parse().unwrap()), ..base.spec },
        configurations: cells,
        models: base.models,
        data: vec![PlannedData {
            benchmark: "svamp",
            source: String::new(),
            sha256: ContentHash::of_bytes(b"data"),
            records: 6,
            invalid: 0,
            items: &items,
        }],
        git_revision: None,
        created: Timestamp::UNIX_EPOCH,
    })
}

#[test]
fn limits_of_configurations_are_part_of_the_identity_where_they_have_an_effect() {
    let units =
        |manifest: &Manifest| -> Vec<u64> { manifest.configurations.iter().map(|one| one.planned).collect() };
    let (whole, two) = (limited(None, None), limited(Some(2), None));
    assert_eq!((units(&whole), units(&two)), (vec![6, 6], vec![6, 2]));
    assert_eq!(whole.identity, manifest_of(&[configuration(0), configuration(1)], &items(6)).identity);
    assert_ne!(whole.identity, two.identity);
    assert_ne!(limited(Some(3), None).identity, two.identity);
    let without_effect = limited(Some(6), None);
    assert_eq!((without_effect.identity, without_effect.configurations[1].limit), (whole.identity, None));
    // Parts add up to the whole.
    let parts = ["hash:1/2", "hash:2/2"].map(|part| limited(Some(2), Some(part)));
    assert_eq!(parts[0].whole, Some(two.identity.clone()));
    assert_eq!(parts[1].whole, Some(two.identity.clone()));
    assert_eq!(units(&parts[0])[1] + units(&parts[1])[1], 2);
}

#[test]
fn a_continued_run_uses_models_and_tools_where_they_are_now() {
    let mut found = manifest_of(&[configuration(0)], &items(2));
    let mut asked = found.clone();
    let mut moved = Configuration::clone(&asked.configurations[0].configuration);
    for model in moved.models.values_mut() {
        model.name = "candle:archive/planner".to_owned();
    }
    let moved = Arc::new(moved);
    asked.configurations[0].configuration = Arc::clone(&moved);
    assert_ne!(*found.configurations[0].configuration, *moved);
    found.adopt(asked);
    assert_eq!(*found.configurations[0].configuration, *moved);
}

#[test]
fn a_continued_run_takes_over_priorities() {
    let mut found = limited(None, None);
    let mut asked = found.clone();
    asked.configurations.reverse();
    asked.configurations[0].priority = 7;
    asked.spec.order = crate::spec::DispatchOrder::RoundRobin;
    found.adopt(asked);
    let priorities: Vec<i32> = found.configurations.iter().map(|one| one.priority).collect();
    assert_eq!((priorities, found.spec.order.name()), (vec![0, 7], "round-robin"));
}
