//! Model backend that computes in this process.

use async_trait::async_trait;
use lumos_engine::{GenerateError, GenerateRequest, LoadError, ModelSource};
use lumos_tasks::{Completion, DraftCounts, Finish, Input, Request, Sampling, Stop};

use super::bos::BosCheck;
use super::chat::{ChatTemplate, RenderedPrompt, rendered};
use super::in_process::InProcessModel;
use super::openai::without_thoughts;
use super::settings::EngineSettings;
use super::{ModelBackend, ModelError};

/// A loaded model and its chat template.
#[derive(Debug)]
pub(crate) struct EngineBackend {
    pub(crate) model: InProcessModel,
    pub(crate) chat: ChatTemplate,
    bos: BosCheck,
}

impl EngineBackend {
    /// Loads a model. Blocks while weights are read and converted.
    pub(crate) fn load(source: ModelSource, settings: EngineSettings) -> Result<Self, LoadError> {
        let chat = chat_template(&source)?;
        let model = InProcessModel::load(source, &settings)?;
        let bos = BosCheck::new(model.tokenizer(), &chat, &model.description().architecture);
        Ok(Self { model, chat, bos })
    }
}

/// Returns the chat template of a model.
pub(crate) fn chat_template(source: &ModelSource) -> Result<ChatTemplate, LoadError> {
    match source {
        ModelSource::Folder(folder) => ChatTemplate::of_folders(&[folder]),
        // An adapter may have been trained with its own chat template.
        ModelSource::Adapted { base, adapter } => ChatTemplate::of_folders(&[adapter, base]),
        ModelSource::Gguf(file) => ChatTemplate::in_gguf(file),
        ModelSource::Memory(_) | ModelSource::Random { .. } => Ok(ChatTemplate::plain()),
    }
}

#[async_trait]
impl ModelBackend for EngineBackend {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let is_lumos_layout = matches!(request.input, Input::Raw(_));
        let is_chat = matches!(request.input, Input::Chat(_));
        let request = engine_request(request, &self.chat)?;
        if let lumos_engine::Prompt::Text(text) = &request.input {
            self.bos.check(text, is_lumos_layout);
        }
        let generation = self.model.generate(request).await.map_err(|error| match error {
            GenerateError::EmptyPrompt
            | GenerateError::PromptTooLong { .. }
            | GenerateError::TextTooLong { .. }
            | GenerateError::UnknownToken { .. } => ModelError::Refused(error.to_string()),
            error => ModelError::Failed(error.to_string()),
        })?;
        let count = |tokens: usize| u32::try_from(tokens).ok();
        Ok(Completion {
            text: if is_chat { without_thoughts(&generation.text).to_owned() } else { generation.text },
            finish: match generation.finish {
                lumos_engine::FinishReason::Stop => Finish::Stop,
                lumos_engine::FinishReason::EndOfSequence => Finish::EndOfSequence,
                lumos_engine::FinishReason::Length => Finish::Length,
            },
            prompt_tokens: count(generation.usage.prompt_tokens),
            completion_tokens: count(generation.usage.completion_tokens),
            cached_tokens: count(generation.usage.cached_tokens),
            drafts: Some(generation.usage.drafts)
                .filter(|drafts| drafts.drafted > 0)
                .map(|drafts| DraftCounts { drafted: drafts.drafted, accepted: drafts.accepted }),
            cost: None,
        })
    }
}

pub(crate) fn engine_request(request: Request, chat: &ChatTemplate) -> Result<GenerateRequest, ModelError> {
    let sampling = match request.sampling {
        Sampling::Greedy => lumos_engine::SamplingParams::GREEDY,
        Sampling::Random { temperature, top_p, top_k } => lumos_engine::SamplingParams {
            temperature,
            top_p,
            top_k: top_k.and_then(|top_k| usize::try_from(top_k).ok()),
            seed: request.seed,
        },
    };
    let mut stop = match request.stop {
        Stop::Newline => lumos_engine::StopCondition::Newline,
        Stop::Tokens(tokens) => lumos_engine::StopCondition::Tokens(tokens),
        Stop::Text(text) => lumos_engine::StopCondition::Texts(vec![text]),
        Stop::Never => lumos_engine::StopCondition::Never,
    };
    Ok(GenerateRequest {
        input: match request.input {
            Input::Raw(text) => lumos_engine::Prompt::Text(text),
            Input::Tokens(tokens) => lumos_engine::Prompt::Tokens(tokens),
            Input::Chat(messages) => {
                lumos_engine::Prompt::Text(chat.render(&messages).map_err(ModelError::Failed)?)
            }
            Input::Templated(prompt) => {
                let RenderedPrompt { text, ends } = rendered(&prompt, chat).map_err(ModelError::Failed)?;
                stop = lumos_engine::StopCondition::NewlineOr(ends);
                lumos_engine::Prompt::Text(text)
            }
        },
        stop,
        max_new_tokens: usize::try_from(request.max_new_tokens).unwrap_or(usize::MAX),
        sampling,
        ignore_eos: false,
        first_logits: 0,
        forced: Vec::new(),
        deadline: None,
    })
}
