//! Mathematics as a [`Family`]: the texts that the published checkpoints were trained on (upstream
//! `eval/gsm/run_eval.py`, `eval/svamp/run_eval.py`), the variables of an episode and its record.

use super::execution::{MathsResult, Results, execute};
use super::results::{self, NoPrediction};
use crate::call::ToolReply;
use crate::configuration::Configuration;
use crate::episode::{Started, Want};
use crate::families::Failure;
use crate::families::one_request::SingleModel;
use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use crate::families::prompts::{self, ASSISTANT, PLAN, STOP_PLANNING, USER};
use crate::formulation::{Behaviour, Formulation};
use crate::identity::ContentHash;
use crate::outcome::{Evidence, Observation};
use crate::python::strip;

pub(crate) const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'Calculator', 'SetEquation', 'SolveEquation', 'Count', 'SolveInequality', \
'Code', and 'Define'.\n\
Calculator(formula): Calculate the input formula; SetEquation(equation): Set up an equation to be solved; \
SolveEquation(equation): Solve the previous set equation; Count(list): Count the number of elements in the \
given list; SolveInequality(inequality): Solve the previous set inequality; Code(pseudo_code): Generate a \
Python function that corresponds to the pseudo code; Define(variable/number): Define a variable or a number \
for latter usage.\n\n";

/// Hash of the texts that reach a model.
pub fn prompts_hash() -> ContentHash {
    ContentHash::of_json(&(PLAN, GROUND, USER, ASSISTANT, STOP_PLANNING, "prompts/maths/1"))
}

/// Starts the episode of a question.
pub(crate) fn start(question: &str, configuration: &Configuration) -> Started {
    let Configuration { formulation, behaviour, max_rounds, .. } = *configuration;
    if !formulation.has_modules() {
        let answer = move |reply: &str| {
            Some(match formulation {
                Formulation::Cot => results::of_chain(reply),
                _ => results::of_direct(reply),
            })
        };
        return SingleModel::start(question, answer, Evidence::Maths);
    }
    let family = Maths { formulation, behaviour, results: Results::new(), failure: None };
    let ground = prompts::ground(GROUND, question, family.is_one_time());
    PlanLoop::start(family, max_rounds, prompts::plan(question), ground)
}

#[derive(Debug)]
struct Maths {
    formulation: Formulation,
    behaviour: Behaviour,
    results: Results,
    /// Why the variables were lost.
    failure: Option<Failure>,
}

impl Maths {
    fn is_one_time(&self) -> bool {
        self.formulation == Formulation::OneTime
    }

    /// Assigns an action's value.
    fn assign(&mut self, action: &str, executed: MathsResult, state: &mut LoopState) {
        let (observation, shown) =
            match results::assign(&mut self.results, executed, self.formulation, self.behaviour) {
                Ok(assigned) => (assigned.observation, assigned.shown),
                Err(failure) => {
                    let refused = Observation::Refused(failure.detail.clone());
                    self.failure = Some(failure);
                    (refused, None)
                }
            };
        if !self.is_one_time() {
            state.actions.push(match shown {
                Some(value) => format!("{action} = {value}"),
                None => action.to_owned(),
            });
        }
        state.observe(action, observation);
    }
}

impl Family for Maths {
    fn stops(&self, plan: &str) -> bool {
        !self.is_one_time() && plan.contains(STOP_PLANNING)
    }

    fn subgoal(&self, plan: &str, _state: &LoopState) -> String {
        prompts::subgoal(plan)
    }

    fn actions(&mut self, reply: &str, state: &mut LoopState) -> Vec<String> {
        let reply = strip(reply);
        // Lumos-O executes the pieces unchanged, Lumos-I strips each.
        if self.is_one_time() {
            state.actions.push(reply.to_owned());
            return reply.split("; ").map(str::to_owned).collect();
        }
        reply.split("; ").map(|piece| strip(piece).to_owned()).collect()
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        if self.failure.is_none() {
            let executed = execute(action, Some(&self.results), self.behaviour, &turn.replies)?;
            self.assign(action, executed, state);
        } else if !self.is_one_time() {
            // After a failure the original still lists the turn's other actions, without values.
            state.actions.push(action.to_owned());
        }
        Ok(())
    }

    fn turn_ended(&mut self, _turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        if self.failure.is_some() || self.is_one_time() {
            return Err(self.conclude(&[], state));
        }
        Ok(())
    }

    fn conclude(&mut self, _replies: &[ToolReply], state: &mut LoopState) -> Want {
        if let Some(failure) = self.failure.take() {
            return state.end_with(Err(failure), None, None, Evidence::Maths);
        }
        let mut raised = None;
        let prediction = results::prediction(&self.results, self.formulation, self.behaviour).map_err(
            |NoPrediction { failure, exception }| {
                raised = (self.behaviour == Behaviour::Paper).then(|| exception.to_owned());
                failure
            },
        );
        state.end_with(prediction, Some(std::mem::take(&mut self.results)), raised, Evidence::Maths)
    }
}
