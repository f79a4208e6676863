//! Decides whether a figure can be compared with published figures: only on the published items and with the
//! published settings. Models may differ, because they are what is compared.

use lumos_benchmarks::{Benchmark, Scoring};
use lumos_coordinator::manifest::{DataRecord, Manifest};
use lumos_coordinator::spec::{ItemChoice, ResolvedSpec};
use lumos_tasks::{Behaviour, Configuration, GenerationSettings, Sampling};

use crate::display::thousands;
use crate::ledger::Ledger;

/// Returns the reasons why a configuration's figures under a scoring cannot be compared with published ones,
/// most important first. Empty if they can.
pub(super) fn obstacles(
    manifest: &Manifest,
    configuration: &Configuration,
    benchmark: &dyn Benchmark,
    scoring: Scoring,
    ledger: &Ledger,
) -> Vec<String> {
    let data = manifest.data_of(&configuration.benchmark);
    let mut found = items(&manifest.spec, data, benchmark, ledger);
    found.extend(settings(configuration, benchmark));
    if scoring != Scoring::Paper {
        found.push(format!("{scoring} scoring"));
    }
    found
}

/// Returns the differences from the published items.
fn items(
    spec: &ResolvedSpec,
    data: Option<&DataRecord>,
    benchmark: &dyn Benchmark,
    ledger: &Ledger,
) -> Vec<String> {
    let official = benchmark.downloads().iter().find(|download| download.file == benchmark.data_file());
    // A definition vouches for its own data.
    let is_known = official.is_some() || benchmark.definition().is_some();
    let (Some(published), true, Some(data)) = (benchmark.published_items(), is_known, data) else {
        return vec!["checksum of the published items unknown".to_owned()];
    };
    let count = published.count();
    let mut found = Vec::new();
    if ledger.settled() != count {
        let joint = if ledger.settled() > count { "instead of" } else { "of" };
        found.push(format!("{} {joint} {} items", thousands(ledger.settled()), thousands(count)));
    }
    if official.is_some_and(|official| data.sha256.as_str() != official.sha256) {
        let source = if spec.data.is_none() { "built-in samples" } else { "data with a different checksum" };
        found.push(format!("{source} instead of the published file"));
    }
    if data.invalid > 0 {
        found.push(format!("{} malformed records skipped", thousands(data.invalid)));
    }
    let others = match spec.items.get(benchmark.name()) {
        Some(ItemChoice::Chosen(chosen)) => chosen.last() != count.checked_sub(1),
        Some(ItemChoice::All | ItemChoice::First(_)) | None => false,
    };
    if found.is_empty() && others {
        found.push(format!("not the first {} items", thousands(count)));
    }
    found
}

/// Returns the differences from the published settings.
fn settings(configuration: &Configuration, benchmark: &dyn Benchmark) -> Vec<String> {
    let Configuration { behaviour, generation, max_rounds, prompts, tools, .. } = configuration;
    let mut found = Vec::new();
    if *behaviour != Behaviour::Paper {
        found.push(format!("{behaviour} behaviour"));
    }
    if let Sampling::Random { temperature, .. } = generation.sampling {
        found.push(format!("sampling at temperature {temperature}"));
    }
    let usual = GenerationSettings::default().max_new_tokens;
    if generation.max_new_tokens != usual {
        found.push(format!("replies of at most {} tokens instead of {usual}", generation.max_new_tokens));
    }
    let rounds = benchmark.max_rounds(Behaviour::Paper);
    if *max_rounds != rounds {
        found.push(format!("at most {max_rounds} rounds instead of {rounds}"));
    }
    if *prompts != benchmark.prompts_hash() {
        found.push("different prompts".to_owned());
    }
    for tool in tools {
        // Native maths returns what WolframAlpha returned, and SQLite what MySQL returns
        // (`docs/fidelity.md`).
        let published = match tool.tool.as_str() {
            "rank" => "dpr",
            "wiki" => "live",
            _ => continue,
        };
        let backend = tool.backend.split([':', '#']).next().unwrap_or_default();
        if backend != published {
            found.push(format!("{}={backend} instead of {}={published}", tool.tool, tool.tool));
        }
    }
    found
}
