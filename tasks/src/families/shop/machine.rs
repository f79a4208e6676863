//! The loop of an episode of shopping (upstream `lumos_iterative` in `eval/webshop/run_eval.py`).
//!
//! [`Machine`] is driven by [`Episode`](crate::Episode): it requests a model's reply or a tool call and
//! processes the answer. Its state is a [`Phase`]; an [`Execution`] holds the actions of one turn; the
//! episode's record is a [`ShopEvidence`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::execution::{Progress, Purchase, ShopValue, Visit, begin, finish};
use super::exemplars::Exemplars;
use super::prompts::{self, FIRST_VARIABLE, KEEP_PLANNING};
use crate::call::ToolReply;
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::families::Failure;
use crate::formulation::Behaviour;
use crate::outcome::{Ending, Evidence, Observation, Reason, Stage, Step};
use crate::python::{Integer, strip};
use crate::request::Role;

/// How the original counts an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Ended by a purchase, whose reward counts.
    Credited,
    /// Ended by an exception: counts 0.
    Dropped,
    /// Never ended: not counted.
    Unfinished,
}

/// The record of an episode of shopping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShopEvidence {
    /// How it ended.
    pub end: End,
    /// The purchase that counts, if there is one.
    pub credited: Option<Purchase>,
    /// The first purchase, whether it counts or not.
    pub first: Option<Purchase>,
    /// Grounded subgoals, stripped.
    pub subgoals: Vec<String>,
    /// Searches and clicks in order; the original repeats them at every click.
    pub actions: Vec<String>,
    /// Variables.
    pub results: BTreeMap<String, ShopValue>,
}

/// The state of an episode.
#[derive(Debug)]
enum Phase {
    Planning,
    Grounding { plan: String },
    Executing(Execution),
    Ended,
}

/// The actions of one turn and the progress of their execution.
#[derive(Debug)]
struct Execution {
    plan: String,
    ground: String,
    actions: Vec<String>,
    at: usize,
    /// The value of the last executed action, and its purchase.
    last: Option<(ShopValue, Option<Purchase>)>,
}

/// The state machine of one shopping episode.
#[derive(Debug)]
pub(crate) struct Machine {
    task: String,
    exemplars: Exemplars,
    behaviour: Behaviour,
    max_rounds: u32,
    turn: u32,
    phase: Phase,
    plan_prompt: String,
    ground_prompt: String,
    /// The grounder's last reply.
    ground: String,
    visit: Visit,
    subgoals: Vec<String>,
    results: BTreeMap<String, ShopValue>,
    /// Each subgoal's value by the subgoal's name.
    subgoal_values: BTreeMap<String, ShopValue>,
    first: Option<Purchase>,
}

impl Machine {
    pub(crate) fn start(
        instruction: &str,
        exemplars: Option<&Exemplars>,
        configuration: &Configuration,
    ) -> (Self, Want) {
        let exemplars = exemplars.cloned().unwrap_or_else(Exemplars::shipped);
        let task = strip(instruction).to_owned();
        let plan_prompt = prompts::plan(&exemplars, &task);
        let machine = Self {
            task,
            exemplars,
            behaviour: configuration.behaviour,
            max_rounds: configuration.max_rounds.max(1),
            turn: 1,
            phase: Phase::Planning,
            plan_prompt: plan_prompt.clone(),
            ground_prompt: String::new(),
            ground: String::new(),
            visit: Visit::default(),
            subgoals: Vec::new(),
            results: BTreeMap::new(),
            subgoal_values: BTreeMap::new(),
            first: None,
        };
        (machine, Want::Generate { role: Role::Planner, prompt: plan_prompt })
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Processes a model's reply.
    pub(crate) fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planning => {
                if self.turn == 1 {
                    self.ground_prompt = prompts::ground(&self.exemplars, &self.task, reply);
                } else {
                    self.ground_prompt.push_str(&prompts::ground_again(&self.ground, reply));
                }
                self.phase = Phase::Grounding { plan: reply.to_owned() };
                Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() }
            }
            Phase::Grounding { plan } => {
                let ground = if self.turn == 1 {
                    let rest = reply.trim_matches(|character| FIRST_VARIABLE.contains(character));
                    format!("{FIRST_VARIABLE}{rest}")
                } else {
                    reply.to_owned()
                };
                self.visit.reset = true;
                self.subgoals.push(strip(&plan).to_owned());
                let actions = strip(&ground).split("; ").map(str::to_owned).collect();
                self.advance(Execution { plan, ground, actions, at: 0, last: None }, None, steps)
            }
            phase @ (Phase::Executing(_) | Phase::Ended) => unreachable!("no model is asked while {phase:?}"),
        }
    }

    /// Processes the reply to the current action.
    pub(crate) fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Executing(execution) => self.advance(execution, Some(reply), steps),
            phase => unreachable!("no tool is called while {phase:?}"),
        }
    }

    /// Executes actions until a reply is missing or all are done.
    fn advance(&mut self, mut execution: Execution, reply: Option<ToolReply>, steps: &mut Vec<Step>) -> Want {
        let mut reply = reply;
        while let Some(action) = execution.actions.get(execution.at).cloned() {
            let progress = match reply.take() {
                Some(reply) => finish(&action, &self.results, reply, self.behaviour),
                None => begin(&action, &self.results, &mut self.visit, self.behaviour),
            };
            let (variable, value, purchase) = match progress {
                Ok(Progress::Ask(call)) => {
                    self.phase = Phase::Executing(execution);
                    return Want::Call(call);
                }
                Ok(Progress::Done { variable, value, purchase }) => (variable, value, purchase),
                Err(failure) => {
                    let observation = Observation::Refused(failure.detail.clone());
                    steps.push(Step::Action { turn: self.turn, action, observation });
                    return self.drop_out(failure);
                }
            };
            let observation = Observation::Text(value.to_python_text());
            steps.push(Step::Action { turn: self.turn, action, observation });
            self.results.insert(variable, value.clone());
            if self.first.is_none() {
                self.first.clone_from(&purchase);
            }
            if self.behaviour == Behaviour::Corrected && purchase.is_some() {
                return self.credit(purchase);
            }
            execution.last = Some((value, purchase));
            execution.at += 1;
        }
        self.next_turn(execution)
    }

    fn next_turn(&mut self, execution: Execution) -> Want {
        let Execution { plan, ground, last, .. } = execution;
        if let Some((value, purchase)) = last {
            if let ShopValue::Reward(_) = value {
                return self.credit(purchase);
            }
            self.subgoal_values.insert(subgoal_name(&plan), value);
        }
        if self.turn == self.max_rounds {
            let detail = "the rounds were used up before anything was bought".to_owned();
            return self.end(End::Unfinished, None, Some(Failure { stage: Stage::Limit, detail }));
        }
        let Some(value) = self.last_subgoal_value() else {
            let detail = "the subgoals are not numbered as `Subgoal 1`".to_owned();
            return self.drop_out(Failure { stage: Stage::Planner, detail });
        };
        self.plan_prompt.push_str(&prompts::plan_again(&plan, self.turn, &value));
        self.ground = ground;
        self.turn += 1;
        self.phase = Phase::Planning;
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    /// The value of the subgoal with the highest number, which is not always the last one. `None` if a name
    /// has no number, or the number has a different format.
    fn last_subgoal_value(&self) -> Option<ShopValue> {
        let number = |name: &String| Integer::parse(name.rsplit("Subgoal ").next().unwrap_or_default());
        let numbers: Vec<Integer> = self.subgoal_values.keys().map(number).collect::<Option<_>>()?;
        let highest = numbers.into_iter().max()?;
        self.subgoal_values.get(&format!("Subgoal {highest}")).cloned()
    }

    fn credit(&mut self, purchase: Option<Purchase>) -> Want {
        self.end(End::Credited, purchase, None)
    }

    fn drop_out(&mut self, failure: Failure) -> Want {
        self.end(End::Dropped, None, Some(failure))
    }

    fn end(&mut self, end: End, credited: Option<Purchase>, failure: Option<Failure>) -> Want {
        self.phase = Phase::Ended;
        let ending = match failure {
            None => Ending::Answered,
            Some(Failure { stage, detail }) => Ending::GaveUp(Reason { stage, turn: self.turn, detail }),
        };
        let evidence = ShopEvidence {
            end,
            credited,
            first: self.first.take(),
            subgoals: std::mem::take(&mut self.subgoals),
            actions: std::mem::take(&mut self.visit.actions),
            results: std::mem::take(&mut self.results),
        };
        Want::Done { ending, evidence: Evidence::Shop(evidence) }
    }
}

/// The name of the subgoal in the planner's reply.
fn subgoal_name(plan: &str) -> String {
    let before = strip(plan).split(':').next().unwrap_or_default();
    strip(before.rsplit(KEEP_PLANNING).next().unwrap_or_default()).to_owned()
}
