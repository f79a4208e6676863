//! A judge's question as an episode with a single call, so that judgements are recorded, retried and
//! distributed like all other units.

use crate::call::{ToolCall, ToolReply};
use crate::episode::Want;
use crate::outcome::{Ending, Evidence};
use crate::request::{Message, Role};

/// Waits for the judge's reply.
#[derive(Debug)]
pub(crate) struct Machine;

impl Machine {
    pub(crate) fn start(messages: &[Message], max_new_tokens: u32) -> (Self, Want) {
        let call = ToolCall::Chat { role: Role::Judge, messages: messages.to_vec(), max_new_tokens };
        (Self, Want::Call(call))
    }

    /// Processes the reply; `None` if it is of a different kind. The verdict is not parsed here.
    pub(crate) fn called(&self, reply: ToolReply) -> Option<Want> {
        let ToolReply::Chat(reply) = reply else { return None };
        Some(Want::Done { ending: Ending::Answered, evidence: Evidence::Judge { reply: reply.text } })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::{
        Behaviour, ChatReply, Configuration, ContentHash, Ending, Episode, EpisodeUnit, Evidence,
        Formulation, GenerationSettings, ItemId, Message, Next, Reply, Role, Setup, Task, ToolCall,
        ToolReply,
    };

    fn unit() -> EpisodeUnit {
        let configuration = Configuration {
            benchmark: "judge".to_owned(),
            formulation: Formulation::Direct,
            behaviour: Behaviour::Paper,
            max_rounds: 1,
            models: BTreeMap::new(),
            tools: Vec::new(),
            generation: GenerationSettings::default(),
            seed: 0,
            prompts: ContentHash::of_bytes(b"prompt"),
        };
        let messages = vec![Message { role: "user".to_owned(), content: "Correct?".to_owned() }];
        let item = ItemId { content: ContentHash::of_json(&messages), occurrence: 0 };
        let task = Task::Judge { messages, max_new_tokens: 100 };
        EpisodeUnit::new(item, task, Setup::None, Arc::new(configuration))
    }

    #[test]
    fn one_call_is_the_whole_episode() {
        let unit = unit();
        let text = serde_json::to_string(&unit.task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), unit.task);
        let mut episode = Episode::start(&unit);
        let Next::Call(ToolCall::Chat { role, max_new_tokens, .. }) = episode.next() else { panic!() };
        assert_eq!((*role, *max_new_tokens), (Role::Judge, 100));
        let reply = ChatReply {
            prompt_tokens: Some(80),
            completion_tokens: Some(2),
            ..ChatReply::recorded("CORRECT")
        };
        episode.feed(Reply::Tool(ToolReply::Chat(reply))).unwrap();
        let outcome = episode.finish();
        assert_eq!(outcome.ending, Ending::Answered);
        assert_eq!(outcome.evidence, Some(Evidence::Judge { reply: "CORRECT".to_owned() }));
        assert_eq!((outcome.tokens(), outcome.steps.len()), ((80, 2), 1));
    }

    #[test]
    fn what_is_no_reply_is_the_driver_s_fault() {
        let mut episode = Episode::start(&unit());
        let raised = ToolReply::Raised { message: "Timeout".to_owned() };
        assert!(episode.feed(Reply::Tool(raised)).is_err());
        assert!(episode.finish().is_fault());
    }
}
