//! Settings in which the two sides of a comparison differ.

use std::collections::{BTreeMap, BTreeSet};

use lumos_coordinator::manifest::{Manifest, settings};
use lumos_tasks::{Configuration, Role, Sampling};

use super::model::SettingDifference;

/// Flags that [`differing`] describes from the configurations, or that only say which configurations a run has.
const DESCRIBED: [&str; 9] = [
    "--tasks",
    "--formulation",
    "--behaviour",
    "--seed",
    "--max-new-tokens",
    "--temperature",
    "--model",
    "--dtype",
    "--backend",
];

/// Returns the settings that differ between two configurations and their runs. `seeds` are those of both groups.
pub(super) fn differing(
    (a, b): (&Configuration, &Configuration),
    (run_a, run_b): (&Manifest, &Manifest),
    seeds: (&[u64], &[u64]),
) -> Vec<SettingDifference> {
    let mut all = Vec::new();
    let mut set = |setting: &str, a: String, b: String| {
        if a != b {
            all.push(SettingDifference { setting: setting.to_owned(), a, b });
        }
    };
    set("formulation", a.formulation.to_string(), b.formulation.to_string());
    set("behaviour", a.behaviour.to_string(), b.behaviour.to_string());
    set("rounds", a.max_rounds.to_string(), b.max_rounds.to_string());
    let roles: BTreeSet<Role> = a.models.keys().chain(b.models.keys()).copied().collect();
    for role in roles {
        set(role.name(), model(a, role), model(b, role));
    }
    let tools = |configuration: &Configuration| -> BTreeMap<String, String> {
        let tools = configuration.tools.iter();
        tools.map(|tool| (tool.tool.clone(), format!("{} version {}", tool.backend, tool.version))).collect()
    };
    let (tools_a, tools_b) = (tools(a), tools(b));
    for tool in tools_a.keys().chain(tools_b.keys()).collect::<BTreeSet<_>>() {
        let of = |tools: &BTreeMap<String, String>| tools.get(tool).cloned().unwrap_or_else(none);
        set(&format!("tool {tool}"), of(&tools_a), of(&tools_b));
    }
    set("sampling", sampling(a.generation.sampling), sampling(b.generation.sampling));
    let tokens = |configuration: &Configuration| configuration.generation.max_new_tokens.to_string();
    set("max new tokens", tokens(a), tokens(b));
    let list = |seeds: &[u64]| seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    set("seeds", list(seeds.0), list(seeds.1));
    set("prompts", a.prompts.short().to_owned(), b.prompts.short().to_owned());
    let data = |manifest: &Manifest| {
        let data = manifest.data_of(&a.benchmark);
        data.map_or_else(none, |data| format!("{} (sha256 {})", data.source, data.sha256.short()))
    };
    set("data", data(run_a), data(run_b));
    let (flags_a, flags_b) = (settings(&run_a.spec, &run_b.spec), settings(&run_b.spec, &run_a.spec));
    let roles = Role::ALL.map(|role| format!("--{}", role.name()));
    for flag in flags_a.keys().chain(flags_b.keys()).collect::<BTreeSet<_>>() {
        if !DESCRIBED.contains(&flag.as_str()) && !roles.contains(flag) {
            let of = |flags: &BTreeMap<String, String>| flags.get(flag).cloned().unwrap_or_else(none);
            set(flag, of(&flags_a), of(&flags_b));
        }
    }
    let version = |manifest: &Manifest| {
        let version = manifest.versions.get("lumos").cloned().unwrap_or_default();
        let revision = manifest.git_revision.as_ref().map(|revision| format!(" ({revision})"));
        format!("{version}{}", revision.unwrap_or_default())
    };
    set("lumos", version(run_a), version(run_b));
    let device = |manifest: &Manifest| manifest.spec.device.to_string();
    set("device (may not matter)", device(run_a), device(run_b));
    all
}

fn none() -> String {
    "none".to_owned()
}

fn model(configuration: &Configuration, role: Role) -> String {
    configuration.models.get(&role).map_or_else(none, |model| {
        let dtype = model.dtype.as_ref().map(|dtype| format!(", {dtype}")).unwrap_or_default();
        format!("{} (content {}{dtype})", model.name, model.content.short())
    })
}

fn sampling(sampling: Sampling) -> String {
    match sampling {
        Sampling::Greedy => "greedy".to_owned(),
        Sampling::Random { temperature, top_p, top_k } => {
            let top_p = top_p.map(|top_p| format!(", top-p {top_p}")).unwrap_or_default();
            let top_k = top_k.map(|top_k| format!(", top-k {top_k}")).unwrap_or_default();
            format!("temperature {temperature}{top_p}{top_k}")
        }
    }
}
