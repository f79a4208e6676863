//! [`PromptRenderer`]: the prompts of recorded requests as a model receives them, without its weights.

use lumos_engine::{ModelSource, Prompt, Tokenizer};
use lumos_tasks::{Formulation, Input, Message, ModelIdentity, Request, Role};
use serde::Serialize;

use super::ModelRegistry;
use super::loading::Blocking;
use crate::bos::BosCheck;
use crate::chat::ChatTemplate;
use crate::engine::{chat_template, engine_request};
use crate::error::LoadModelError;
use crate::files::{self, ModelFile};
use crate::name::ModelName;
use crate::openai::server_request;

const SERVER_BOS: &str = "none in the text; the server is asked not to add one (`add_special_tokens`)";
const ADDED_BOS: &str = "decided by the backend, which receives this text or the messages";
const SCRIPT_BOS: &str = "none; recorded replies are selected by the recorded text";

/// What a model receives for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SentPrompt {
    /// A text, which is encoded as it is.
    Text {
        /// The text, with the start of the reply.
        text: String,
        /// Describes the BOS tokens at its start.
        bos: String,
    },
    /// Messages for a server's chat interface.
    Messages {
        /// The messages.
        messages: Vec<Message>,
    },
}

/// Renders requests as the backend of a model does.
#[derive(Debug)]
pub struct PromptRenderer {
    kind: Kind,
    /// Files of tokenizer and chat template; empty for models without a folder.
    pub files: Vec<ModelFile>,
}

#[derive(Debug)]
enum Kind {
    /// A model that this process computes.
    InProcess { chat: Box<ChatTemplate>, bos: BosCheck },
    /// A model on a server.
    Server,
    /// Recorded replies, which are selected by the recorded layout.
    Script,
    /// A model of a backend that the program adds.
    Added,
}

impl ModelRegistry {
    /// Returns the renderer of a model. Blocks, because it reads configuration, tokenizer and chat template, but no
    /// weights; missing files of hub models are downloaded unless the hub's settings forbid it.
    ///
    /// # Errors
    /// If the model's files are not found or invalid.
    pub fn renderer(
        &self,
        identity: &ModelIdentity,
        role: Role,
        formulation: Formulation,
    ) -> Result<PromptRenderer, LoadModelError> {
        let kind = match self.name_of(identity)? {
            ModelName::Script(_) => Kind::Script,
            ModelName::OpenAi(_) => Kind::Server,
            ModelName::Added(_) => Kind::Added,
            ModelName::BuiltinTiny | ModelName::Candle(_) | ModelName::Lumos(_) => {
                let source = self.engine_source(identity, role, formulation)?;
                let renderer = source.source().and_then(|source| in_process(&source));
                return renderer.map_err(|error| LoadModelError::new(&identity.name, error.to_string()));
            }
        };
        Ok(PromptRenderer { kind, files: Vec::new() })
    }
}

fn in_process(source: &ModelSource) -> Result<PromptRenderer, Blocking> {
    let chat = chat_template(source)?;
    let bos = BosCheck::new(&Tokenizer::of(source)?, &chat, &source.architecture()?);
    let files = files::texts_of(source)?;
    Ok(PromptRenderer { kind: Kind::InProcess { chat: Box::new(chat), bos }, files })
}

impl PromptRenderer {
    /// Renders a request.
    ///
    /// # Errors
    /// If the template rejects the conversation. The error is a message.
    pub fn sent(&self, request: &Request) -> Result<SentPrompt, String> {
        let request = request.clone();
        match &self.kind {
            Kind::InProcess { chat, bos } => {
                let request = engine_request(request, chat).map_err(|error| error.to_string())?;
                let Prompt::Text(text) = request.input else {
                    return Err("the request has token ids instead of a text".to_owned());
                };
                Ok(SentPrompt::Text { bos: bos.describe(&text), text })
            }
            Kind::Server => match server_request(request).map_err(|error| error.to_string())?.input {
                Input::Templated(prompt) => Ok(SentPrompt::Messages { messages: prompt.messages }),
                Input::Chat(messages) => Ok(SentPrompt::Messages { messages }),
                Input::Raw(text) => Ok(SentPrompt::Text { text, bos: SERVER_BOS.to_owned() }),
                Input::Tokens(_) => Err("the request has token ids instead of a text".to_owned()),
            },
            Kind::Added => {
                Ok(SentPrompt::Text { text: request.prompt().to_owned(), bos: ADDED_BOS.to_owned() })
            }
            Kind::Script => {
                Ok(SentPrompt::Text { text: request.prompt().to_owned(), bos: SCRIPT_BOS.to_owned() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{PromptTemplate, Sampling, Stop, TemplatedPrompt};

    use super::*;
    use crate::settings::ModelsSettings;

    fn request(template: PromptTemplate) -> Request {
        let message = |role: &str| Message { role: role.to_owned(), content: "Add.".to_owned() };
        let input = Input::Templated(Box::new(TemplatedPrompt {
            text: "<|user|>\nAdd.\n<|assistant|>\n".to_owned(),
            messages: vec![message("system"), message("user")],
            reply_start: "R1 = ".to_owned(),
            template,
        }));
        let (role, stop) = (Role::Planner, Stop::Newline);
        Request { role, input, stop, max_new_tokens: 8, sampling: Sampling::Greedy, seed: 0 }
    }

    fn renderer(name: &str) -> PromptRenderer {
        let models = ModelRegistry::new(ModelsSettings::default());
        let identity = models.identify(name, Role::Planner, Formulation::Iterative).unwrap().identity;
        models.renderer(&identity, Role::Planner, Formulation::Iterative).unwrap()
    }

    #[test]
    fn prompts_are_those_of_the_model_s_backend() {
        let chatml = "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\nR1 = ";
        let tiny = renderer("builtin:tiny");
        let SentPrompt::Text { text, bos } = tiny.sent(&request(PromptTemplate::Chatml)).unwrap() else {
            panic!("expected a text");
        };
        assert_eq!((text.as_str(), bos.starts_with("none; the model's tokenizer")), (chatml, true));
        let rejected = tiny.sent(&request(PromptTemplate::Chat)).unwrap_err();
        assert!(rejected.contains("no chat template"), "{rejected}");

        let text =
            renderer("openai:tiny@http://127.0.0.1:9/v1").sent(&request(PromptTemplate::Chatml)).unwrap();
        assert_eq!(text, SentPrompt::Text { text: chatml.to_owned(), bos: SERVER_BOS.to_owned() });
        let chat = renderer("openai-chat:tiny@http://127.0.0.1:9/v1");
        let SentPrompt::Messages { messages } = chat.sent(&request(PromptTemplate::Chat)).unwrap() else {
            panic!("expected messages");
        };
        assert_eq!(messages.len(), 2);
    }
}
