//! [`Configuration`]: everything except the item that can influence a trajectory.
//!
//! Its [`identity`](Configuration::identity) is a part of a unit's identity; its
//! [`shard`](Configuration::shard) selects the shard of the work queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::families::agent::AgentDefinition;
use crate::formulation::{Behaviour, Formulation};
use crate::identity::ContentHash;
use crate::prompt_format::PromptFormat;
use crate::request::{Role, Sampling};

/// A model as far as a trajectory depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// The name that the user gave (`candle:models/planner`, `builtin:tiny`); workers find the model by it.
    pub name: String,
    /// Hash over weights, tokenizer and configuration, or over the script.
    pub content: ContentHash,
    /// The type that the model computes in (`f32`, `bf16`, `f16`), if the backend has a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
}

/// The backend behind one tool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToolBackend {
    /// The tool, such as `maths`.
    pub tool: String,
    /// Its backend: `native`, `wolfram`, `bm25`; a backend that reads a file includes its hash:
    /// `recorded:cases.jsonl#1b2c…`.
    pub backend: String,
    /// Incremented when the backend's answers change, so that identities change too.
    pub version: u32,
}

impl ToolBackend {
    /// The built-in tools.
    pub const BUILT_IN: [&'static str; 6] = ["maths", "rank", "shop", "sql", "web", "wiki"];

    /// Maximum length of a tool's name in characters.
    pub const LONGEST_TOOL_NAME: usize = 64;

    /// Whether a text can be the name of a tool that is not built in.
    pub fn is_tool_name(name: &str) -> bool {
        let plain = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || "-_".contains(character)
        };
        name.len() <= Self::LONGEST_TOOL_NAME
            && name.chars().next().is_some_and(|first| first.is_ascii_lowercase())
            && name.chars().all(plain)
            && Role::ALL.iter().all(|role| role.name() != name)
    }

    /// Suffix of a backend's name if its answers were made from a benchmark's items.
    pub const MADE_OF_ITEMS: &'static str = "+items";

    /// Whether its answers were made from a benchmark's items and may therefore contain the answers. Such
    /// figures only show that the pipeline works.
    pub fn is_made_of_items(&self) -> bool {
        self.backend.ends_with(Self::MADE_OF_ITEMS)
    }

    /// The backend without the path of its file, which is between its kind and its hash. If the name
    /// has anything other than a path there, the hash covers it.
    fn without_path(&self) -> Self {
        let content =
            self.backend.rsplit_once('#').and_then(|(name, hash)| Some((name.split_once(':')?.0, hash)));
        let backend = content.map_or_else(|| self.backend.clone(), |(kind, hash)| format!("{kind}:#{hash}"));
        Self { backend, ..self.clone() }
    }
}

/// How replies are generated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GenerationSettings {
    /// Greedy or sampled.
    pub sampling: Sampling,
    /// Maximum number of tokens in a reply (512 in the original).
    pub max_new_tokens: u32,
}

impl Default for GenerationSettings {
    fn default() -> Self {
        Self { sampling: Sampling::Greedy, max_new_tokens: 512 }
    }
}

/// One cell of a run's matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Name of the benchmark.
    pub benchmark: String,
    /// How planner and grounder take turns.
    pub formulation: Formulation,
    /// Agent behaviour: `paper` or `corrected`.
    pub behaviour: Behaviour,
    /// Maximum number of planner turns in an iterative episode.
    pub max_rounds: u32,
    /// Models by role.
    pub models: BTreeMap<Role, ModelIdentity>,
    /// Backends of the tools, sorted by tool.
    pub tools: Vec<ToolBackend>,
    /// How replies are generated.
    pub generation: GenerationSettings,
    /// Seed of the repetition.
    pub seed: u64,
    /// Hash of the family's prompt texts.
    pub prompts: ContentHash,
    /// How conversations reach the models.
    #[serde(default, skip_serializing_if = "PromptFormat::is_default")]
    pub format: PromptFormat,
    /// The agent that answers questions, if it is not the published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<AgentDefinition>>,
}

impl Configuration {
    /// Start of the names of models with a chat interface.
    pub const CHAT: &'static str = "openai-chat:";

    /// Hash of everything that can influence a trajectory. Names of models and paths of tools' files are
    /// excluded: the same weights in another folder are the same model.
    pub fn identity(&self) -> ContentHash {
        let models: Vec<_> =
            self.models.iter().map(|(role, model)| (role, &model.content, &model.dtype)).collect();
        let tools: Vec<_> = self.tools.iter().map(ToolBackend::without_path).collect();
        let identity = ContentHash::of_json(&(
            "configuration/1",
            &self.benchmark,
            self.formulation,
            self.behaviour,
            self.max_rounds,
            models,
            tools,
            self.generation,
            self.seed,
            &self.prompts,
        ));
        // Added only if set, so that other units keep the identities of earlier versions.
        let more = [self.format.hash(), self.agent.as_ref().map(|agent| agent.hash())];
        more.into_iter().flatten().fold(identity, |identity, hash| ContentHash::of_json(&(identity, hash)))
    }

    /// Whether the model of a role takes messages over a server's chat interface.
    pub fn is_chat(&self, role: Role) -> bool {
        self.models.get(&role).is_some_and(|model| model.name.starts_with(Self::CHAT))
    }

    /// Whether all versions of this program that know [`PROTOCOL`](crate::fleet::PROTOCOL) run this configuration as
    /// this one does.
    pub(crate) fn is_plain(&self) -> bool {
        self.format.is_default() && !self.models.keys().any(|role| self.is_chat(*role))
    }

    /// Whether it has an agent of a task file, or a tool that is not built in.
    pub(crate) fn is_extended(&self) -> bool {
        let built_in = |tool: &ToolBackend| ToolBackend::BUILT_IN.contains(&tool.tool.as_str());
        self.agent.is_some() || !self.tools.iter().all(built_in)
    }

    /// Whether pages of a web task are shown in a browser that can execute actions: the backend is neither
    /// `native` nor recorded.
    pub fn has_browser(&self) -> bool {
        let is_browser = |backend: &str| {
            let kind = backend.split([':', '#']).next().unwrap_or_default();
            !matches!(kind, "native" | "recorded")
        };
        self.tools.iter().any(|tool| tool.tool == "web" && is_browser(&tool.backend))
    }

    /// Identifies the queue shard. Units that need the same models and tools share one, so that weights stay
    /// loaded.
    pub fn shard(&self) -> ContentHash {
        let models: Vec<_> = self.models.values().map(|model| (&model.content, &model.dtype)).collect();
        ContentHash::of_json(&("lane/1", models, &self.tools))
    }

    /// A short label for people: `gsm8k iterative paper seed 0`.
    pub fn label(&self) -> String {
        format!("{} {} {} seed {}", self.benchmark, self.formulation, self.behaviour, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt_format::PromptTemplate;

    fn configuration(path: &str, content: &[u8]) -> Configuration {
        let model = ModelIdentity {
            name: path.to_owned(),
            content: ContentHash::of_bytes(content),
            dtype: Some("f32".to_owned()),
        };
        Configuration {
            benchmark: "gsm8k".to_owned(),
            formulation: Formulation::Iterative,
            behaviour: Behaviour::Paper,
            max_rounds: 8,
            models: BTreeMap::from([(Role::Planner, model)]),
            tools: Vec::new(),
            generation: GenerationSettings::default(),
            seed: 0,
            prompts: ContentHash::of_bytes(b"prompts"),
            format: PromptFormat::default(),
            agent: None,
        }
    }

    #[test]
    fn pages_are_shown_in_a_browser_or_read() {
        let with = |tool: &str, backend: &str| {
            let tool = ToolBackend { tool: tool.to_owned(), backend: backend.to_owned(), version: 1 };
            Configuration { tools: vec![tool], ..configuration("candle:/a", b"weights") }.has_browser()
        };
        for backend in ["chromedriver", "http://grid:4444/"] {
            assert!(with("web", backend) && !with("shop", backend), "{backend}");
        }
        for backend in ["native", "recorded:cases.jsonl#0123"] {
            assert!(!with("web", backend), "{backend}");
        }
        assert!(!configuration("candle:/a", b"weights").has_browser());
    }

    #[test]
    fn lumos_s_own_layout_keeps_the_identities_of_earlier_versions() {
        let plain = configuration("candle:/a", b"weights");
        assert_eq!(
            plain.identity().as_str(),
            "e4baa759d60f4bf4151c9a74d4253aba376e83218ec1c7bf67a3884e277919ec"
        );
        let json = serde_json::to_value(&plain).unwrap();
        assert_eq!(json.get("format"), None);
        assert_eq!(serde_json::from_value::<Configuration>(json).unwrap(), plain);
        let chatml = PromptFormat { template: PromptTemplate::Chatml, exemplars: None };
        let other = Configuration { format: chatml, ..plain.clone() };
        assert_ne!(other.identity(), plain.identity());
        let json = serde_json::to_value(&other).unwrap();
        assert_eq!(serde_json::from_value::<Configuration>(json).unwrap(), other);
    }

    #[test]
    fn identity_follows_content_and_not_paths() {
        let here = configuration("candle:/a", b"weights");
        assert_eq!(here.identity(), configuration("candle:/b", b"weights").identity());
        assert_ne!(here.identity(), configuration("candle:/a", b"other").identity());
        let with = |backend: &str| {
            let tool = ToolBackend { tool: "wiki".to_owned(), backend: backend.to_owned(), version: 1 };
            Configuration { tools: vec![tool], ..here.clone() }.identity()
        };
        assert_eq!(with("corpus:a.jsonl#0123"), with("corpus:b#c.jsonl#0123"));
        assert_ne!(with("corpus:a.jsonl#0123"), with("corpus:a.jsonl#4567"));
        assert_ne!(with("live#http://a"), with("live#http://b"));
        assert_ne!(with("live"), with("live#http://b"));
        let other_seed = Configuration { seed: 1, ..here.clone() };
        assert_ne!(here.identity(), other_seed.identity());
        assert_eq!(here.shard(), other_seed.shard());
    }
}
