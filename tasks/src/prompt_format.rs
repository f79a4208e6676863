//! How conversations reach a model: the [`PromptTemplate`] that formats them, and the number of worked examples before
//! them ([`PromptFormat`]).
//!
//! A conversation in Lumos's own layout (`tulu`) is one text with markers. For all other formats, an episode's requests
//! contain its messages ([`TemplatedPrompt`]), which the model's backend renders or sends to a chat interface.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::ContentHash;
use crate::request::Message;

/// How the messages of a conversation become a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptTemplate {
    /// Lumos's layout, which its published modules were trained on: `<|user|>` and `<|assistant|>` on lines of their
    /// own.
    #[default]
    Tulu,
    /// `ChatML`: `<|im_start|>role`, the text, `<|im_end|>`.
    Chatml,
    /// The layout of Llama 3's chat models: `<|start_header_id|>role<|end_header_id|>`, the text, `<|eot_id|>`.
    #[serde(rename = "llama-3")]
    Llama3,
    /// The model's own chat template; on a server, its chat interface.
    Chat,
    /// A Jinja template in the dialect of Hugging Face's tokenizers.
    File(Arc<str>),
}

impl PromptTemplate {
    /// Names on the command line. All other values are paths of files.
    pub const NAMES: [&str; 4] = ["tulu", "chatml", "llama-3", "chat"];
    /// Maximum size of a template file in bytes. It is a part of every configuration of its run.
    pub const MOST_BYTES: usize = 64 << 10;

    /// Returns the template with a name; `None` if it is not one of [`PromptTemplate::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "tulu" => Self::Tulu,
            "chatml" => Self::Chatml,
            "llama-3" => Self::Llama3,
            "chat" => Self::Chat,
            _ => return None,
        })
    }
}

impl fmt::Display for PromptTemplate {
    /// The name, or `file` with the first digits of the file's hash.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tulu => "tulu",
            Self::Chatml => "chatml",
            Self::Llama3 => "llama-3",
            Self::Chat => "chat",
            Self::File(text) => {
                return write!(formatter, "file {}", ContentHash::of_bytes(text.as_bytes()).short());
            }
        })
    }
}

/// How a run's conversations reach its models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptFormat {
    /// The template for models that take text. Models with a chat interface take messages.
    #[serde(default, skip_serializing_if = "is_default")]
    pub template: PromptTemplate,
    /// Number of worked examples before a conversation. `None`: [`PromptFormat::USUAL_EXEMPLARS`] for models with a
    /// chat interface, and no examples and no instructions for others, which were trained on the conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exemplars: Option<u8>,
}

impl PromptFormat {
    /// Number of worked examples for models with a chat interface, which is also the largest number.
    pub const USUAL_EXEMPLARS: u8 = 2;

    /// Whether this is Lumos's own layout without additions.
    pub fn is_default(&self) -> bool {
        is_default(self)
    }

    /// Hash of the format; `None` for Lumos's own layout, so that the identities of its runs stay as they are.
    pub(crate) fn hash(&self) -> Option<ContentHash> {
        let layout = || crate::families::chat_layout_hash();
        (!self.is_default()).then(|| {
            ContentHash::of_json(&(
                "format/1",
                &self.template,
                self.exemplars,
                self.exemplars.map(|_| layout()),
            ))
        })
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A conversation as messages, for a model that does not take Lumos's layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TemplatedPrompt {
    /// The same conversation in Lumos's layout, as it is recorded. It has no instructions and no worked examples.
    pub text: String,
    /// The messages. The last one is the user's; no two users' messages follow each other.
    pub messages: Vec<Message>,
    /// The start of the reply, which the model continues. Usually empty.
    pub reply_start: String,
    /// Formats the messages; never [`PromptTemplate::Tulu`].
    pub template: PromptTemplate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_on_the_command_line() {
        for name in PromptTemplate::NAMES {
            assert_eq!(PromptTemplate::named(name).unwrap().to_string(), name);
        }
        assert_eq!(PromptTemplate::named("alpaca"), None);
        assert!(PromptTemplate::File("x".into()).to_string().starts_with("file 2d711642b726"));
    }

    #[test]
    fn formats_round_trip_and_have_hashes_of_their_own() {
        let formats = [
            PromptFormat { template: PromptTemplate::Chatml, exemplars: None },
            PromptFormat { template: PromptTemplate::Llama3, exemplars: Some(0) },
            PromptFormat { template: PromptTemplate::Llama3, exemplars: Some(1) },
            PromptFormat { template: PromptTemplate::File("a".into()), exemplars: None },
            PromptFormat { template: PromptTemplate::File("b".into()), exemplars: None },
            PromptFormat { template: PromptTemplate::Tulu, exemplars: Some(2) },
        ];
        let mut hashes = std::collections::BTreeSet::new();
        for format in &formats {
            let json = serde_json::to_string(format).unwrap();
            assert_eq!(serde_json::from_str::<PromptFormat>(&json).unwrap(), *format, "{json}");
            assert!(hashes.insert(format.hash().unwrap()));
        }
        assert_eq!(serde_json::to_string(&PromptFormat::default()).unwrap(), "{}");
        assert_eq!(PromptFormat::default().hash(), None);
    }
}
