//! The loop of a mathematics episode: plan, ground, execute, or a single answer.
//!
//! [`Machine`] is driven by [`Episode`](crate::Episode): it requests a model's reply or a query to the
//! mathematics service and processes the answer. Its state is a [`Phase`]; an [`Execution`] holds the actions
//! of one turn.

use crate::call::{MathsReply, ToolCall};
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::formulation::{Behaviour, Formulation};
use crate::outcome::{Ending, Evidence, Observation, PlanEvidence, Reason, Step, Value};
use crate::python::strip;
use crate::request::Role;

use super::execution::{Failure, MathsProgress, MathsResult, Results, execute};
use super::results::NoPrediction;
use super::{prompts, results};

/// The state of an episode.
#[derive(Debug)]
enum Phase {
    /// Waiting for subgoals.
    Planning,
    /// Waiting for actions; holds the planner's reply.
    Grounding { plan: String },
    /// Executing the actions of a turn.
    Executing(Execution),
    /// Waiting for the single model's answer.
    Answering,
    /// Ended.
    Ended,
}

/// The actions of one turn and the progress of their execution.
#[derive(Debug)]
struct Execution {
    plan: String,
    ground: String,
    actions: Vec<String>,
    at: usize,
    /// The service's answers for the current action.
    answers: Vec<MathsReply>,
}

/// The state machine of one mathematics episode.
#[derive(Debug)]
pub(crate) struct Machine {
    formulation: Formulation,
    behaviour: Behaviour,
    max_rounds: u32,
    turn: u32,
    phase: Phase,
    plan_prompt: String,
    ground_prompt: String,
    subgoals: Vec<String>,
    actions: Vec<String>,
    results: Results,
    failure: Option<Failure>,
}

impl Machine {
    pub(crate) fn start(question: &str, configuration: &Configuration) -> (Self, Want) {
        let formulation = configuration.formulation;
        let mut machine = Self {
            formulation,
            behaviour: configuration.behaviour,
            max_rounds: if formulation == Formulation::OneTime { 1 } else { configuration.max_rounds.max(1) },
            turn: 1,
            phase: Phase::Planning,
            plan_prompt: prompts::plan(question),
            ground_prompt: match formulation {
                Formulation::OneTime => prompts::ground_all(question),
                _ => prompts::ground(question),
            },
            subgoals: Vec::new(),
            actions: Vec::new(),
            results: Results::new(),
            failure: None,
        };
        let want = if formulation.has_modules() {
            Want::Generate { role: Role::Planner, prompt: machine.plan_prompt.clone() }
        } else {
            machine.phase = Phase::Answering;
            Want::Generate { role: Role::Answerer, prompt: prompts::answer(question) }
        };
        (machine, want)
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Processes a model's reply.
    pub(crate) fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planning => self.planned(reply),
            Phase::Grounding { plan } => {
                let pieces = strip(reply).split("; ");
                let actions = match self.formulation {
                    // Lumos-O executes the pieces unchanged, Lumos-I strips each.
                    Formulation::OneTime => pieces.map(str::to_owned).collect(),
                    _ => pieces.map(|piece| strip(piece).to_owned()).collect(),
                };
                self.subgoals.push(strip(&plan).to_owned());
                if self.formulation == Formulation::OneTime {
                    self.actions.push(strip(reply).to_owned());
                }
                let execution =
                    Execution { plan, ground: reply.to_owned(), actions, at: 0, answers: Vec::new() };
                self.advance(execution, steps)
            }
            Phase::Answering => self.answered(reply),
            phase @ (Phase::Executing(_) | Phase::Ended) => {
                unreachable!("no model is asked while {phase:?}")
            }
        }
    }

    /// Processes the mathematics service's reply.
    pub(crate) fn called(&mut self, reply: MathsReply, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Executing(mut execution) => {
                execution.answers.push(reply);
                self.advance(execution, steps)
            }
            phase => unreachable!("no tool is called while {phase:?}"),
        }
    }

    fn planned(&mut self, reply: &str) -> Want {
        if self.formulation != Formulation::OneTime && reply.contains(prompts::STOP_PLANNING) {
            return self.end(false);
        }
        self.ground_prompt.push_str(&prompts::subgoal(reply));
        self.phase = Phase::Grounding { plan: reply.to_owned() };
        Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() }
    }

    /// Executes actions until an answer is missing or all are done.
    fn advance(&mut self, mut execution: Execution, steps: &mut Vec<Step>) -> Want {
        while let Some(action) = execution.actions.get(execution.at) {
            if self.failure.is_none() {
                match execute(action, Some(&self.results), self.behaviour, &execution.answers) {
                    MathsProgress::Ask(query) => {
                        self.phase = Phase::Executing(execution);
                        return Want::Call(ToolCall::Maths { query });
                    }
                    MathsProgress::Finished(executed) => {
                        let observation = self.observe(action, executed);
                        steps.push(Step::Action { turn: self.turn, action: action.clone(), observation });
                    }
                }
            } else if self.formulation != Formulation::OneTime {
                // After a failure the original still lists the turn's other actions, without values.
                self.actions.push(action.clone());
            }
            execution.at += 1;
            execution.answers.clear();
        }
        self.next_turn(&execution.plan, &execution.ground)
    }

    /// Records an action's value.
    fn observe(&mut self, action: &str, executed: MathsResult) -> Observation {
        let (observation, shown) =
            match results::assign(&mut self.results, executed, self.formulation, self.behaviour) {
                Ok(assigned) => (assigned.observation, assigned.shown),
                Err(failure) => {
                    let refused = Observation::Refused(failure.detail.clone());
                    self.failure = Some(failure);
                    (refused, None)
                }
            };
        if self.formulation != Formulation::OneTime {
            self.actions.push(match shown {
                Some(value) => format!("{action} = {value}"),
                None => action.to_owned(),
            });
        }
        observation
    }

    fn next_turn(&mut self, plan: &str, ground: &str) -> Want {
        if self.failure.is_some() || self.formulation == Formulation::OneTime {
            return self.end(false);
        }
        if self.turn == self.max_rounds {
            return self.end(true);
        }
        let last = self.actions.last().map_or("", String::as_str);
        let result = strip(last.rsplit('=').next().unwrap_or_default());
        self.plan_prompt.push_str(&prompts::plan_again(plan, self.turn, result));
        self.ground_prompt.push_str(&prompts::ground_again(ground));
        self.turn += 1;
        self.phase = Phase::Planning;
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    fn answered(&mut self, reply: &str) -> Want {
        let prediction = match self.formulation {
            Formulation::Cot => results::of_chain(reply),
            _ => results::of_direct(reply),
        };
        let evidence = PlanEvidence { prediction: Some(Value::Text(prediction)), ..PlanEvidence::default() };
        Want::Done { ending: Ending::Answered, evidence: Evidence::Maths(evidence) }
    }

    fn end(&mut self, rounds_exhausted: bool) -> Want {
        self.phase = Phase::Ended;
        let failed = self.failure.is_some();
        let mut raised = None;
        let prediction = match self.failure.take() {
            Some(failure) => Err(failure),
            None => {
                let prediction = results::prediction(&self.results, self.formulation, self.behaviour);
                prediction.map_err(|NoPrediction { failure, exception }| {
                    raised = (self.behaviour == Behaviour::Paper).then(|| exception.to_owned());
                    failure
                })
            }
        };
        let (ending, prediction) = match prediction {
            Ok(value) => (Ending::Answered, Some(value)),
            Err(Failure { stage, detail }) => {
                (Ending::GaveUp(Reason { stage, turn: self.turn, detail }), None)
            }
        };
        let evidence = PlanEvidence {
            prediction,
            subgoals: std::mem::take(&mut self.subgoals),
            actions: std::mem::take(&mut self.actions),
            results: (!failed).then(|| std::mem::take(&mut self.results)),
            rounds_exhausted,
            raised,
        };
        Want::Done { ending, evidence: Evidence::Maths(evidence) }
    }
}
