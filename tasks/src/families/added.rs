//! Families that a program adds to those of this crate: their loop, with state per episode, in Rust.
//!
//! A [`FamilyDescription`] names the family and starts its episodes. Most are a [`Family`] on the loop of plan, ground
//! and execute ([`PlanLoop`]); a [`Machine`] of its own may have any other loop. Its items are [`Task::Added`], whose
//! hidden input for the session of a tool is [`Setup::Added`](crate::Setup::Added), and its record is
//! [`Evidence::Added`], so no enum of this crate has to change.
//!
//! [`Family`]: super::plan_loop::Family
//! [`PlanLoop`]: super::plan_loop::PlanLoop
//! [`Task::Added`]: crate::Task::Added

use std::sync::{PoisonError, RwLock};

use thiserror::Error;

use crate::configuration::Configuration;
use crate::episode::{Machine, Started, Want};
use crate::formulation::Formulation;
use crate::item::AddedTask;
use crate::outcome::{Ending, Evidence, Fault, FaultKind, PlanEvidence};

static ADDED: RwLock<Vec<&'static FamilyDescription>> = RwLock::new(Vec::new());

/// A family that a program adds. `examples/own-crate` of the repository has one, with its session.
#[derive(Debug)]
pub struct FamilyDescription {
    /// Its name, which tasks contain: lower-case letters, digits, `-` and `_`.
    pub name: &'static str,
    /// Version of prompts and loop, which is part of tasks and of the identity of configurations. Functions have no
    /// hash, so raise it when episodes become different. A program with another version neither resumes a run nor
    /// executes its episodes.
    pub version: u32,
    /// Formulations that it supports; at least one.
    pub formulations: &'static [Formulation],
    /// Tools that it calls.
    pub tools: &'static [&'static str],
    /// Starts the episode of a task. Must not do I/O: the episode requests replies of models and tools. It has the models
    /// of planner and grounder, or of the answerer in formulations without modules; a request to another role is a fault.
    pub start: fn(&AddedTask, &Configuration) -> Started,
}

impl PartialEq for FamilyDescription {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.version) == (other.name, other.version)
    }
}

/// Error of [`register_family`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("family `{name}`: {problem}")]
pub struct InvalidFamily {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub problem: &'static str,
}

/// Registers a family in this process. `lumos_benchmarks::BenchmarkBuilder::build` calls it for the `added_family` of
/// its definition. Registering the same description again has no effect.
///
/// # Errors
/// If the name is invalid or the name of another family, or if there are no formulations.
pub fn register_family(family: &'static FamilyDescription) -> Result<(), InvalidFamily> {
    let name = family.name;
    let invalid = |problem| Err(InvalidFamily { name: name.to_owned(), problem });
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        return invalid("invalid name: use lower-case letters, digits, `-` and `_`");
    }
    if family.formulations.is_empty() {
        return invalid("it supports no formulation: expected at least one");
    }
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    match added.iter().find(|other| other.name == name) {
        Some(other) if std::ptr::eq(*other, family) => {}
        Some(_) => return invalid("the name is taken"),
        None => added.push(family),
    }
    Ok(())
}

/// Starts the episode of a task.
pub(crate) fn start(task: &AddedTask, configuration: &Configuration) -> Started {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    match added.iter().find(|family| family.name == task.name) {
        Some(family) if task.version.is_none_or(|planned| planned == family.version) => {
            (family.start)(task, configuration)
        }
        found => (Box::new(Unknown), unknown(task, found.map(|family| family.version))),
    }
}

/// The machine of an episode that cannot start here.
#[derive(Debug)]
struct Unknown;

impl Machine for Unknown {}

/// The end of such an episode: a fault, so that another worker may run it, and it is never scored. `found` is the
/// version of the family in this program.
fn unknown(AddedTask { name, version, .. }: &AddedTask, found: Option<u32>) -> Want {
    let problem = match found.zip(*version) {
        Some((found, planned)) => {
            format!("the family `{name}` has version {found} in this program and {planned} in the run")
        }
        None => format!("the family `{name}` is not part of this program"),
    };
    let fault = Fault {
        kind: FaultKind::Worker,
        message: format!("{problem}; hint: start workers from the program that made the run"),
    };
    let evidence = Evidence::Added { plan: PlanEvidence::default(), data: serde_json::Value::Null };
    Want::Done { ending: Ending::Faulted(fault), evidence: Box::new(evidence) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
    use crate::families::prompts;
    use crate::fleet::WorkMessage;
    use crate::outcome::{Observation, Value};
    use crate::{
        Assignment, Behaviour, Completion, ContentHash, Episode, ExternalReply, GenerationSettings, ItemId,
        Next, Outcome, Reply, RunToken, Setup, Task, ToolCall, ToolReply, WorkUnit,
    };

    /// Turns a knob until the planner stops; the knob's position is the answer.
    #[derive(Debug, Default)]
    struct Knob {
        position: Option<String>,
    }

    impl Family for Knob {
        fn stops(&self, plan: &str) -> bool {
            plan.contains("stop")
        }

        fn subgoal(&self, plan: &str, _: &LoopState) -> String {
            prompts::subgoal(plan)
        }

        fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
            let Some(ToolReply::External(ExternalReply::Text(position))) = turn.replies.first() else {
                let arguments = serde_json::json!({ "by": action });
                let (name, operation) = ("knob".to_owned(), "turn".to_owned());
                return Err(ToolCall::External { name, operation, arguments }.into());
            };
            state.actions.push(format!("{action} = {position}"));
            state.observe(action, Observation::Text(position.clone()));
            self.position = Some(position.clone());
            Ok(())
        }

        fn conclude(&mut self, _: &[ToolReply], state: &mut LoopState) -> Want {
            let turns = state.turn;
            let prediction = self.position.take().map_or_else(|| "none".into(), Value::Text);
            let data = serde_json::json!({ "turns": turns });
            state.end_with(Ok(prediction), None, None, |plan| Evidence::Added { plan, data })
        }
    }

    static KNOB: FamilyDescription = FamilyDescription {
        name: "knob",
        version: 1,
        formulations: &[Formulation::Iterative],
        tools: &["knob"],
        start: |task, configuration| {
            let (plan, ground) = (prompts::plan(&task.task), prompts::ground("", &task.task, false));
            PlanLoop::start(Knob::default(), configuration.max_rounds, plan, ground)
        },
    };

    fn episode(family: &str, version: Option<u32>) -> Episode {
        let configuration = Configuration {
            benchmark: "knobs".to_owned(),
            formulation: Formulation::Iterative,
            behaviour: Behaviour::Corrected,
            max_rounds: 4,
            models: Default::default(),
            tools: Vec::new(),
            generation: GenerationSettings::default(),
            seed: 0,
            prompts: ContentHash::of_bytes(b""),
            format: Default::default(),
            agent: None,
        };
        let item = ItemId { content: ContentHash::of_bytes(b"1"), occurrence: 0 };
        let data = serde_json::json!({ "to": 3 });
        let task = AddedTask { name: family.to_owned(), version, ..AddedTask::new("Turn it to 3.", data) };
        let setup = Setup::Added { data: serde_json::json!(7) };
        let unit = WorkUnit::new(item, Task::Added(task), setup, configuration.into());
        let (identity, shared) = (unit.configuration.identity(), Arc::clone(&unit.configuration));
        let assignment = Assignment { unit, attempt: 1, run: None };
        let message = WorkMessage::pack(RunToken::of(&identity), assignment, identity);
        // As on another machine.
        let message: WorkMessage = serde_json::from_slice(&serde_json::to_vec(&message).unwrap()).unwrap();
        Episode::start(&message.unpack(|_| Some(shared)).unwrap().unit)
    }

    fn drive(mut episode: Episode, replies: &[&str]) -> Outcome {
        let (mut replies, mut position) = (replies.iter(), 0);
        loop {
            let reply = match episode.next() {
                Next::Generate(_) => Reply::Completion(Completion::recorded(*replies.next().unwrap())),
                Next::Call(_) => {
                    position += 1;
                    Reply::Tool(ToolReply::External(ExternalReply::Text(position.to_string())))
                }
                Next::Done => return episode.finish(),
            };
            episode.feed(reply).unwrap();
        }
    }

    #[test]
    fn an_added_family_runs_and_its_record_is_kept() {
        register_family(&KNOB).unwrap();
        register_family(&KNOB).unwrap();
        let outcome =
            drive(episode("knob", Some(1)), &["Subgoal 1: Turn.", "left; left", "Turn.", "right", "stop"]);
        assert_eq!(outcome.ending, Ending::Answered);
        let kept: Outcome = serde_json::from_str(&serde_json::to_string(&outcome).unwrap()).unwrap();
        assert_eq!(kept, outcome);
        let Some(Evidence::Added { plan, data }) = kept.evidence else { panic!() };
        assert_eq!((plan.prediction, data["turns"].as_u64()), (Some(Value::from("3")), Some(3)));
        assert_eq!(plan.actions, ["left = 1", "left = 2", "right = 3"]);
    }

    #[test]
    fn an_unknown_family_or_version_is_a_fault_with_a_hint() {
        register_family(&KNOB).unwrap();
        for (family, version, expected) in [
            ("dial", Some(1), "the family `dial` is not part of this program; hint: "),
            ("knob", Some(2), "the family `knob` has version 1 in this program and 2 in the run; hint: "),
        ] {
            let outcome = drive(episode(family, version), &[]);
            let Ending::Faulted(Fault { kind, message }) = outcome.ending else { panic!() };
            assert_eq!(kind, FaultKind::Worker);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn invalid_families_are_refused() {
        let family = |name, formulations| -> &'static FamilyDescription {
            Box::leak(Box::new(FamilyDescription {
                name,
                version: 0,
                formulations,
                tools: &[],
                start: KNOB.start,
            }))
        };
        register_family(&KNOB).unwrap();
        for (name, formulations, problem) in [
            ("Upper", &[Formulation::Iterative][..], "invalid name"),
            ("", &[Formulation::Iterative], "invalid name"),
            ("still", &[], "at least one"),
            ("knob", &[Formulation::Iterative], "taken"),
        ] {
            let error = register_family(family(name, formulations)).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
