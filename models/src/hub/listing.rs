//! The files of a model or data set on the hub, and the selection of files that the engine needs.

use serde::Deserialize;

use super::name::{is_commit, is_gguf};

/// Suffix of an index file, after the name of the unsharded weights file.
pub(super) const INDEX_SUFFIX: &str = ".index.json";
/// Files that the engine reads in addition to the weights.
const SMALL: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];

/// Description of a revision, as returned by `/api/models/<id>/revision/<revision>` and `/api/datasets/…`.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    /// Parses the hub's response. The error is a message.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let listing: Self =
            serde_json::from_slice(body).map_err(|error| format!("invalid description: {error}"))?;
        if is_commit(&listing.sha) { Ok(listing) } else { Err("description without a commit".to_owned()) }
    }

    /// Commit of the revision.
    pub(super) fn commit(&self) -> &str {
        &self.sha
    }

    /// Returns the names of all files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.siblings.iter().map(|file| file.rfilename.as_str())
    }

    /// Returns the GGUF files. Each is a complete model with its tokenizer.
    pub(super) fn models(&self) -> Vec<String> {
        let names = self.siblings.iter().map(|file| &file.rfilename);
        names.filter(|name| is_gguf(name)).cloned().collect()
    }

    /// Returns the files that the engine needs, weights last: safetensors, or PyTorch files if there are
    /// none, and the files of a LoRA adapter. Of weights in shards it returns the index, which names them.
    /// Empty if there are no weights.
    pub(super) fn wanted(&self) -> Vec<String> {
        let names: Vec<&str> = self.files().collect();
        // transformers reads the whole file, if there is one, and ignores the index.
        let weights =
            |whole: &str| find(&names, whole).or_else(|| find(&names, &format!("{whole}{INDEX_SUFFIX}")));
        let weights = weights("model.safetensors").or_else(|| weights("pytorch_model.bin"));
        let weights: Vec<&str> = weights.into_iter().chain(adapter(&names)).collect();
        if weights.is_empty() {
            return Vec::new();
        }
        let small = SMALL.into_iter().filter(|name| names.contains(name));
        small.chain(weights).map(str::to_owned).collect()
    }
}

/// Returns a name from a list, if the list contains it.
fn find<'a>(names: &[&'a str], wanted: &str) -> Option<&'a str> {
    names.iter().copied().find(|name| *name == wanted)
}

/// Returns the files of a LoRA adapter, if there is one.
fn adapter<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let weights = find(names, "adapter_model.safetensors").or_else(|| find(names, "adapter_model.bin"));
    let config = find(names, "adapter_config.json");
    config.zip(weights).map_or(Vec::new(), |(config, weights)| vec![config, weights])
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn wanted(files: &[&str]) -> Vec<String> {
        let siblings: Vec<_> = files.iter().map(|name| serde_json::json!({"rfilename": name})).collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings, "gated": false}).to_string();
        Listing::read(body.as_bytes()).unwrap().wanted()
    }

    #[test]
    fn what_the_engine_reads_is_wanted_weights_last() {
        assert_eq!(
            wanted(&[
                "model.safetensors",
                "README.md",
                "onnx/model.onnx",
                "config.json",
                "pytorch_model.bin",
                "tokenizer.model"
            ]),
            ["config.json", "tokenizer.model", "model.safetensors"]
        );
        assert_eq!(
            wanted(&[
                "pytorch_model-00001-of-00002.bin",
                "pytorch_model-00002-of-00002.bin",
                "pytorch_model.bin.index.json",
                "training_args.bin",
                "config.json",
            ]),
            ["config.json", "pytorch_model.bin.index.json"]
        );
        let whole_and_shards = [
            "model.safetensors.index.json",
            "model-00001-of-00001.safetensors",
            "model.safetensors",
            "config.json",
        ];
        assert_eq!(wanted(&whole_and_shards), ["config.json", "model.safetensors"]);
        assert!(wanted(&["config.json", "model-00001-of-00002.safetensors"]).is_empty());
        assert!(wanted(&["config.json", "flax_model.msgpack"]).is_empty());
        assert_eq!(
            wanted(&[
                "adapter_model.bin",
                "adapter_model.safetensors",
                "adapter_config.json",
                "tokenizer.json"
            ]),
            ["tokenizer.json", "adapter_config.json", "adapter_model.safetensors"]
        );
        assert!(wanted(&["adapter_model.safetensors"]).is_empty());
    }

    #[test]
    fn gguf_files_are_models_of_their_own() {
        let siblings = ["a-q8.gguf", "README.md", "sub/b.gguf", "../c.gguf", ".gguf", "d.gguf"];
        let siblings = siblings.map(|name| serde_json::json!({"rfilename": name}));
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        let listing = Listing::read(body.as_bytes()).unwrap();
        assert_eq!(listing.models(), ["a-q8.gguf", "d.gguf"]);
        assert!(listing.wanted().is_empty());
    }

    #[test]
    fn answers_without_a_commit_are_none() {
        for body in ["", "{}", r#"{"sha": "main"}"#, r#"{"sha": "../../etc"}"#] {
            assert!(Listing::read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
