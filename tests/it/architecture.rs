//! Checks which crates depend on which (`ARCHITECTURE.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde::Deserialize;

use crate::waits::sources;

/// The output of `cargo metadata`, as far as it is used here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev`, `build`, or absent for a normal dependency.
    kind: Option<String>,
}

impl Kind {
    fn is_normal(&self) -> bool {
        self.kind.is_none()
    }
}

impl Metadata {
    fn workspace_packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

fn metadata() -> Metadata {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        // Packages for other platforms may be missing.
        .args(["--filter-platform", env!("LUMOS_TARGET")])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn imports_go_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("lumos-tasks", &[][..]),
        ("lumos-environments", &["lumos-tasks"]),
        ("lumos-benchmarks", &["lumos-tasks", "lumos-environments"]),
        ("lumos-engine", &["lumos-kernels"]),
        ("lumos-kernels", &[]),
        ("lumos-queue", &["lumos-tasks"]),
        ("lumos-http", &[]),
        ("lumos-models", &["lumos-tasks", "lumos-environments", "lumos-engine", "lumos-http"]),
        ("lumos-tools", &["lumos-tasks", "lumos-environments", "lumos-engine", "lumos-http", "lumos-models"]),
        ("lumos-worker", &["lumos-tasks", "lumos-queue", "lumos-http", "lumos-models", "lumos-tools"]),
        ("lumos-coordinator", &["lumos-tasks", "lumos-benchmarks", "lumos-queue"]),
        ("lumos-reports", &["lumos-tasks", "lumos-benchmarks", "lumos-coordinator"]),
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
            if dependency.kind.is_normal() && dependency.name.starts_with("lumos-") {
                assert!(allowed.contains(&dependency.name.as_str()), "{name} imports {}", dependency.name);
            }
        }
    }
    assert_eq!(seen, allowed.keys().map(|name| (*name).to_owned()).collect());
}

#[test]
fn one_crate_sends_http_requests() {
    let metadata = metadata();
    let sends = |package: &Package| {
        let mut dependencies = package.dependencies.iter();
        dependencies.any(|one| one.kind.is_normal() && one.name == "reqwest")
    };
    let senders: Vec<_> = metadata
        .workspace_packages()
        .filter(|package| sends(package))
        .map(|package| &*package.name)
        .collect();
    assert_eq!(senders, ["lumos-http"], "the client in http/ has the limits and the rules for keys");
}

#[test]
fn pure_crates_have_no_runtime_and_the_coordinator_no_models() {
    let metadata = metadata();
    let graph: BTreeMap<_, _> = metadata.resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let reached_by = |name: &str| {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name).unwrap();
        let mut reached = BTreeSet::from([&package.id]);
        let mut waiting = vec![&package.id];
        while let Some(id) = waiting.pop() {
            for dependency in &graph[id].deps {
                let normal = dependency.dep_kinds.iter().any(Kind::is_normal);
                if normal && reached.insert(&dependency.pkg) {
                    waiting.push(&dependency.pkg);
                }
            }
        }
        let names = metadata.packages.iter().filter(|package| reached.contains(&package.id));
        names.map(|package| package.name.clone()).collect::<BTreeSet<_>>()
    };
    for pure in ["lumos-tasks", "lumos-environments", "lumos-benchmarks"] {
        let reached = reached_by(pure);
        assert!(!reached.contains("tokio") && !reached.contains("reqwest"), "{pure} does I/O: {reached:?}");
    }
    // Reports reach the coordinator.
    let reports = reached_by("lumos-reports");
    for foreign in ["candle-core", "tokenizers", "reqwest"] {
        assert!(!reports.contains(foreign), "reports and the coordinator reach {foreign}");
    }
}

/// A name stands for one public type, so that a search finds the one that is meant.
#[test]
fn public_type_names_are_unique() {
    let definition = Regex::new(r"(?m)^pub (?:struct|enum|trait|type|union) (\w+)").unwrap();
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let crates = [
        "tasks",
        "environments",
        "benchmarks",
        "engine",
        "engine/kernels",
        "http",
        "models",
        "queue",
        "tools",
        "worker",
        "coordinator",
        "reports",
        ".",
    ];
    for folder in crates {
        let mut files = Vec::new();
        sources(&format!("{folder}/src"), &mut files);
        for file in files {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
            for name in definition.captures_iter(&text) {
                defined.entry(name[1].to_owned()).or_default().push(file.clone());
            }
        }
    }
    assert!(defined.len() > 300, "only {} types were found", defined.len());
    defined.retain(|_, files| files.len() > 1);
    assert!(defined.is_empty(), "defined more than once: {defined:#?}");
}

/// The modules of a crate from the lowest layer to the highest.
const LAYERS: [(&str, &[&str]); 5] = [
    ("engine/kernels", &["buffer", "vector", "simd", "kernel", "elementwise", "quantized"]),
    (
        "engine",
        &[
            "cache",
            "device",
            "error",
            "tokenizer",
            "memory",
            "random",
            "speculation",
            "options",
            "load",
            "request",
            "sampler",
            "model",
            "machine",
            "scheduler",
            "cuda",
            "backend",
            "loaded",
            "stream",
            "engine",
            "external",
            "bench",
            "encoder",
        ],
    ),
    (
        "models",
        &[
            "files",
            "builtin",
            "hub",
            "lumos",
            "template_functions",
            "template",
            "chat",
            "bos",
            "openai",
            "added",
            "name",
            "located",
            "error",
            "settings",
            "candle_transformers",
            "in_process",
            "engine",
            "script",
            "arrangement",
            "swap_scheduler",
            "swap_lock",
            "registry",
            "serve_model",
        ],
    ),
    (
        "tools",
        &[
            "tool",
            "process_group",
            "browser",
            "sessions",
            "browsers",
            "backend",
            "corpus",
            "ranking",
            "maths",
            "replies",
            "live",
            "wolfram",
            "session_backends",
            "external",
            "name",
            "registry",
        ],
    ),
    ("worker", &["activity", "drive", "serve", "stall", "fleet"]),
];

#[test]
fn modules_form_layers() {
    let import = Regex::new(r"\bcrate::([a-z_0-9]+)::").unwrap();
    let comment = Regex::new(r"(?m)//.*$").unwrap();
    for (package, layers) in LAYERS {
        let rank = |module: &str| layers.iter().position(|layer| *layer == module);
        let folder = format!("{package}/src");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let mut seen = BTreeSet::new();
        for file in files {
            let path = &file[folder.len() + 1..];
            let module = path.split(['/', '.']).next().unwrap();
            if module == "lib" || path.contains("tests") {
                continue;
            }
            let own =
                rank(module).unwrap_or_else(|| panic!("{file}: {module} is missing in the list of layers"));
            seen.insert(own);
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
            let text = comment.replace_all(text.split("#[cfg(test)]\nmod tests").next().unwrap(), "");
            // In a file next to lib.rs, the parent module is the crate.
            let text = if path.contains('/') { text } else { text.replace("super::", "crate::").into() };
            for import in import.captures_iter(&text) {
                let other = rank(&import[1]).unwrap_or_else(|| panic!("{file} imports {}", &import[1]));
                assert!(other <= own, "{file}: {module} imports {}, which is in a higher layer", &import[1]);
            }
        }
        assert_eq!(seen.len(), layers.len(), "a layer of {package} does not exist");
    }
}
