//! [`EngineUse`]: telemetry about a worker's engines. It has no influence on results.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::configuration::ModelIdentity;
use crate::identity::ContentHash;
use crate::request::Role;

/// An engine of a process, with its loads since the process started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineUse {
    /// The first twelve digits of the model's content hash.
    pub model: String,
    /// [`ModelIdentity::dtype`].
    pub dtype: Option<String>,
    /// Roles that it answered requests for.
    pub roles: BTreeSet<Role>,
    /// The device: `cpu`, `cuda:0`. A string, so that an unknown device name does not invalidate a message.
    pub device: String,
    /// Type of the weights in memory: `bf16`, `Q4_K + Q6_K`. `None` until the model is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Whether it shares the device's memory with other models in turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// Number of loads.
    pub loads: u64,
    /// Total load time in seconds.
    pub load_seconds: f64,
}

impl EngineUse {
    /// An engine that has not been loaded yet.
    pub fn new(model: &ModelIdentity, device: String) -> Self {
        Self {
            model: digits(&model.content),
            dtype: model.dtype.clone(),
            roles: BTreeSet::new(),
            device,
            weights: None,
            in_turns: false,
            loads: 0,
            load_seconds: 0.0,
        }
    }

    /// Whether this engine computes a model.
    pub fn computes(&self, model: &ModelIdentity) -> bool {
        self.model == digits(&model.content) && self.dtype == model.dtype
    }

    /// The difference to an earlier snapshot of the same process.
    #[must_use]
    pub fn since(&self, before: &[Self]) -> Self {
        let same =
            |one: &&Self| (&one.model, &one.dtype, &one.device) == (&self.model, &self.dtype, &self.device);
        let Some(before) = before.iter().find(same) else { return self.clone() };
        Self {
            loads: self.loads.saturating_sub(before.loads),
            load_seconds: (self.load_seconds - before.load_seconds).max(0.0),
            ..self.clone()
        }
    }
}

fn digits(content: &ContentHash) -> String {
    content.short().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::WorkerNotice;

    fn model(content: &[u8], dtype: &str) -> ModelIdentity {
        ModelIdentity {
            name: "m".to_owned(),
            content: ContentHash::of_bytes(content),
            dtype: Some(dtype.to_owned()),
        }
    }

    #[test]
    fn an_engine_is_known_by_content_and_type_and_counted_from_a_moment_on() {
        let before = EngineUse {
            loads: 3,
            load_seconds: 1.5,
            ..EngineUse::new(&model(b"a", "f32"), "cpu".to_owned())
        };
        let after = EngineUse { loads: 5, load_seconds: 2.0, ..before.clone() };
        assert!(after.computes(&model(b"a", "f32")));
        assert!(!after.computes(&model(b"b", "f32")) && !after.computes(&model(b"a", "bf16")));
        let since = after.since(std::slice::from_ref(&before));
        assert_eq!((since.loads, since.load_seconds), (2, 0.5));
        let elsewhere = EngineUse { device: "cuda:0".to_owned(), ..after.clone() };
        assert_eq!(elsewhere.since(&[before]), elsewhere);
        assert_eq!(after.since(&[]), after);
    }

    #[test]
    fn notices_of_programs_that_tell_nothing_of_engines_are_read() {
        let silent = WorkerNotice::default();
        let json = serde_json::to_string(&silent).unwrap();
        assert!(!json.contains("engines"), "{json}");
        assert_eq!(serde_json::from_str::<WorkerNotice>(&json).unwrap(), silent);
    }

    #[test]
    fn it_is_small_in_a_message() {
        let engine =
            EngineUse { roles: [Role::Planner].into(), ..EngineUse::new(&model(b"a", "f32"), "cpu".into()) };
        let json = serde_json::to_string(&engine).unwrap();
        assert!(json.len() < 140, "{} bytes: {json}", json.len());
        assert_eq!(serde_json::from_str::<EngineUse>(&json).unwrap(), engine);
    }
}
