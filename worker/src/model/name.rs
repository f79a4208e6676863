//! Names of models, as people write them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::lumos::LumosName;
use super::openai::OpenAiName;

/// A model's name: `candle:<folder>`, `candle:<file.gguf>`, `candle:<hub id>`, `candle:<base>+<adapter>`, `lumos:<pair>`,
/// `openai:<model>@<base url>`, `builtin:tiny`, `script:<cases file>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelName {
    /// A Hugging Face folder or a GGUF file, run by the engine in this process; or, where there is none, a model of the hub;
    /// or one of either and its LoRA adapter. [`locate`](super::locate) tells them apart.
    Candle(PathBuf),
    /// A model of an OpenAI-compatible server.
    OpenAi(OpenAiName),
    /// The small trained planner and grounder that ship with lumos.
    BuiltinTiny,
    /// Recorded replies.
    Script(PathBuf),
    /// A published Lumos pair on the hub.
    Lumos(LumosName),
}

/// A name that names no model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{name}` names no model: {why}; write candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter>, lumos:<pair>, openai:<model>@<base url>, builtin:tiny or script:<cases file>"
)]
pub struct NameError {
    name: String,
    why: String,
}

impl FromStr for ModelName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let error = |why: &str| NameError { name: name.to_owned(), why: why.to_owned() };
        match name.split_once(':') {
            Some(("candle", folder)) if !folder.is_empty() => Ok(Self::Candle(folder.into())),
            Some(("script", file)) if !file.is_empty() => Ok(Self::Script(file.into())),
            // The name is not shown: it may hold what should not stand in it.
            Some(("openai", rest)) if !rest.is_empty() => {
                rest.parse().map(Self::OpenAi).map_err(|why| NameError { name: "openai:…".to_owned(), why })
            }
            Some(("lumos", pair)) if !pair.is_empty() => {
                pair.parse().map(Self::Lumos).map_err(|why: String| error(&why))
            }
            Some(("candle" | "script" | "openai" | "lumos", _)) => {
                Err(error("nothing stands after the colon"))
            }
            Some(("builtin", "tiny")) => Ok(Self::BuiltinTiny),
            Some(("builtin", other)) => Err(error(&format!("there is no built-in model `{other}`"))),
            Some((backend, _)) => Err(error(&format!("there is no backend `{backend}`"))),
            None => Err(error("it names no backend")),
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
}
