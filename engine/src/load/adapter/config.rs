//! Parses and validates peft's `adapter_config.json`
//! (<https://huggingface.co/docs/peft/package_reference/lora#peft.LoraConfig>).

use std::path::Path;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::LoadError;

/// Fields that, when set, make an adapter more than an added product of two matrices.
const FOREIGN: [&str; 12] = [
    "target_parameters",
    "use_dora",
    "fan_in_fan_out",
    "lora_bias",
    "layer_replication",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "use_qalora",
    "use_bdlora",
    "arrow_config",
    "monteclora_config",
    "kasa_config",
];

/// Initialisations that leave the base's weights unchanged; others move a part of them into the adapter.
const INITIALISATIONS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The model that an adapter was trained on, as named in its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterBase {
    /// `base_model_name_or_path`: a folder, or an id of the Hugging Face hub.
    pub name: String,
    /// `revision`: branch, tag or commit of that id.
    pub revision: Option<String>,
}

/// How an adapter is added to its base.
#[derive(Debug)]
pub(super) struct AdapterConfig {
    rank: usize,
    alpha: f64,
    rank_stabilised: bool,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
    /// Modules that were fully trained.
    pub(super) replaced: Vec<String>,
}

#[derive(Deserialize)]
struct RawConfig {
    r: usize,
    lora_alpha: f64,
    use_rslora: Option<bool>,
    bias: Option<String>,
    rank_pattern: Option<Map<String, Value>>,
    alpha_pattern: Option<Map<String, Value>>,
    modules_to_save: Option<Vec<String>>,
    init_lora_weights: Option<Value>,
}

#[derive(Deserialize)]
struct RawBase {
    base_model_name_or_path: Option<String>,
    revision: Option<String>,
}

impl AdapterConfig {
    /// Parses and validates a configuration.
    pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Self, LoadError> {
        let json = LoadError::json(file);
        let unsupported = |reason: String| LoadError::UnsupportedAdapter { file: file.to_owned(), reason };
        let invalid = |reason: String| LoadError::InvalidAdapter { file: file.to_owned(), reason };
        // Checks the adapter type first, because other types have different fields.
        let fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(&json)?;
        match fields.get("peft_type").and_then(Value::as_str) {
            Some("LORA") => {}
            Some(kind) => return Err(unsupported(format!("peft_type is {kind:?}, not \"LORA\""))),
            None => return Err(invalid("peft_type is missing".to_owned())),
        }
        if let Some((name, value)) =
            FOREIGN.iter().find_map(|name| Some((name, fields.get(*name).filter(|value| is_set(value))?)))
        {
            return Err(unsupported(format!("{name} is {value}")));
        }
        let raw: RawConfig = serde_json::from_value(Value::Object(fields)).map_err(json)?;
        if let Some(bias) = raw.bias.filter(|bias| bias != "none") {
            return Err(unsupported(format!("bias is {bias:?}, not \"none\"")));
        }
        let initialisation = raw.init_lora_weights.as_ref().and_then(Value::as_str);
        if let Some(name) = initialisation.filter(|name| !INITIALISATIONS.contains(name)) {
            let reason = format!("init_lora_weights is {name:?}, which changes the base's weights");
            return Err(unsupported(reason));
        }
        let ranks = patterns(raw.rank_pattern, |value| value.as_u64().and_then(|rank| rank.try_into().ok()))
            .map_err(|reason| invalid(format!("rank_pattern: {reason}")))?;
        let alphas = patterns(raw.alpha_pattern, Value::as_f64)
            .map_err(|reason| invalid(format!("alpha_pattern: {reason}")))?;
        if raw.r == 0 || ranks.iter().any(|(_, rank)| *rank == 0) {
            return Err(invalid("r and the ranks in rank_pattern must be positive".to_owned()));
        }
        Ok(Self {
            rank: raw.r,
            alpha: raw.lora_alpha,
            rank_stabilised: raw.use_rslora.unwrap_or(false),
            ranks,
            alphas,
            replaced: raw.modules_to_save.unwrap_or_default(),
        })
    }

    /// The rank of a module's matrices.
    pub(super) fn rank(&self, module: &str) -> usize {
        first_match(&self.ranks, module).unwrap_or(self.rank)
    }

    /// The factor of a module's product: `alpha / r`, or `alpha / √r` with rank stabilisation
    /// (<https://arxiv.org/abs/2312.03732>).
    pub(super) fn scale(&self, module: &str) -> f32 {
        let rank = self.rank(module) as f64;
        let alpha = first_match(&self.alphas, module).unwrap_or(self.alpha);
        (alpha / if self.rank_stabilised { rank.sqrt() } else { rank }) as f32
    }
}

/// Parses the model that an adapter was trained on.
pub(super) fn base(bytes: &[u8], file: &Path) -> Result<AdapterBase, LoadError> {
    let raw: RawBase = serde_json::from_slice(bytes).map_err(LoadError::json(file))?;
    let named = raw.base_model_name_or_path.filter(|name| !name.trim().is_empty());
    let name = named.ok_or_else(|| LoadError::InvalidAdapter {
        file: file.to_owned(),
        reason: "base_model_name_or_path is missing, so the base must be named with the adapter".to_owned(),
    })?;
    Ok(AdapterBase { name, revision: raw.revision.filter(|revision| !revision.is_empty()) })
}

/// Whether a field that is off by default is on.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
        _ => true,
    }
}

/// Patterns of module names, in file order. As in peft, a pattern is a regular expression that matches the
/// whole name or the part after one of its dots.
fn patterns<T>(
    map: Option<Map<String, Value>>,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(Regex, T)>, String> {
    let pattern = |(text, value): (String, Value)| {
        let read = read(&value).ok_or_else(|| format!("{text:?} has the value {value}"))?;
        let regex = Regex::new(&format!(r"^(?:.*\.)?(?:{text})$"))
            .map_err(|error| format!("{text:?} is not a supported regular expression: {error}"))?;
        Ok((regex, read))
    };
    map.unwrap_or_default().into_iter().map(pattern).collect()
}

fn first_match<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const QUERY: &str = "model.layers.1.self_attn.q_proj";

    fn parse(extra: &Value) -> Result<AdapterConfig, LoadError> {
        let mut config = json!({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none"});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        AdapterConfig::parse(config.to_string().as_bytes(), Path::new("adapter_config.json"))
    }

    #[test]
    fn scales_follow_rank_alpha_and_their_patterns() {
        let scale = |extra: Value| parse(&extra).unwrap().scale(QUERY);
        assert_eq!(scale(json!({})), 2.0);
        assert_eq!(scale(json!({"use_rslora": true, "r": 16})), 4.0);
        assert_eq!(scale(json!({"rank_pattern": {"q_proj": 4}})), 4.0);
        assert_eq!(scale(json!({"alpha_pattern": {"layers.1.self_attn.q_proj": 4}})), 0.5);
        assert_eq!(scale(json!({"alpha_pattern": {r"layers\.[12]\..*_proj": 8, "q_proj": 4}})), 1.0);
        // A suffix that does not start at a dot does not match, and neither does a prefix.
        assert_eq!(scale(json!({"rank_pattern": {"proj": 4, "layers.1": 4, "_proj": 2}})), 2.0);
        let config =
            parse(&json!({"rank_pattern": {"a|q_proj": 4}, "modules_to_save": ["lm_head"]})).unwrap();
        assert_eq!((config.rank(QUERY), config.rank("model.layers.1.mlp.b")), (4, 8));
        assert_eq!(config.replaced, ["lm_head"]);
    }

    #[test]
    fn what_is_no_plain_product_is_refused_by_its_field() {
        for (extra, word) in [
            (json!({"peft_type": "IA3"}), "IA3"),
            (json!({"use_dora": true}), "use_dora"),
            (json!({"fan_in_fan_out": true}), "fan_in_fan_out"),
            (json!({"bias": "lora_only"}), "lora_only"),
            (json!({"layer_replication": [[0, 2], [1, 2]]}), "layer_replication"),
            (json!({"alora_invocation_tokens": [1, 2]}), "alora_invocation_tokens"),
            (json!({"init_lora_weights": "pissa_niter_4"}), "pissa_niter_4"),
        ] {
            let error = parse(&extra).unwrap_err();
            assert!(matches!(error, LoadError::UnsupportedAdapter { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("adapter_config.json: ") && text.contains(word), "{text}");
        }
        for extra in [
            json!({"use_dora": false, "layer_replication": null, "rank_pattern": {}, "init_lora_weights": true}),
            json!({"init_lora_weights": "gaussian", "target_modules": "all-linear", "lora_alpha": 1.5}),
        ] {
            parse(&extra).unwrap();
        }
        for (extra, word) in [
            (json!({"r": 0}), "positive"),
            (json!({"rank_pattern": {"q_proj": "many"}}), "q_proj"),
            (json!({"alpha_pattern": {"(?=q)": 4}}), "(?=q)"),
            (json!({"peft_type": null}), "peft_type"),
            (json!({"lora_alpha": null}), "invalid type"),
        ] {
            let text = parse(&extra).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn the_base_is_as_it_was_written() {
        let read = |text: &str| base(text.as_bytes(), Path::new("adapter_config.json"));
        let found = read(r#"{"base_model_name_or_path": "org/model", "revision": "v1"}"#).unwrap();
        assert_eq!((found.name.as_str(), found.revision.as_deref()), ("org/model", Some("v1")));
        let none = read(r#"{"base_model_name_or_path": null}"#).unwrap_err().to_string();
        assert!(none.contains("base_model_name_or_path"), "{none}");
    }
}
