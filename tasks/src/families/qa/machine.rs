//! The loop of a question-answering episode: plan, ground, execute, conclude, or a single answer.
//!
//! [`Machine`] is driven by [`Episode`](crate::Episode): it requests a model's reply or a tool call and
//! processes the answer. Its state is a [`Phase`]; an [`Execution`] holds the actions of one turn.

use crate::call::{ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::families::Failure;
use crate::formulation::{Behaviour, Formulation};
use crate::item::AnswerForm;
use crate::outcome::{Ending, Evidence, Observation, PlanEvidence, Reason, Stage, Step, Value};
use crate::python::strip;
use crate::request::Role;

use super::execution::{Interrupt, QaProgress, QaResult, Setting, World, execute};
use super::prompts;
use super::results::{self, Variables};

/// The variable that holds the answer of an iterative episode.
const FINAL_ANSWER: &str = "final_ans";

/// The state of an episode.
#[derive(Debug)]
enum Phase {
    /// Waiting for subgoals.
    Planning,
    /// Waiting for actions; holds the planner's reply.
    Grounding { plan: String },
    /// Executing the actions of a turn.
    Executing(Execution),
    /// Asking for the answer to the whole question; holds the replies so far.
    Concluding { answers: Vec<ToolReply> },
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
    /// The tools' replies for the current action.
    answers: Vec<ToolReply>,
}

/// The state machine of one question-answering episode.
#[derive(Debug)]
pub(crate) struct Machine {
    question: String,
    form: AnswerForm,
    formulation: Formulation,
    behaviour: Behaviour,
    max_rounds: u32,
    turn: u32,
    phase: Phase,
    plan_prompt: String,
    ground_prompt: String,
    subgoals: Vec<String>,
    actions: Vec<String>,
    variables: Variables,
    /// The last computed value; kept across turns.
    last_value: Option<Value>,
    /// Each subgoal's last value by the subgoal's name, sorted.
    subgoal_values: std::collections::BTreeMap<String, String>,
    /// Why the variables were lost.
    failure: Option<Failure>,
    rounds_exhausted: bool,
}

impl Machine {
    pub(crate) fn start(question: &str, form: AnswerForm, configuration: &Configuration) -> (Self, Want) {
        let formulation = configuration.formulation;
        let one_time = formulation == Formulation::OneTime;
        let mut machine = Self {
            question: strip(question).to_owned(),
            form,
            formulation,
            behaviour: configuration.behaviour,
            max_rounds: if one_time { 1 } else { configuration.max_rounds.max(1) },
            turn: 1,
            phase: Phase::Planning,
            plan_prompt: prompts::plan(question),
            ground_prompt: if one_time { prompts::ground_all(question) } else { prompts::ground(question) },
            subgoals: Vec::new(),
            actions: Vec::new(),
            variables: Variables::default(),
            last_value: None,
            subgoal_values: std::collections::BTreeMap::new(),
            failure: None,
            rounds_exhausted: false,
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
                self.subgoals.push(strip(&plan).to_owned());
                let actions = strip(reply).split("; ").map(str::to_owned).collect();
                let ground = reply.to_owned();
                self.advance(Execution { plan, ground, actions, at: 0, answers: Vec::new() }, steps)
            }
            Phase::Answering => self.answered(reply),
            phase @ (Phase::Executing(_) | Phase::Concluding { .. } | Phase::Ended) => {
                unreachable!("no model is asked while {phase:?}")
            }
        }
    }

    /// Processes a tool's reply.
    pub(crate) fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Executing(mut execution) => {
                execution.answers.push(reply);
                self.advance(execution, steps)
            }
            Phase::Concluding { mut answers } => {
                answers.push(reply);
                self.conclude(answers)
            }
            phase => unreachable!("no tool is called while {phase:?}"),
        }
    }

    fn is_one_time(&self) -> bool {
        self.formulation == Formulation::OneTime
    }

    fn planned(&mut self, reply: &str) -> Want {
        if !self.is_one_time() && reply.contains(prompts::STOP_PLANNING) {
            if self.variables.is_empty() {
                let detail = "planning stopped before anything was carried out";
                return self
                    .raise("IndexError", Failure { stage: Stage::Planner, detail: detail.to_owned() });
            }
            return self.conclude(Vec::new());
        }
        if self.turn == 1 {
            self.ground_prompt.push_str(&prompts::subgoal(reply));
        } else {
            let answers = self.subgoal_values.iter().filter(|(_, value)| value.contains(prompts::ANSWER));
            let answers = answers.map(|(name, value)| (name.as_str(), results::of_value(value)));
            self.ground_prompt.push_str(&prompts::subgoal_with_results(reply, answers));
        }
        self.phase = Phase::Grounding { plan: reply.to_owned() };
        Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() }
    }

    /// Executes actions until a reply is missing or all are done.
    fn advance(&mut self, mut execution: Execution, steps: &mut Vec<Step>) -> Want {
        while let Some(action) = execution.actions.get(execution.at) {
            let is_last = execution.at + 1 == execution.actions.len();
            let setting = Setting {
                question: &self.question,
                form: self.form,
                behaviour: self.behaviour,
                plan: &execution.plan,
                last_of_all: (self.is_one_time() && is_last).then_some(execution.at),
            };
            // After a failure the original executes the turn's other actions without any variables.
            let variables = self.failure.is_none().then_some(&self.variables);
            match execute(action, variables, &setting, &execution.answers) {
                QaProgress::Ask(call) => {
                    self.phase = Phase::Executing(execution);
                    return Want::Call(call);
                }
                QaProgress::Finished(executed) => {
                    let observation = self.observe(executed, is_last);
                    steps.push(Step::Action { turn: self.turn, action: action.clone(), observation });
                }
            }
            if self.failure.is_some() && (self.is_one_time() || self.behaviour == Behaviour::Corrected) {
                return self.end();
            }
            execution.at += 1;
            execution.answers.clear();
        }
        let last = execution.actions.pop().unwrap_or_default();
        self.next_turn(&execution.plan, &execution.ground, &last)
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
                self.last_value = Some(prompts::NO_ANSWER.into());
                let refused = Observation::Refused(failure.detail.clone());
                if self.is_one_time() && is_last {
                    self.failure = Some(failure);
                }
                refused
            }
        }
    }

    fn next_turn(&mut self, plan: &str, ground: &str, last_action: &str) -> Want {
        if self.is_one_time() {
            return self.end();
        }
        let value = match self.last_value.take() {
            None => {
                let failure = self.failure.take();
                let detail = "no action of the first turn was carried out";
                let failure = failure.unwrap_or_else(|| Failure::argument(detail));
                return self.raise("UnboundLocalError", failure);
            }
            // HotpotQA's script appends the value to the action as text and raises on a list.
            Some(Value::List(_)) if self.form == AnswerForm::Entity && self.behaviour == Behaviour::Paper => {
                let detail = "the turn's last action gives passages, not a text";
                return self.raise("TypeError", Failure::argument(detail));
            }
            Some(value) => value,
        };
        let written = format!("{last_action} = {}", value.to_python_text());
        if let Value::Text(text) = &value {
            self.subgoal_values.insert(prompts::subgoal_name(plan).to_owned(), text.clone());
        } else {
            self.subgoal_values.remove(prompts::subgoal_name(plan));
        }
        self.last_value = Some(value);
        let result = strip(written.rsplit('=').next().unwrap_or_default()).to_owned();
        self.actions.push(written);
        if self.failure.is_some() {
            return self.end();
        }
        if self.turn == self.max_rounds {
            self.rounds_exhausted = true;
            return match self.behaviour {
                Behaviour::Corrected if !self.variables.is_empty() => self.conclude(Vec::new()),
                _ => self.end(),
            };
        }
        self.plan_prompt.push_str(&prompts::plan_again(plan, self.turn, &result));
        self.ground_prompt.push_str(&prompts::ground_again(ground));
        self.turn += 1;
        self.phase = Phase::Planning;
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    /// Asks the whole question with the answers found on the way.
    fn conclude(&mut self, answers: Vec<ToolReply>) -> Want {
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
        let asked = World::new(&answers, self.behaviour).question_answering(&question, strip(&context));
        match asked {
            Ok(reply) => {
                self.variables.insert(FINAL_ANSWER.to_owned(), reply.into());
                self.end()
            }
            Err(Interrupt::Ask(call)) => self.ask_to_conclude(call, answers),
            // Outside of an action the original catches nothing: an exception of the chat model ends its run.
            Err(Interrupt::Failed(failure)) => {
                let exception = failure.detail.split(':').next().unwrap_or_default().to_owned();
                self.raise(&exception, failure)
            }
        }
    }

    fn ask_to_conclude(&mut self, call: ToolCall, answers: Vec<ToolReply>) -> Want {
        self.phase = Phase::Concluding { answers };
        Want::Call(call)
    }

    fn answered(&mut self, reply: &str) -> Want {
        match results::of_reply(reply, self.form, self.formulation) {
            Some(answer) => done(
                Ending::Answered,
                PlanEvidence { prediction: Some(answer.into()), ..PlanEvidence::default() },
            ),
            None => {
                let detail = "the reply names no answer".to_owned();
                self.give_up(Failure { stage: Stage::Planner, detail }, None, false)
            }
        }
    }

    fn give_up(&mut self, failure: Failure, raised: Option<&str>, lost: bool) -> Want {
        let Failure { stage, detail } = failure;
        let reason = Reason { stage, turn: self.turn, detail };
        let raised = raised.filter(|_| self.behaviour == Behaviour::Paper).map(str::to_owned);
        let evidence = PlanEvidence { raised, ..self.evidence(None, lost) };
        done(Ending::GaveUp(reason), evidence)
    }

    /// Gives up where an exception ends the original's run.
    fn raise(&mut self, exception: &str, failure: Failure) -> Want {
        self.give_up(failure, Some(exception), false)
    }

    fn end(&mut self) -> Want {
        let lost = self.failure.is_some();
        let prediction = match self.failure.take() {
            Some(failure) => Err(failure),
            None if self.is_one_time() => results::prediction(&self.variables, self.form, self.behaviour),
            None => match self.variables.get(FINAL_ANSWER) {
                Some(Value::Text(text)) => Ok(results::of_value(text).to_owned()),
                Some(Value::List(_)) => Err(Failure::argument(format!("`{FINAL_ANSWER}` holds passages"))),
                None => Err(Failure {
                    stage: Stage::Limit,
                    detail: "the rounds were used up before planning stopped".to_owned(),
                }),
            },
        };
        match prediction {
            Ok(prediction) => {
                let evidence = self.evidence(Some(prediction.into()), lost);
                done(Ending::Answered, evidence)
            }
            Err(failure) => {
                // StrategyQA's one-time script unpacks the missing result of such an action.
                let unpacked = lost && self.is_one_time() && self.form == AnswerForm::YesNo;
                self.give_up(failure, unpacked.then_some("TypeError"), lost)
            }
        }
    }

    /// Builds the record; without variables if they were lost.
    fn evidence(&mut self, prediction: Option<Value>, lost: bool) -> PlanEvidence {
        self.phase = Phase::Ended;
        let has_modules = self.formulation.has_modules();
        PlanEvidence {
            prediction,
            subgoals: std::mem::take(&mut self.subgoals),
            actions: std::mem::take(&mut self.actions),
            results: (has_modules && !lost).then(|| std::mem::take(&mut self.variables).into_values()),
            rounds_exhausted: self.rounds_exhausted,
            raised: None,
        }
    }
}

fn done(ending: Ending, evidence: PlanEvidence) -> Want {
    Want::Done { ending, evidence: Evidence::Qa(evidence) }
}
