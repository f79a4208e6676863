//! The loop of an episode on web pages: plan, ground, rank candidates and, with a browser, execute.
//!
//! [`Machine`] is driven by [`Episode`](crate::Episode): it requests a model's reply or a tool call and
//! processes the answer. Its state is a [`Phase`]; the episode's record is a [`WebEvidence`]. The planner is
//! teacher-forced, so every gold step starts with the gold actions before it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::action::{ActionName, ActionRefusal, ParsedWebAction};
use super::element::{CandidateElement, CandidateScope, descending, distinct, passage};
use super::page_action::{PageAction, PageExecution};
use super::prompts::{self, sentence};
use crate::call::{ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::formulation::Behaviour;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::outcome::{Ending, Evidence, Observation, Reason, Stage, Step};
use crate::python::strip;
use crate::request::Role;

/// Number of previous gold actions in the ranker's question.
const TOLD: usize = 3;
/// Maximum number of actions executed per reply; a reply of 512 tokens contains fewer.
const MOST_ACTIONS: usize = 512;
/// The variable of the first page.
const FIRST: &str = "Env";

/// The episode's view of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebTask<'a> {
    pub(crate) task: &'a str,
    pub(crate) steps: u32,
    pub(crate) teacher_forced_history: &'a [String],
    pub(crate) verbs: &'a [u32],
}

/// The record of an episode on web pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebEvidence {
    /// The chosen actions, in order. Paper behaviour may choose several times per step, corrected behaviour
    /// at most once.
    pub chosen: Vec<Chosen>,
    /// Number of gold steps completed by the episode.
    pub steps: u32,
    /// The planner's subgoals, trimmed.
    pub subgoals: Vec<String>,
    /// The random verbs of the gold actions: the upper limit, and the number drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<[u32; 2]>,
    /// The exception with which the original ends its whole run at this point: `KeyError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
    /// Whether the steps' predictions, if any, were executed in a browser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_browser: bool,
}

/// One action that was chosen: the action for a browser, and what it was chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The gold step it belongs to, counted from 0.
    pub step: u32,
    /// The kind of action.
    pub action: ActionName,
    /// The query for the element.
    pub query: String,
    /// The text typed or selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The step whose page was searched; in paper behaviour that of the named variable.
    pub page: u32,
    /// The `backend_node_id` of the best-ranked element; the first of several with the same text.
    pub element: String,
    /// All candidates with that text.
    pub alike: Vec<String>,
    /// The text that the original's tool returns: that of the tenth in the ranking, or of the last. It is not
    /// used.
    pub returned: String,
    /// The browser's result, if this is its step's prediction (the last one chosen) and there was a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<PageExecution>,
}

/// The state of an episode.
#[derive(Debug)]
enum Phase {
    /// Waiting for a subgoal.
    Planning,
    /// Waiting for actions; holds the planner's reply.
    Grounding { plan: String },
    /// Waiting for a page's candidates.
    Looking(Action),
    /// Waiting for the ranking of all candidates by the whole task; holds the candidates.
    Narrowing(Action, Vec<CandidateElement>),
    /// Waiting for the ranking of the candidates by the query; holds the candidates.
    Choosing(Action, Vec<CandidateElement>),
    /// Waiting for the browser's result of the step's prediction.
    Carrying,
    /// Ended.
    Ended,
}

/// The current action.
#[derive(Debug)]
struct Action {
    written: String,
    parsed: ParsedWebAction,
    name: ActionName,
    page: u32,
}

/// The state machine of one episode on web pages.
#[derive(Debug)]
pub(crate) struct Machine {
    task: String,
    steps: u32,
    history: Vec<String>,
    verbs: Vec<u32>,
    /// Seeds the choice of verbs, which is the same for an item with any models.
    verb_seeds: UnitId,
    behaviour: Behaviour,
    max_rounds: u32,
    /// The gold step, counted from 0.
    step: u32,
    phase: Phase,
    plan_prompt: String,
    ground_prompt: String,
    last_reply: String,
    /// Remaining actions of this step, the next one last.
    waiting: Vec<String>,
    variables: Variables,
    evidence: WebEvidence,
}

impl Machine {
    pub(crate) fn start(task: WebTask<'_>, item: &ItemId, configuration: &Configuration) -> (Self, Want) {
        let mut machine = Self {
            task: strip(task.task).to_owned(),
            steps: task.steps,
            history: task.teacher_forced_history.to_vec(),
            verbs: task.verbs.to_vec(),
            verb_seeds: UnitId::new(ContentHash::of_json(&("verbs/1", item, configuration.seed))),
            behaviour: configuration.behaviour,
            max_rounds: configuration.max_rounds.max(1),
            step: 0,
            phase: Phase::Planning,
            plan_prompt: prompts::plan(task.task),
            ground_prompt: String::new(),
            last_reply: String::new(),
            waiting: Vec::new(),
            variables: Variables::default(),
            evidence: WebEvidence { in_browser: configuration.has_browser(), ..WebEvidence::default() },
        };
        let want = if task.steps == 0 {
            machine.raise("IndexError", Stage::Limit, "the task has no steps".to_owned())
        } else {
            machine.ask_planner()
        };
        (machine, want)
    }

    /// The gold step, counted from 1.
    pub(crate) fn turn(&self) -> u32 {
        self.step + 1
    }

    fn ask_planner(&mut self) -> Want {
        self.phase = Phase::Planning;
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    /// Processes a model's reply.
    pub(crate) fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Want {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planning => {
                if self.step == 0 {
                    self.ground_prompt = prompts::ground(&self.task, reply);
                } else {
                    self.ground_prompt.push_str(&prompts::ground_again(&self.last_reply, reply));
                }
                self.phase = Phase::Grounding { plan: reply.to_owned() };
                Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() }
            }
            Phase::Grounding { plan } => {
                self.evidence.subgoals.push(strip(&plan).to_owned());
                self.last_reply = reply.to_owned();
                let most = if self.behaviour == Behaviour::Paper { MOST_ACTIONS } else { 1 };
                self.waiting = strip(reply).split("; ").take(most).map(str::to_owned).collect();
                self.waiting.reverse();
                self.advance(steps)
            }
            phase => unreachable!("no model is asked while {phase:?}"),
        }
    }

    /// Processes a tool's reply; `None` if it does not match the request.
    pub(crate) fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Option<Want> {
        match (std::mem::replace(&mut self.phase, Phase::Ended), reply) {
            (Phase::Carrying, ToolReply::Carried(carried)) => Some(self.carried(carried)),
            (Phase::Carrying, _) => None,
            (_, ToolReply::Raised { message }) => {
                let name = message.split(':').next().unwrap_or_default().to_owned();
                Some(self.raise(&name, Stage::Tool, message))
            }
            (Phase::Looking(action), ToolReply::Candidates(elements)) => {
                Some(self.looked(action, elements, steps))
            }
            (Phase::Narrowing(action, elements), ToolReply::Rank(scores)) => {
                let order = descending(&scores);
                let best = order.into_iter().take(CandidateScope::PUBLISHED);
                let elements = best.filter_map(|index| elements.get(index).cloned()).collect();
                Some(self.choose(action, elements))
            }
            (Phase::Choosing(action, elements), ToolReply::Rank(scores)) => {
                Some(self.chosen(action, &elements, &scores, steps))
            }
            _ => None,
        }
    }

    /// Executes the next action, or continues with the next step.
    fn advance(&mut self, steps: &mut Vec<Step>) -> Want {
        while let Some(written) = self.waiting.pop() {
            let parsed = match (self.behaviour, ParsedWebAction::strictly(&written)) {
                (Behaviour::Paper, _) => ParsedWebAction::as_published(&written),
                (Behaviour::Corrected, Ok(parsed)) => parsed,
                (Behaviour::Corrected, Err(refusal)) => {
                    let why = match refusal {
                        ActionRefusal::Unparsable => "it is no action",
                        ActionRefusal::Unknown => "there is no such action",
                    };
                    self.observe(written, Observation::Refused(why.to_owned()), steps);
                    continue;
                }
            };
            let page = match self.behaviour {
                Behaviour::Paper => self.variables.page(self.step, &parsed.page),
                Behaviour::Corrected => Some(self.step),
            };
            let Some(page) = page else {
                let detail = format!("no variable `{}`", parsed.page);
                self.observe(written, Observation::Refused(detail.clone()), steps);
                return self.raise("KeyError", Stage::GrounderBadArgument, detail);
            };
            let Some(name) = parsed.name else {
                let why = format!("there is no action `{}`", parsed.written);
                self.observe(written, Observation::Refused(why), steps);
                self.hold_next(&parsed.variable);
                continue;
            };
            self.phase = Phase::Looking(Action { written, parsed, name, page });
            let scope = match self.behaviour {
                Behaviour::Paper => CandidateScope::Published,
                Behaviour::Corrected => CandidateScope::All,
            };
            return Want::Call(ToolCall::Candidates { step: page, scope });
        }
        self.carry_out()
    }

    /// Assigns the next step's page to the variable of an action.
    fn hold_next(&mut self, variable: &str) {
        if self.step + 1 < self.steps {
            self.variables.set(variable, self.step + 1);
        }
    }

    fn looked(&mut self, action: Action, elements: Vec<CandidateElement>, steps: &mut Vec<Step>) -> Want {
        if elements.is_empty() {
            let detail = "the page has no candidates".to_owned();
            self.observe(action.written, Observation::Refused(detail.clone()), steps);
            return match self.behaviour {
                Behaviour::Paper => self.raise("UnboundLocalError", Stage::Tool, detail),
                Behaviour::Corrected => self.advance(steps),
            };
        }
        if self.behaviour == Behaviour::Corrected && elements.len() > CandidateScope::PUBLISHED {
            let question = prompts::question(&self.task, &self.previous_actions());
            let passages = elements.iter().map(|element| passage(&element.text)).collect();
            self.phase = Phase::Narrowing(action, elements);
            return Want::Call(ToolCall::Rank { question, passages });
        }
        self.choose(action, elements)
    }

    /// Requests the ranking of the candidates by the action's query.
    fn choose(&mut self, action: Action, elements: Vec<CandidateElement>) -> Want {
        let mut query = action.parsed.query.clone();
        if action.name == ActionName::Select {
            query.push_str(&prompts::option_hint(action.parsed.text.as_deref().unwrap_or_default()));
        }
        let question = prompts::question(&query, &self.previous_actions());
        let passages = distinct(&elements).0.into_iter().map(passage).collect();
        self.phase = Phase::Choosing(action, elements);
        Want::Call(ToolCall::Rank { question, passages })
    }

    fn chosen(
        &mut self,
        action: Action,
        elements: &[CandidateElement],
        scores: &[f64],
        steps: &mut Vec<Step>,
    ) -> Want {
        let (texts, places) = distinct(elements);
        let scores: Vec<f64> =
            places.iter().map(|place| scores.get(*place).copied().unwrap_or(f64::MIN)).collect();
        let order = descending(&scores);
        let best = order.first().copied().unwrap_or_default();
        let returned = order.get(9).or(order.last()).copied().unwrap_or_default();
        let text =
            |index: usize| places.get(index).and_then(|place| texts.get(*place)).copied().unwrap_or_default();
        let alike = elements.iter().filter(|element| element.text == text(best));
        let Action { written, parsed, name, page } = action;
        let chosen = Chosen {
            step: self.step,
            action: name,
            query: parsed.query,
            text: parsed.text,
            page,
            element: elements.get(best).map(|element| element.id.clone()).unwrap_or_default(),
            alike: alike.map(|element| element.id.clone()).collect(),
            returned: text(returned).to_owned(),
            carried: None,
        };
        self.observe(written, Observation::Text(text(best).to_owned()), steps);
        self.evidence.chosen.push(chosen);
        self.hold_next(&parsed.variable);
        self.advance(steps)
    }

    /// Executes the step's prediction if there is a browser; the episode then continues independently of the
    /// result.
    fn carry_out(&mut self) -> Want {
        let prediction = self.evidence.chosen.last().filter(|chosen| chosen.step == self.step);
        let Some(chosen) = prediction.filter(|_| self.evidence.in_browser) else { return self.next_step() };
        let attempt = PageAction {
            step: chosen.step,
            page: chosen.page,
            element: chosen.element.clone(),
            action: chosen.action,
            text: chosen.text.clone(),
        };
        self.phase = Phase::Carrying;
        Want::Call(ToolCall::Carry(attempt))
    }

    fn carried(&mut self, carried: PageExecution) -> Want {
        if let Some(chosen) = self.evidence.chosen.last_mut() {
            chosen.carried = Some(carried);
        }
        self.next_step()
    }

    fn observe(&self, action: String, observation: Observation, steps: &mut Vec<Step>) {
        steps.push(Step::Action { turn: self.turn(), action, observation });
    }

    /// The gold actions before this step, the last three of them.
    fn previous_actions(&self) -> String {
        let step = (self.step as usize).min(self.history.len());
        self.history[step.saturating_sub(TOLD)..step].join("; ")
    }

    fn next_step(&mut self) -> Want {
        self.evidence.steps = self.step + 1;
        if self.step + 1 == self.steps || self.step + 1 == self.max_rounds {
            return self.end(Ending::Answered);
        }
        let representation = self.history.get(self.step as usize);
        let (seeds, verbs, drawn) = (&self.verb_seeds, &self.verbs, &mut self.evidence.drawn);
        let draw = |most: u32| {
            let number = drawn.len();
            let verb = match verbs.get(number) {
                Some(recorded) => *recorded,
                None => (seeds.seed(number as u32) % u64::from(most.max(1))) as u32,
            };
            drawn.push([most, verb]);
            verb
        };
        let written = representation.map(|representation| sentence(representation, draw));
        let sentence = match (written, self.behaviour) {
            (Some(Ok(sentence)), _) => Some(sentence),
            (_, Behaviour::Paper) => None,
            (_, Behaviour::Corrected) => Some(representation.cloned().unwrap_or_default()),
        };
        let Some(sentence) = sentence else {
            let detail = "the gold action has no representation of the form `… -> …`".to_owned();
            return self.raise("IndexError", Stage::Limit, detail);
        };
        self.plan_prompt.push_str(&prompts::plan_again(self.step + 1, &sentence));
        self.step += 1;
        self.ask_planner()
    }

    /// Ends the episode where the original ends its run.
    fn raise(&mut self, exception: &str, stage: Stage, detail: String) -> Want {
        self.evidence.raised = Some(exception.to_owned());
        self.end(Ending::GaveUp(Reason { stage, turn: self.turn(), detail }))
    }

    fn end(&mut self, ending: Ending) -> Want {
        self.phase = Phase::Ended;
        Want::Done { ending, evidence: Evidence::Web(std::mem::take(&mut self.evidence)) }
    }
}

/// The step whose page each variable holds.
#[derive(Debug, Default)]
struct Variables(HashMap<String, u32>);

impl Variables {
    /// The page that an action of a step refers to: in the first step always the first page, whatever is
    /// named; later that of the variable, `None` if it is undefined.
    fn page(&mut self, step: u32, named: &str) -> Option<u32> {
        if step == 0 {
            self.0.insert(FIRST.to_owned(), 0);
            return Some(0);
        }
        self.0.get(named).copied()
    }

    /// Assigns the page of a step to a variable.
    fn set(&mut self, variable: &str, step: u32) {
        self.0.insert(variable.to_owned(), step);
    }
}
