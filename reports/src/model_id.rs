//! Names of models for other tools: `owner/name` ids and short aliases.
//!
//! Readers of evaluation results identify a model by an id such as `ai2lumos/lumos_maths_plan_iterative`. Lumos's own
//! names contain a backend and often a path, and a run has several models. [`ModelNames`] derives one id from them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lumos_tasks::{Configuration, ModelIdentity, Role};

use lumos_coordinator::manifest::Manifest;

use crate::results::Labels;

/// Maximum length of an id's developer and name, in characters.
const LONGEST: usize = 96;

/// Developer of models that have no owner on the hub.
const LOCAL: &str = "lumos";

/// Id of a model, or of several models that are evaluated together: `owner/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    pub(crate) developer: String,
    pub(crate) name: String,
}

impl ModelId {
    /// Returns the id as a file name: runs of characters that some file systems forbid become `__`, as in lm-eval.
    pub(crate) fn sanitized(&self) -> String {
        let mut text = String::new();
        for character in self.to_string().chars() {
            if !r#""<>:/|\?*[]"#.contains(character) {
                text.push(character);
            } else if !text.ends_with("__") {
                text.push_str("__");
            }
        }
        text
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.developer, self.name)
    }
}

impl FromStr for ModelId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_word = |word: &str| {
            let allowed = |character: char| character.is_ascii_alphanumeric() || "._+-".contains(character);
            !word.is_empty() && word.len() <= LONGEST && !word.starts_with('.') && word.chars().all(allowed)
        };
        match text.split_once('/') {
            Some((developer, name)) if is_word(developer) && is_word(name) => {
                Ok(Self { developer: developer.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!(
                "expected owner/name of letters, digits and . _ + -, such as lumos/tiny: `{text}`"
            )),
        }
    }
}

/// Returns the model names of each role, planner first. A role has several names if configurations differ.
pub(crate) fn models_by_role(manifest: &Manifest) -> BTreeMap<Role, Vec<&str>> {
    let mut named: BTreeMap<Role, Vec<&str>> = BTreeMap::new();
    for (role, model) in manifest.configurations.iter().flat_map(|planned| &planned.configuration.models) {
        let names = named.entry(*role).or_default();
        if !names.contains(&model.name.as_str()) {
            names.push(&model.name);
        }
    }
    named
}

/// Names that an export uses for models: given ones, otherwise derived ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNames {
    /// Id of all models together, in place of the derived one.
    pub id: Option<ModelId>,
    /// Aliases by model name, or by the last component of its path.
    pub labels: Labels,
}

impl ModelNames {
    /// Returns the id of the models of a run.
    pub(crate) fn of_run(&self, manifest: &Manifest) -> ModelId {
        let by_role = models_by_role(manifest);
        self.id_of(by_role.values().flatten().copied())
    }

    /// Returns the id of the models of a configuration.
    pub(crate) fn of_configuration(&self, configuration: &Configuration) -> ModelId {
        self.id_of(configuration.models.values().map(|model| model.name.as_str()))
    }

    /// Returns the id of one model.
    pub(crate) fn of_model(&self, model: &ModelIdentity) -> ModelId {
        Self { id: None, labels: self.labels.clone() }.id_of([model.name.as_str()])
    }

    /// Returns the alias of a model, for tables.
    pub(crate) fn alias(&self, name: &str) -> String {
        self.label(name).map_or_else(|| last_component(name), str::to_owned)
    }

    /// Returns the given alias of a model.
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.of(name).or_else(|| self.labels.of(&last_component(name)))
    }

    /// Returns the aliases of a configuration's models, planner first, without repetitions: `plan + ground`.
    pub(crate) fn aliases(&self, configuration: &Configuration) -> String {
        let mut aliases: Vec<String> = Vec::new();
        for model in configuration.models.values() {
            let alias = self.alias(&model.name);
            if !aliases.contains(&alias) {
                aliases.push(alias);
            }
        }
        aliases.join(" + ")
    }

    fn id_of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> ModelId {
        if let Some(id) = &self.id {
            return id.clone();
        }
        let mut distinct: Vec<&str> = Vec::new();
        for name in names {
            if !distinct.contains(&name) {
                distinct.push(name);
            }
        }
        if let [name] = distinct[..]
            && self.label(name).is_none()
            && let Some(id) = hub_id(name)
        {
            return id;
        }
        let mut aliases: Vec<String> = Vec::new();
        for alias in distinct.iter().map(|name| cleaned(&self.alias(name))) {
            if !aliases.contains(&alias) {
                aliases.push(alias);
            }
        }
        let name: String = aliases.join("+").chars().take(LONGEST).collect();
        let name = if name.is_empty() { "model".to_owned() } else { name };
        ModelId { developer: LOCAL.to_owned(), name }
    }
}

/// Removes the backend, the address of a server and the revision: `org/model` of `candle:org/model@main`.
fn plain(name: &str) -> String {
    let rest = name.split_once(':').map_or(name, |(_, rest)| rest);
    let parts: Vec<&str> = rest.split('+').map(|part| part.split('@').next().unwrap_or(part)).collect();
    parts.join("+")
}

/// Returns the id of a model that is named like one of the hub.
fn hub_id(name: &str) -> Option<ModelId> {
    let is_named = ["candle:", "openai:"].iter().any(|backend| name.starts_with(backend));
    plain(name).parse().ok().filter(|_| is_named && !name.contains('+'))
}

/// Returns the last component of a model's path, without the ending of a GGUF file.
fn last_component(name: &str) -> String {
    let plain = plain(name);
    let last = |part: &str| {
        let part = part.trim_end_matches('/');
        let last = part.rsplit('/').next().unwrap_or(part);
        last.strip_suffix(".gguf").unwrap_or(last).to_owned()
    };
    plain.split('+').map(last).collect::<Vec<_>>().join("+")
}

/// Replaces characters that an id may not contain.
fn cleaned(alias: &str) -> String {
    let clean = |character: char| {
        if character.is_ascii_alphanumeric() || "._+-".contains(character) { character } else { '-' }
    };
    alias.chars().map(clean).collect::<String>().trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_derived_from_names() {
        let id = |names: &[&str]| ModelNames::default().id_of(names.iter().copied()).to_string();
        assert_eq!(id(&["builtin:tiny", "builtin:tiny"]), "lumos/tiny");
        assert_eq!(id(&["candle:org/model@main"]), "org/model");
        assert_eq!(id(&["openai:org/model@http://host:8000/v1"]), "org/model");
        assert_eq!(id(&["openai:gpt-4@https://api.openai.com/v1"]), "lumos/gpt-4");
        assert_eq!(id(&["candle:/a/b/my model.gguf"]), "lumos/my-model");
        assert_eq!(id(&["candle:models/planner", "candle:models/grounder"]), "lumos/planner+grounder");
        assert_eq!(id(&["candle:org/base@main+adapters/plan"]), "lumos/base+plan");
        assert_eq!(id(&[]), "lumos/model");
        assert!(id(&["candle:/"]).starts_with("lumos/"));
    }

    #[test]
    fn given_names_come_first() {
        let labels = Labels::parse(&["planner=Lumos P", "model=M"]).unwrap();
        let names = ModelNames { id: None, labels };
        assert_eq!(names.alias("candle:/models/planner"), "Lumos P");
        assert_eq!(names.id_of(["candle:/models/planner"]).to_string(), "lumos/Lumos-P");
        assert_eq!(names.id_of(["candle:org/model@main"]).to_string(), "lumos/M");
        let names = ModelNames { id: Some("me/mine".parse().unwrap()), ..names };
        assert_eq!(names.id_of(["builtin:tiny"]).to_string(), "me/mine");
    }

    #[test]
    fn ids_are_checked_and_become_file_names() {
        for wrong in ["", "x", "a/", "/b", "a/b/c", "../b", "a/b c", "a/.b"] {
            assert!(wrong.parse::<ModelId>().is_err(), "{wrong}");
        }
        assert_eq!("a/b".parse::<ModelId>().unwrap().sanitized(), "a__b");
        let id = ModelId { developer: "a:".to_owned(), name: "b[c]".to_owned() };
        assert_eq!(id.sanitized(), "a__b__c__");
    }
}
