//! What differs between two runs, in words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Manifest;

/// Fields that may change when a run continues: they say where and how fast, not what.
const FREE: [&str; 11] = [
    "name",
    "scoring",
    "data",
    "output_path",
    "batch_size",
    "device",
    "memory",
    "swap",
    "places",
    "limits",
    "skip_invalid",
];

/// What makes `asked` another run than `found`, one line each. Never empty.
pub(crate) fn differences(found: &Manifest, asked: &Manifest) -> Vec<String> {
    let mut lines = Vec::new();
    let spec = |manifest: &Manifest| serde_json::to_value(&manifest.spec).unwrap_or_default();
    fields(&spec(found), &spec(asked), &mut lines);
    for data in &asked.data {
        if let Some(other) = found.data_of(&data.benchmark).filter(|other| other.items != data.items) {
            lines.push(if other.sha256 == data.sha256 {
                format!("items of {}: {} there, {} here", data.benchmark, other.selected, data.selected)
            } else {
                format!(
                    "data of {}: {} ({}) there, {} ({}) here",
                    data.benchmark,
                    other.source,
                    other.sha256.short(),
                    data.source,
                    data.sha256.short()
                )
            });
        }
    }
    for model in &asked.models {
        let same_name = found.models.iter().filter(|other| other.identity.name == model.identity.name);
        for other in same_name.filter(|other| other.identity.content != model.identity.content) {
            let changed: Vec<&str> = model
                .files
                .iter()
                .filter(|file| !other.files.contains(file))
                .map(|file| file.name.as_str())
                .collect();
            lines.push(format!(
                "model {}: its content has changed ({})",
                model.identity.name,
                if changed.is_empty() { "files were removed".to_owned() } else { changed.join(", ") }
            ));
        }
        let same_name = found.models.iter().filter(|other| other.identity.name == model.identity.name);
        for other in same_name.filter(|other| other.identity.dtype != model.identity.dtype) {
            let name = |dtype: &Option<String>| dtype.clone().unwrap_or_else(|| "its own type".to_owned());
            lines.push(format!(
                "model {}: computed in {} there, in {} here",
                model.identity.name,
                name(&other.identity.dtype),
                name(&model.identity.dtype)
            ));
        }
    }
    for (benchmark, prompts) in &asked.prompts {
        if found.prompts.get(benchmark).is_some_and(|other| other != prompts) {
            lines.push(format!("prompts of {benchmark}: this program's differ from those of the run"));
        }
    }
    let tools = |manifest: &Manifest| -> BTreeSet<_> {
        manifest.configurations.iter().flat_map(|one| one.configuration.tools.clone()).collect()
    };
    let (before, now) = (tools(found), tools(asked));
    for tool in now.iter().filter(|tool| !before.contains(tool)) {
        if let Some(other) = before.iter().find(|other| other.tool == tool.tool && !now.contains(other)) {
            lines.push(format!(
                "tool {}: {} (version {}) there, {} (version {}) here",
                tool.tool, other.backend, other.version, tool.backend, tool.version
            ));
        }
    }
    if lines.is_empty() {
        lines.push(format!(
            "configurations: {} there, {} here",
            found.identity.short(),
            asked.identity.short()
        ));
    }
    lines
}

fn fields(found: &Value, asked: &Value, lines: &mut Vec<String>) {
    let (Value::Object(found), Value::Object(asked)) = (found, asked) else { return };
    let names: BTreeSet<&String> = found.keys().chain(asked.keys()).collect();
    for name in names.into_iter().filter(|name| !FREE.contains(&name.as_str())) {
        let (before, now) = (found.get(name), asked.get(name));
        if before != now {
            lines.push(format!("{name}: {} there, {} here", shown(before), shown(now)));
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(value) => value.to_string(),
    }
}
