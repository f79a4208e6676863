//! The files of a model on the hub, and which of them the engine needs.

use serde::Deserialize;

use super::name::{is_commit, is_gguf};

/// What the engine reads beside the weights.
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

/// A revision of a model, as `/api/models/<id>/revision/<revision>` describes it.
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
    /// Reads the hub's answer; why it is none, for people.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let listing: Self =
            serde_json::from_slice(body).map_err(|error| format!("invalid model description: {error}"))?;
        if is_commit(&listing.sha) {
            Ok(listing)
        } else {
            Err("model description without a commit".to_owned())
        }
    }

    /// The commit.
    pub(super) fn commit(&self) -> &str {
        &self.sha
    }

    /// Its GGUF files: whole models, each with its tokenizer.
    pub(super) fn models(&self) -> Vec<String> {
        let names = self.siblings.iter().map(|file| &file.rfilename);
        names.filter(|name| is_gguf(name)).cloned().collect()
    }

    /// What the engine needs, weights last: safetensors where there are any, else PyTorch's files; a LoRA adapter's too.
    /// Nothing where there are no weights.
    pub(super) fn wanted(&self) -> Vec<String> {
        let names: Vec<&str> = self.siblings.iter().map(|file| file.rfilename.as_str()).collect();
        // Parts of a set are called model-00001-of-00002.safetensors; the index says which there are.
        let weights = |stem: &str, extension: &str| -> Vec<&str> {
            let whole = format!("{stem}.{extension}");
            let index = format!("{whole}.index.json");
            let is_part = |name: &str| {
                name.starts_with(&format!("{stem}-")) && name.ends_with(&format!(".{extension}"))
            };
            let parts: Vec<&str> =
                names.iter().copied().filter(|name| is_plain(name) && is_part(name)).collect();
            match (names.contains(&index.as_str()), names.contains(&whole.as_str())) {
                // The engine goes by the index where there is one.
                (true, _) => {
                    let index = names.iter().copied().filter(|name| *name == index);
                    let single = names.iter().copied().filter(|name| *name == whole && parts.is_empty());
                    index.chain(single).chain(parts.iter().copied()).collect()
                }
                (false, true) => names.iter().copied().filter(|name| *name == whole).collect(),
                (false, false) => Vec::new(),
            }
        };
        let mut weights = Some(weights("model", "safetensors"))
            .filter(|files| !files.is_empty())
            .unwrap_or_else(|| weights("pytorch_model", "bin"));
        weights.extend(adapter(&names));
        if weights.is_empty() {
            return Vec::new();
        }
        weights.dedup();
        let small = SMALL.into_iter().filter(|name| names.contains(name));
        small.chain(weights).map(str::to_owned).collect()
    }
}

/// The files of a LoRA adapter, where there is one.
fn adapter<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let find = |wanted: &str| names.iter().copied().find(|name| *name == wanted);
    let weights = find("adapter_model.safetensors").or_else(|| find("adapter_model.bin"));
    find("adapter_config.json").zip(weights).map_or(Vec::new(), |(config, weights)| vec![config, weights])
}

/// Whether a name is that of a file in the folder itself.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.') && !name.contains(['/', '\\'])
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
                "pytorch_model-/../../x.bin",
                "config.json",
            ]),
            [
                "config.json",
                "pytorch_model.bin.index.json",
                "pytorch_model-00001-of-00002.bin",
                "pytorch_model-00002-of-00002.bin"
            ]
        );
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
