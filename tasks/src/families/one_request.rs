//! Episodes with one request. They have no turns, so they are not a [`PlanLoop`](super::plan_loop::PlanLoop).
//!
//! [`SingleModel`]: a model answers on its own (chain of thought, direct). [`Judge`]: a judge's question, which is an
//! episode so that judgements are recorded, retried and distributed like all other units.

use std::fmt;

use super::{Failure, prompts};
use crate::call::{ToolCall, ToolReply};
use crate::dialogue::Dialogue;
use crate::episode::{Machine, Started, Want};
use crate::outcome::{Ending, Evidence, PlanEvidence, Stage, Step};
use crate::request::{Message, Role};

/// Waits for a model's reply, which `answer` parses and `evidence` records.
pub(crate) struct SingleModel<A> {
    answer: A,
    evidence: fn(PlanEvidence) -> Evidence,
}

impl<A: Fn(&str) -> Option<String> + Send + Sync + 'static> SingleModel<A> {
    pub(crate) fn start(question: &str, answer: A, evidence: fn(PlanEvidence) -> Evidence) -> Started {
        let mut prompt = Dialogue::from(prompts::answer(question));
        prompt.ask();
        let want = Want::Generate { role: Role::Answerer, prompt };
        (Box::new(Self { answer, evidence }), want)
    }
}

impl<A> fmt::Debug for SingleModel<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SingleModel").finish_non_exhaustive()
    }
}

impl<A: Fn(&str) -> Option<String> + Send + Sync> Machine for SingleModel<A> {
    fn completed(&mut self, reply: &str, _steps: &mut Vec<Step>) -> Option<Want> {
        let answer = (self.answer)(reply);
        let ending = match answer {
            Some(_) => Ending::Answered,
            None => Failure::new(Stage::Planner, "the reply names no answer").ending(self.turn()),
        };
        let evidence = PlanEvidence { prediction: answer.map(Into::into), ..PlanEvidence::default() };
        Some(Want::Done { ending, evidence: Box::new((self.evidence)(evidence)) })
    }
}

/// Waits for the judge's reply.
#[derive(Debug)]
pub(crate) struct Judge;

impl Judge {
    pub(crate) fn start(messages: &[Message], max_new_tokens: u32) -> Started {
        let call = ToolCall::Chat { role: Role::Judge, messages: messages.to_vec(), max_new_tokens };
        (Box::new(Self), Want::Call(call))
    }
}

impl Machine for Judge {
    /// Processes the reply. The verdict is not parsed here.
    fn called(&mut self, reply: ToolReply, _steps: &mut Vec<Step>) -> Option<Want> {
        let ToolReply::Chat(reply) = reply else { return None };
        let evidence = Box::new(Evidence::Judge { reply: reply.text });
        Some(Want::Done { ending: Ending::Answered, evidence })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::{
        Behaviour, ChatReply, Configuration, ContentHash, Ending, Episode, Evidence, Formulation,
        GenerationSettings, ItemId, Message, Next, Reply, Role, Setup, Task, ToolCall, ToolReply, WorkUnit,
    };

    fn unit() -> WorkUnit {
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
            format: crate::PromptFormat::default(),
            agent: None,
        };
        let messages = vec![Message { role: "user".to_owned(), content: "Correct?".to_owned() }];
        let item = ItemId { content: ContentHash::of_json(&messages), occurrence: 0 };
        let task = Task::Judge { messages, max_new_tokens: 100 };
        WorkUnit::new(item, task, Setup::None, Arc::new(configuration))
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
