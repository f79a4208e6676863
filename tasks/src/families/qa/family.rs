//! Question answering as a [`Family`]: the variables of an episode, its conclusion and its record. Runs the agent of
//! the benchmarks, and agents of task files ([`agent`](crate::families::agent)).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::execution::{QaResult, Setting, World, execute};
use super::prompts;
use super::results::{self, Variables};
use crate::call::ToolReply;
use crate::configuration::Configuration;
use crate::episode::{Started, Want};
use crate::families::Failure;
use crate::families::agent::{AgentDefinition, FinalAnswer, ShownResults};
use crate::families::execution::Interrupt;
use crate::families::one_request::SingleModel;
use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use crate::families::prompts::{
    STOP_PLANNING, ground, ground_again, next_subgoal, plan_again, subgoal, subgoal_name,
};
use crate::formulation::{Behaviour, Formulation};
use crate::item::AnswerForm;
use crate::outcome::{Evidence, Observation, Stage, Value};
use crate::python::strip;

/// The variable that holds the answer of an iterative episode.
const FINAL_ANSWER: &str = "final_ans";

/// Starts the episode of a question.
pub(crate) fn start(question: &str, form: AnswerForm, configuration: &Configuration) -> Started {
    let Configuration { formulation, behaviour, max_rounds, .. } = *configuration;
    if !formulation.has_modules() {
        let answer = move |reply: &str| results::of_reply(reply, form, formulation);
        return SingleModel::start(question, answer, Evidence::Qa);
    }
    static PUBLISHED: LazyLock<Arc<AgentDefinition>> = LazyLock::new(|| Arc::new(prompts::agent()));
    let agent = Arc::clone(configuration.agent.as_ref().unwrap_or(&*PUBLISHED));
    let one_time = formulation == Formulation::OneTime;
    let plan = agent.plan_prompt(question);
    let ground = ground(&agent.ground(), question, one_time);
    let behaviour = if agent.paper_quirks { behaviour } else { Behaviour::Corrected };
    let family = Qa {
        agent,
        question: strip(question).to_owned(),
        form,
        one_time,
        behaviour,
        variables: Variables::default(),
        last_value: None,
        subgoal_values: BTreeMap::new(),
        failure: None,
    };
    PlanLoop::start(family, max_rounds, plan, ground)
}

#[derive(Debug)]
struct Qa {
    agent: Arc<AgentDefinition>,
    question: String,
    form: AnswerForm,
    one_time: bool,
    behaviour: Behaviour,
    variables: Variables,
    /// The last computed value; kept across turns.
    last_value: Option<Value>,
    /// Each subgoal's last value by the subgoal's name, sorted.
    subgoal_values: BTreeMap<String, String>,
    /// Why the variables were lost.
    failure: Option<Failure>,
}

impl Qa {
    /// How a value is cut to its answer.
    fn cut(&self) -> fn(&str) -> &str {
        if self.agent.paper_quirks { results::of_value } else { results::own_value }
    }

    /// Records an action's value.
    ///
    /// In the original, an exception assigns an empty value to an empty variable and the episode continues;
    /// an action that is not executed discards all variables. In corrected behaviour neither assigns a value,
    /// and the episode continues unless it was the last action of all.
    fn observe(&mut self, executed: QaResult, is_last: bool) -> Observation {
        match (executed, self.behaviour) {
            (QaResult::Value(variable, value), _) => {
                let observation = match &value {
                    Value::Text(text) => Observation::Text(text.clone()),
                    Value::List(entries) => Observation::Text(format!("{} passages", entries.len())),
                };
                self.last_value = Some(value.clone());
                if self.failure.is_none() {
                    self.variables.insert(variable, value);
                }
                observation
            }
            (QaResult::Raised(failure), Behaviour::Paper) => {
                self.last_value = Some("".into());
                if self.failure.is_none() {
                    self.variables.insert(String::new(), "".into());
                }
                Observation::Refused(failure.detail)
            }
            (QaResult::Nothing(failure), Behaviour::Paper) => {
                let refused = Observation::Refused(failure.detail.clone());
                self.failure.get_or_insert(failure);
                refused
            }
            (QaResult::Raised(failure) | QaResult::Nothing(failure), Behaviour::Corrected) => {
                self.last_value = Some(if self.agent.paper_quirks {
                    prompts::NO_ANSWER.into()
                } else {
                    format!("No result: {}", failure.detail).into()
                });
                let refused = Observation::Refused(failure.detail.clone());
                if self.one_time && is_last {
                    self.failure = Some(failure);
                }
                refused
            }
        }
    }

    /// Ends the episode with the prediction that its variables give.
    fn end(&mut self, state: &mut LoopState) -> Want {
        if let Some(failure) = self.failure.take() {
            // StrategyQA's one-time script unpacks the missing result of such an action.
            let unpacked = self.one_time && self.form == AnswerForm::YesNo;
            let raised = self.raised(unpacked.then_some("TypeError"));
            return state.end_with(Err(failure), None, raised, Evidence::Qa);
        }
        let prediction = if self.one_time || self.agent.answer == FinalAnswer::Last {
            results::prediction(&self.variables, self.form, self.behaviour, self.cut())
        } else {
            match self.variables.get(FINAL_ANSWER) {
                Some(Value::Text(text)) => Ok(self.cut()(text).to_owned()),
                Some(Value::List(_)) => Err(Failure::argument(format!("`{FINAL_ANSWER}` holds passages"))),
                None => Err(Failure::new(Stage::Limit, "the rounds were used up before planning stopped")),
            }
        };
        self.record(prediction, None, state)
    }

    /// Gives up where an exception ends the original's run.
    fn raise(&mut self, exception: &str, failure: Failure, state: &mut LoopState) -> Want {
        self.record(Err(failure), Some(exception), state)
    }

    fn record(
        &mut self,
        prediction: Result<String, Failure>,
        exception: Option<&str>,
        state: &mut LoopState,
    ) -> Want {
        let results = std::mem::take(&mut self.variables).into_values();
        let raised = self.raised(exception);
        state.end_with(prediction.map(Value::Text), Some(results), raised, Evidence::Qa)
    }

    fn raised(&self, exception: Option<&str>) -> Option<String> {
        exception.filter(|_| self.behaviour == Behaviour::Paper).map(str::to_owned)
    }
}

impl Family for Qa {
    fn stops(&self, plan: &str) -> bool {
        !self.one_time && plan.contains(STOP_PLANNING)
    }

    fn subgoal(&self, plan: &str, state: &LoopState) -> String {
        if state.turn == 1 {
            return subgoal(plan);
        }
        let is_shown = |value: &str| match self.agent.results {
            ShownResults::None => false,
            ShownResults::Answers => value.contains(prompts::ANSWER),
            ShownResults::All => true,
        };
        if self.agent.results == ShownResults::None {
            return next_subgoal(plan);
        }
        let answers = self.subgoal_values.iter().filter(|(_, value)| is_shown(value));
        let answers = answers.map(|(name, value)| (name.as_str(), self.cut()(value)));
        prompts::subgoal_with_results(plan, answers)
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        let is_last = turn.at + 1 == turn.actions.len();
        let setting = Setting {
            agent: &self.agent,
            question: &self.question,
            form: self.form,
            behaviour: self.behaviour,
            plan: &turn.plan,
            last_of_all: (self.one_time && is_last).then_some(turn.at),
        };
        // After a failure the original executes the turn's other actions without any variables.
        let variables = self.failure.is_none().then_some(&self.variables);
        let executed = execute(action, variables, &setting, &turn.replies)?;
        let observation = self.observe(executed, is_last);
        state.observe(action, observation);
        if self.failure.is_some() && (self.one_time || self.behaviour == Behaviour::Corrected) {
            return Err(self.end(state));
        }
        Ok(())
    }

    fn turn_ended(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        if self.one_time {
            return Err(self.end(state));
        }
        let value = match &self.last_value {
            None => {
                let failure = self.failure.take();
                let detail = "no action of the first turn was carried out";
                let failure = failure.unwrap_or_else(|| Failure::argument(detail));
                return Err(self.raise("UnboundLocalError", failure, state));
            }
            // HotpotQA's script appends the value to the action as text and raises on a list.
            Some(Value::List(_)) if self.form == AnswerForm::Entity && self.behaviour == Behaviour::Paper => {
                let detail = "the turn's last action gives passages, not a text";
                return Err(self.raise("TypeError", Failure::argument(detail), state));
            }
            Some(value) => value,
        };
        let last_action = turn.actions.last().map_or("", String::as_str);
        state.actions.push(format!("{last_action} = {}", value.to_python_text()));
        let name = subgoal_name(&turn.plan);
        if let Value::Text(text) = value {
            self.subgoal_values.insert(name.to_owned(), text.clone());
        } else {
            self.subgoal_values.remove(name);
        }
        if self.failure.is_some() {
            return Err(self.end(state));
        }
        Ok(())
    }

    fn next_turn(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(String, String), Want> {
        // The original takes the text after the last `=`, which may be a part of the value.
        let last = self.last_value.as_ref().filter(|_| !self.agent.paper_quirks).map(Value::to_python_text);
        let result = last.as_deref().map_or_else(|| state.last_result(), results::own_value);
        let plan = plan_again(&turn.plan, state.turn, result);
        Ok((plan, ground_again(&turn.ground)))
    }

    /// Ends the episode, or first asks the whole question with the answers found on the way.
    fn conclude(&mut self, replies: &[ToolReply], state: &mut LoopState) -> Want {
        let is_empty = self.variables.is_empty();
        let is_asked = self.agent.answer == FinalAnswer::Ask;
        if state.rounds_exhausted && (is_empty || self.behaviour == Behaviour::Paper) {
            return self.end(state);
        }
        if is_empty {
            let detail = "planning stopped before anything was carried out";
            return self.raise("IndexError", Failure::new(Stage::Planner, detail), state);
        }
        if !is_asked {
            return self.end(state);
        }
        let mut context = String::new();
        for value in self.variables.in_order() {
            if let Value::Text(text) = value
                && text.contains("Question: ")
            {
                context.push_str(text);
                context.push_str("; ");
            }
        }
        let yes_or_no = if self.form == AnswerForm::YesNo { prompts::YES_OR_NO } else { "" };
        let question = format!("{}{yes_or_no}", self.question);
        match World::new(replies, self.behaviour).question_answering(&question, strip(&context)) {
            Ok(reply) => {
                self.variables.insert(FINAL_ANSWER.to_owned(), reply.into());
                self.end(state)
            }
            Err(Interrupt::Ask(call)) => Want::Call(call),
            // Outside of an action the original catches nothing: an exception of the chat model ends its run.
            Err(Interrupt::Failed(failure)) => self.raise(&failure.exception(), failure, state),
        }
    }
}
