//! Backends of the tools that a run calls: those that are set, and defaults that do not change results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lumos_benchmarks::Benchmark;
use lumos_benchmarks::task_file::TaskDefinition;
use lumos_coordinator::spec::ResolvedSpec;
use lumos_tasks::ToolBackend;
use lumos_tasks::shell::quoted_path;
use lumos_tools::{ToolSets, backends, needs_permission};

use crate::exit::Failure;
use crate::settings;

/// Returns the run's backends of the tools that configurations of each benchmark call, without tools that rules set in
/// all of these configurations. The error lists all missing ones.
pub(super) fn tool_backends<'a>(
    spec: &'a ResolvedSpec,
    tools: &ToolSets,
) -> Result<BTreeMap<&'a str, Vec<ToolBackend>>, Failure> {
    let mut set: BTreeMap<&str, ToolBackend> = BTreeMap::new();
    for (tool, backend) in &spec.tools {
        set.insert(tool, tools.identify(tool, backend).map_err(Failure::usage)?);
    }
    let mut backends: BTreeMap<&str, Vec<ToolBackend>> = BTreeMap::new();
    let mut identified: BTreeMap<(&str, String), ToolBackend> = BTreeMap::new();
    let mut missing: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for task in &spec.tasks {
        let benchmark = spec.benchmark(task).map_err(Failure::usage)?;
        let of_task = backends.entry(task).or_default();
        for &tool in benchmark.tools().iter().filter(|tool| spec.needs_backend(task, tool)) {
            if let Some(backend) = set.get(tool) {
                of_task.push(backend.clone());
                continue;
            }
            let usual = match benchmark.definition() {
                Some(definition) => usual_backend_of(spec, benchmark, definition, tool),
                None => usual_backend(spec, tool)?,
            };
            // Whoever typed --tool allows it. A task file may be from somebody else.
            if let Some(named) = usual.as_deref().filter(|named| needs_permission(tool, named)) {
                let why = format!(
                    "the task file names `{named}`, which starts a program or sends calls to a server; allow it with \
                     --tool '{tool}={named}'"
                );
                missing.entry((tool, why)).or_default().push(task);
                continue;
            }
            let Some(usual) = usual else {
                missing.entry((tool, "no backend is set".to_owned())).or_default().push(task);
                continue;
            };
            let key = (tool, usual);
            if !identified.contains_key(&key) {
                match tools.identify(tool, &key.1) {
                    Ok(backend) => {
                        identified.insert(key.clone(), backend);
                    }
                    Err(error) => {
                        missing.entry((tool, error.to_string())).or_default().push(task);
                        continue;
                    }
                }
            }
            of_task.extend(identified.get(&key).cloned());
        }
    }
    let missing: Vec<Missing> =
        missing.into_iter().map(|((tool, why), tasks)| Missing { tool, tasks, why }).collect();
    if missing.is_empty() { Ok(backends) } else { Err(missing_tools(&missing, spec.data.as_deref())) }
}

/// Identifies the backends of rules, by tool and backend.
pub(super) fn replaced_backends<'a>(
    spec: &'a ResolvedSpec,
    tools: &ToolSets,
) -> Result<BTreeMap<(&'a String, &'a String), ToolBackend>, Failure> {
    let of_rules: BTreeSet<_> = spec.overrides.iter().flat_map(|rule| &rule.tools).collect();
    of_rules
        .into_iter()
        .map(|(tool, backend)| {
            let identified = tools.identify(tool, backend).map_err(Failure::usage)?;
            Ok(((tool, backend), identified))
        })
        .collect()
}

/// Returns the default backend of a tool for a definition: its own one, otherwise one that needs no data.
fn usual_backend_of(
    spec: &ResolvedSpec,
    benchmark: &dyn Benchmark,
    definition: &TaskDefinition,
    tool: &str,
) -> Option<String> {
    let Some(backend) = definition.tools.get(tool) else {
        return match tool {
            "maths" => Some("native".to_owned()),
            "rank" => Some("bm25".to_owned()),
            "web" => Some(spec.browser.clone().unwrap_or_else(|| "native".to_owned())),
            _ => None,
        };
    };
    let Some(file) = benchmark.task_file() else { return Some(backend.clone()) };
    // Paths are relative to the task file.
    Some(match backend.split_once(':') {
        Some((kind, path)) if file.resolve(Path::new(path)).exists() => {
            format!("{kind}:{}", file.resolve(Path::new(path)).display())
        }
        _ => backend.clone(),
    })
}

/// A tool that a run calls and that has no backend.
struct Missing<'a> {
    tool: &'a str,
    /// The benchmarks that call it.
    tasks: Vec<&'a str>,
    why: String,
}

/// Returns the default backend of a tool. With the built-in samples every tool has one. With other data, the
/// encyclopaedia and the ranker have none, because the results depend on them.
fn usual_backend(spec: &ResolvedSpec, tool: &str) -> Result<Option<String>, Failure> {
    let (data, browser) = (spec.data.as_deref(), spec.browser.as_deref());
    Ok(match tool {
        "maths" => Some("native".to_owned()),
        "web" => Some(browser.unwrap_or("native").to_owned()),
        "sql" => Some(match data {
            Some(folder) => format!("sqlite:{}", folder.join("intercode_sql/sqlite").display()),
            None => "sqlite".to_owned(),
        }),
        "shop" => Some(settings::usual_shop(data, browser)?),
        "rank" if data.is_none() => Some("bm25".to_owned()),
        "wiki" if data.is_none() => Some("samples".to_owned()),
        _ => None,
    })
}

fn missing_tools(missing: &[Missing], data: Option<&Path>) -> Failure {
    let mut message = match missing {
        [one] => format!("tool `{}` has no backend", one.tool),
        several => format!("{} tools have no backend", several.len()),
    };
    for Missing { tool, tasks, why } in missing {
        let known = backends(tool).join(", ");
        message
            .push_str(&format!("\n  {tool} (called by {}): {why}\n    backends: {known}", tasks.join(", ")));
    }
    // A tool with a default backend lacks its files; suggesting another backend would change the benchmark.
    let first = |tool: &str| match tool {
        "rank" | "wiki" => Some(format!("--tool {tool}={}", backends(tool).first()?)),
        _ => None,
    };
    let flags: Vec<String> = missing.iter().filter_map(|one| first(one.tool)).collect();
    let mut hints = Vec::new();
    if missing.iter().any(|one| one.tool == "sql") {
        let dump = data.map(|folder| quoted_path(&folder.join("intercode_sql/ic_spider_dbs.sql")));
        let dump = dump.as_deref().unwrap_or("DUMP");
        hints.push(format!("build the databases with `lumos data import-sql {dump}`"));
    }
    if flags.is_empty() {
        hints.push("set a backend with --tool NAME=BACKEND".to_owned());
    } else {
        hints.push(format!("set backends, for example {}", flags.join(" ")));
    }
    Failure::input(message).hint(hints.join("; "))
}
