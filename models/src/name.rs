//! Names of models, as written by users.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::added::{AddedName, BUILT_IN};
use super::lumos::LumosName;
use super::openai::OpenAiName;
use crate::hub::HubName;

/// Name of a model: `candle:<folder>`, `candle:<file.gguf>`, `candle:<hub id>`, `candle:<base>+<adapter>`,
/// `lumos:<pair>`, `openai:<model>@<base url>`, `openai-chat:<model>@<base url>`, `builtin:tiny`,
/// `script:<cases file>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelName {
    /// A Hugging Face folder or GGUF file that the engine runs in this process; a hub model, if no such path
    /// exists; or one of these with a LoRA adapter. [`locate`](super::locate) distinguishes them.
    Candle(PathBuf),
    /// A model of an OpenAI-compatible server, over its completions or its chat interface.
    OpenAi(OpenAiName),
    /// The small trained planner and grounder that ship with lumos.
    BuiltinTiny,
    /// Recorded replies in a cases file.
    Script(PathBuf),
    /// A published Lumos pair on the hub.
    Lumos(LumosName),
    /// A model of a backend that the program adds ([`register_backend`](super::register_backend)).
    Added(AddedName),
}

/// Forms of a name, for error messages.
const FORMS: &str = "candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter>, lumos:<pair>, \
                     openai:<model>@<base url>, openai-chat:<model>@<base url>, builtin:tiny, script:<cases file>";

/// Prefixes that other programs use for hub models.
const HUB: [&str; 4] = ["hf", "huggingface", "hub", "transformers"];

/// Prefixes of the hub's web pages.
const PAGES: [&str; 2] = ["https://huggingface.co/", "https://hf.co/"];

/// An invalid model name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid model name `{name}`: {why}{}; expected one of {FORMS}", meant(suggestion.as_deref()))]
pub struct NameError {
    name: String,
    why: String,
    suggestion: Option<String>,
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl ModelName {
    /// Parses a name given by a user: as [`FromStr`], but an existing folder or GGUF file needs no `candle:`
    /// prefix. Accesses the file system.
    ///
    /// # Errors
    /// If the name is invalid. The error suggests what was probably meant.
    pub fn given(name: &str) -> Result<Self, NameError> {
        Self::of_path(name).map_or_else(|| name.parse(), Ok)
    }

    /// Returns the model in an existing folder or GGUF file. `None` if the name starts with a backend.
    pub fn of_path(name: &str) -> Option<Self> {
        let names_backend = name.split_once(':').is_some_and(|(backend, _)| BUILT_IN.contains(&backend));
        let path = Path::new(name);
        let is_gguf = || path.extension().is_some_and(|extension| extension == "gguf") && path.is_file();
        (!names_backend && (path.is_dir() || is_gguf())).then(|| Self::Candle(path.to_owned()))
    }
}

/// Suggests the name that was probably meant.
fn suggestion(name: &str) -> Option<String> {
    let of_hub =
        |id: &str| id.split('+').all(|part| part.parse::<HubName>().is_ok()).then(|| format!("candle:{id}"));
    if let Some(id) = PAGES.iter().find_map(|page| name.strip_prefix(page)) {
        return of_hub(id.trim_end_matches('/'));
    }
    match name.split_once(':') {
        Some(("builtin", _)) => Some("builtin:tiny".to_owned()),
        Some((backend, id)) if HUB.contains(&backend) => of_hub(id),
        Some((backend, rest)) => {
            let distance = |known: &&&str| strsim::osa_distance(&backend.to_lowercase(), known);
            let near = BUILT_IN.iter().min_by_key(distance).filter(|known| distance(known) <= 2)?;
            Some(format!("{near}:{rest}"))
        }
        None if name == "tiny" => Some("builtin:tiny".to_owned()),
        None if name.parse::<LumosName>().is_ok() => Some(format!("lumos:{name}")),
        None if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") => Some(format!("script:{name}")),
        None => of_hub(name),
    }
}

impl FromStr for ModelName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let error = |why: &str| NameError {
            name: name.to_owned(),
            why: why.to_owned(),
            suggestion: suggestion(name),
        };
        match name.split_once(':') {
            Some(("candle", folder)) if !folder.is_empty() => Ok(Self::Candle(folder.into())),
            Some(("script", file)) if !file.is_empty() => Ok(Self::Script(file.into())),
            // The name is not shown, because it may contain a secret.
            Some((backend @ ("openai" | "openai-chat"), rest)) if !rest.is_empty() => rest
                .parse()
                .map(|name| Self::OpenAi(OpenAiName { is_chat: backend == "openai-chat", ..name }))
                .map_err(|why| NameError { name: format!("{backend}:…"), why, suggestion: None }),
            Some(("lumos", pair)) if !pair.is_empty() => pair
                .parse()
                .map(Self::Lumos)
                .map_err(|why: String| NameError { name: name.to_owned(), why, suggestion: None }),
            Some((backend @ ("candle" | "script" | "openai" | "openai-chat" | "lumos"), _)) => {
                Err(NameError {
                    name: name.to_owned(),
                    why: format!("missing value after `{backend}:`"),
                    suggestion: None,
                })
            }
            Some(("builtin", "tiny")) => Ok(Self::BuiltinTiny),
            Some(("builtin", other)) => Err(error(&format!("unknown built-in model `{other}`"))),
            Some((backend, model)) => match AddedName::of(backend, model) {
                Some(name) if !model.is_empty() => Ok(Self::Added(name)),
                Some(_) => Err(error(&format!("missing value after `{backend}:`"))),
                None => Err(error(&format!("unknown backend `{backend}`"))),
            },
            None if name.starts_with(['.', '/', '~']) || name.ends_with(".gguf") => {
                Err(error("file or folder not found"))
            }
            None => Err(error("no backend given, and folder not found")),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Candle(folder) => write!(formatter, "candle:{}", folder.display()),
            Self::OpenAi(name) => name.fmt(formatter),
            Self::BuiltinTiny => formatter.write_str("builtin:tiny"),
            Self::Script(file) => write!(formatter, "script:{}", file.display()),
            Self::Lumos(name) => name.fmt(formatter),
            Self::Added(name) => name.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [
            "candle:models/planner",
            "candle:org/model@main",
            "candle:models/llama-Q4_K_M.gguf",
            "candle:org/model/llama-Q4_K_M.gguf@main",
            "candle:org/model@main+adapters/planner",
            "lumos:maths-13b",
            "builtin:tiny",
            "script:cases.jsonl.gz",
            "openai:gpt-4",
            "openai:org/model@http://host:8000/v1",
            "openai-chat:org/model@http://host:8000/v1",
        ] {
            assert_eq!(name.parse::<ModelName>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn wrong_names_say_what_is_known() {
        for name in ["tiny", "builtin:huge", "gpt:4", "candle:", "openai:", "lumos:physics"] {
            let error = name.parse::<ModelName>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("candle:<folder>"), "{error}");
        }
    }

    #[test]
    fn wrong_names_say_what_was_probably_meant() {
        for (name, meant) in [
            ("tiny", "builtin:tiny"),
            ("builtin:huge", "builtin:tiny"),
            ("owner/name", "candle:owner/name"),
            ("owner/name@main+other/adapter", "candle:owner/name@main+other/adapter"),
            ("hf:owner/name", "candle:owner/name"),
            ("https://huggingface.co/owner/name", "candle:owner/name"),
            ("candel:models/plan", "candle:models/plan"),
            ("opneai:gpt-4", "openai:gpt-4"),
            ("openai_chat:gpt-4", "openai-chat:gpt-4"),
            ("maths-13b", "lumos:maths-13b"),
            ("cases.jsonl.gz", "script:cases.jsonl.gz"),
        ] {
            let error = name.parse::<ModelName>().unwrap_err().to_string();
            assert!(error.contains(&format!("; did you mean `{meant}`?")), "{error}");
            assert!(meant.parse::<ModelName>().is_ok(), "{meant}");
        }
        for name in ["./models/plan", "gpt", "gpt:4", "hf:name", "../a.gguf"] {
            let error = name.parse::<ModelName>().unwrap_err().to_string();
            assert!(!error.contains("did you mean"), "{error}");
        }
    }

    #[test]
    fn folders_and_gguf_files_that_exist_need_no_backend() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(folder.path().join("plan")).unwrap();
        std::fs::create_dir(folder.path().join("a:b")).unwrap();
        for file in ["model.gguf", "notes.txt"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        for name in ["plan", "a:b", "model.gguf"] {
            let given = ModelName::given(&path(name)).unwrap();
            assert_eq!(given, ModelName::Candle(folder.path().join(name)));
            assert_eq!(given.to_string(), format!("candle:{}", path(name)));
        }
        for name in ["notes.txt", "missing", "missing.gguf"] {
            assert!(ModelName::given(&path(name)).is_err(), "{name}");
        }
        // An explicit backend takes precedence over a path.
        assert_eq!(ModelName::of_path("candle:src"), None);
        assert_eq!(ModelName::given("builtin:tiny"), Ok(ModelName::BuiltinTiny));
    }
}
