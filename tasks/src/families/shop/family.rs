//! Shopping as a [`Family`] (upstream `lumos_iterative` in `eval/webshop/run_eval.py`). The episode's record is a
//! [`ShopEvidence`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::execution::{Executed, Purchase, SessionState, ShopValue, execute};
use super::exemplars::Exemplars;
use super::prompts::{self, FIRST_VARIABLE};
use crate::call::ToolReply;
use crate::configuration::Configuration;
use crate::episode::{Started, Want};
use crate::families::Failure;
use crate::families::execution::Interrupt;
use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use crate::families::prompts::{ground_again, next_subgoal, subgoal_name};
use crate::formulation::Behaviour;
use crate::outcome::{Evidence, Observation, Stage};
use crate::python::{Integer, strip};

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

/// Starts the episode of an instruction.
pub(crate) fn start(
    instruction: &str,
    exemplars: Option<&Exemplars>,
    configuration: &Configuration,
) -> Started {
    let exemplars = exemplars.cloned().unwrap_or_else(Exemplars::shipped);
    let family = Shop {
        behaviour: configuration.behaviour,
        session: SessionState::default(),
        results: BTreeMap::new(),
        subgoal_values: BTreeMap::new(),
        last: None,
        first: None,
    };
    let (plan, ground) = (prompts::plan(&exemplars, instruction), prompts::ground(&exemplars, instruction));
    PlanLoop::start(family, configuration.max_rounds, plan, ground)
}

#[derive(Debug)]
struct Shop {
    behaviour: Behaviour,
    session: SessionState,
    results: BTreeMap<String, ShopValue>,
    /// Each subgoal's value by the subgoal's name.
    subgoal_values: BTreeMap<String, ShopValue>,
    /// The value of the turn's last executed action, and its purchase.
    last: Option<(ShopValue, Option<Purchase>)>,
    first: Option<Purchase>,
}

impl Shop {
    /// The value of the subgoal with the highest number, which is not always the last one. `None` if a name
    /// has no number, or the number has a different format.
    fn last_subgoal_value(&self) -> Option<&ShopValue> {
        let number = |name: &String| Integer::parse(name.rsplit("Subgoal ").next().unwrap_or_default());
        let numbers: Vec<Integer> = self.subgoal_values.keys().map(number).collect::<Option<_>>()?;
        let highest = numbers.into_iter().max()?;
        self.subgoal_values.get(&format!("Subgoal {highest}"))
    }

    fn credit(&mut self, purchase: Option<Purchase>, state: &mut LoopState) -> Want {
        self.end(End::Credited, purchase, None, state)
    }

    fn drop_out(&mut self, failure: Failure, state: &mut LoopState) -> Want {
        self.end(End::Dropped, None, Some(failure), state)
    }

    fn end(
        &mut self,
        end: End,
        credited: Option<Purchase>,
        failure: Option<Failure>,
        state: &mut LoopState,
    ) -> Want {
        let evidence = ShopEvidence {
            end,
            credited,
            first: self.first.take(),
            subgoals: std::mem::take(&mut state.subgoals),
            actions: std::mem::take(&mut self.session.actions),
            results: std::mem::take(&mut self.results),
        };
        state.end(failure, Evidence::Shop(evidence))
    }
}

impl Family for Shop {
    fn subgoal(&self, plan: &str, state: &LoopState) -> String {
        let first = if state.turn == 1 { FIRST_VARIABLE } else { "" };
        next_subgoal(plan) + first
    }

    fn actions(&mut self, reply: &str, state: &mut LoopState) -> Vec<String> {
        self.session.reset = true;
        self.last = None;
        strip(&grounded(reply, state.turn)).split("; ").map(str::to_owned).collect()
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        match execute(action, &self.results, &mut self.session, self.behaviour, &turn.replies) {
            Ok(Executed { variable, value, purchase }) => {
                state.observe(action, Observation::Text(value.to_python_text()));
                self.results.insert(variable, value.clone());
                if self.first.is_none() {
                    self.first.clone_from(&purchase);
                }
                if self.behaviour == Behaviour::Corrected && purchase.is_some() {
                    return Err(self.credit(purchase, state));
                }
                self.last = Some((value, purchase));
                Ok(())
            }
            Err(Interrupt::Ask(call)) => Err(Want::Call(call)),
            Err(Interrupt::Failed(failure)) => {
                state.observe(action, Observation::Refused(failure.detail.clone()));
                Err(self.drop_out(failure, state))
            }
        }
    }

    fn turn_ended(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        match self.last.take() {
            Some((ShopValue::Reward(_), purchase)) => return Err(self.credit(purchase, state)),
            Some((value, _)) => {
                self.subgoal_values.insert(subgoal_name(&turn.plan).to_owned(), value);
            }
            None => {}
        }
        Ok(())
    }

    fn next_turn(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(String, String), Want> {
        let Some(value) = self.last_subgoal_value() else {
            let detail = "the subgoals are not numbered as `Subgoal 1`";
            return Err(self.drop_out(Failure::new(Stage::Planner, detail), state));
        };
        let plan = prompts::plan_again(&turn.plan, state.turn, value);
        Ok((plan, ground_again(&grounded(&turn.ground, state.turn))))
    }

    fn conclude(&mut self, _replies: &[ToolReply], state: &mut LoopState) -> Want {
        let detail = "the rounds were used up before anything was bought";
        self.end(End::Unfinished, None, Some(Failure::new(Stage::Limit, detail)), state)
    }
}

/// The grounder's reply; the first one is completed by the variable at the end of its prompt.
fn grounded(reply: &str, turn: u32) -> Cow<'_, str> {
    if turn > 1 {
        return reply.into();
    }
    let rest = reply.trim_matches(|character| FIRST_VARIABLE.contains(character));
    format!("{FIRST_VARIABLE}{rest}").into()
}
