//! Acting on web pages as a [`Family`]: rank the candidates of an action and, with a browser, execute the step's
//! prediction. The episode's record is a [`WebEvidence`].
//!
//! The planner is teacher-forced, so every gold step starts with the gold actions before it. A turn is a gold step.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::action::{ActionName, ActionRefusal, ParsedWebAction};
use super::element::{CandidateElement, CandidateScope, descending, distinct};
use super::page_action::{PageAction, PageExecution};
use super::prompts::{self, GROUND, sentence};
use crate::call::{Passage, ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::{Started, Want};
use crate::families::Failure;
use crate::families::execution::{Interrupt, Replies, unfit};
use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use crate::families::prompts::{ground, ground_again, next_subgoal, plan, subgoal};
use crate::formulation::Behaviour;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::outcome::{Evidence, Observation, Stage};
use crate::python::strip;

/// Number of previous gold actions in the ranker's question.
const TOLD: usize = 3;
/// Maximum number of actions executed per reply; a reply of 512 tokens contains fewer.
const MOST_ACTIONS: usize = 512;
/// The variable of the first page.
const FIRST: &str = "Env";

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

/// Starts the episode of a task with this many gold steps. `history` has the gold actions, `verbs` the recorded
/// verbs of their sentences.
pub(crate) fn start(
    task: &str,
    steps: u32,
    history: &[String],
    verbs: &[u32],
    item: &ItemId,
    configuration: &Configuration,
) -> Started {
    let mut family = Web {
        task: strip(task).to_owned(),
        history: history.to_vec(),
        verbs: verbs.to_vec(),
        verb_seeds: UnitId::new(ContentHash::of_json(&("verbs/1", item, configuration.seed))),
        behaviour: configuration.behaviour,
        steps,
        variables: HashMap::new(),
        evidence: WebEvidence { in_browser: configuration.has_browser(), ..WebEvidence::default() },
    };
    let empty = (steps == 0).then(|| {
        let failure = Failure::new(Stage::Limit, "the task has no steps");
        family.raise("IndexError", failure, &mut LoopState::start())
    });
    let max_rounds = configuration.max_rounds.max(1).min(steps);
    let (plan, ground) = (plan(task), ground(GROUND, task, false));
    let (machine, want) = PlanLoop::start(family, max_rounds, plan, ground);
    (machine, empty.unwrap_or(want))
}

#[derive(Debug)]
struct Web {
    task: String,
    history: Vec<String>,
    verbs: Vec<u32>,
    /// Seeds the choice of verbs, which is the same for an item with any models.
    verb_seeds: UnitId,
    behaviour: Behaviour,
    /// The number of gold steps.
    steps: u32,
    /// The step whose page each variable holds.
    variables: HashMap<String, u32>,
    evidence: WebEvidence,
}

impl Web {
    /// Parses an action; the error is why corrected behaviour rejects it.
    fn parse(&self, action: &str) -> Result<ParsedWebAction, &'static str> {
        if self.behaviour == Behaviour::Paper {
            return Ok(ParsedWebAction::as_published(action));
        }
        ParsedWebAction::strictly(action).map_err(|refusal| match refusal {
            ActionRefusal::Unparsable => "the reply is not an action",
            ActionRefusal::Unknown => "not in the list of actions",
        })
    }

    /// The page that an action of a step refers to. In paper behaviour it is in the first step always the first
    /// page, whatever is named, and later that of the variable; `None` if the variable is undefined.
    fn page(&mut self, step: u32, named: &str) -> Option<u32> {
        if self.behaviour == Behaviour::Corrected {
            return Some(step);
        }
        if step == 0 {
            self.variables.insert(FIRST.to_owned(), 0);
            return Some(0);
        }
        self.variables.get(named).copied()
    }

    /// Assigns the next step's page to the variable of an action.
    fn hold_next(&mut self, variable: String, step: u32) {
        if step + 1 < self.steps {
            self.variables.insert(variable, step + 1);
        }
    }

    /// Ranks the candidates of an action. Returns the choice and its text; `None` if the page has no candidates.
    fn choose(
        &self,
        action: &ParsedWebAction,
        name: ActionName,
        page: u32,
        step: u32,
        replies: &[ToolReply],
    ) -> Result<Option<(Chosen, String)>, Interrupt> {
        let mut replies = Replies::new(replies);
        let scope = match self.behaviour {
            Behaviour::Paper => CandidateScope::Published,
            Behaviour::Corrected => CandidateScope::All,
        };
        let ToolReply::Candidates(elements) = replies.take(|| ToolCall::Candidates { step: page, scope })?
        else {
            return Err(unfit());
        };
        if elements.is_empty() {
            return Ok(None);
        }
        let previous = self.previous_actions(step);
        let mut elements: Vec<&CandidateElement> = elements.iter().collect();
        if self.behaviour == Behaviour::Corrected && elements.len() > CandidateScope::PUBLISHED {
            let question = prompts::question(&self.task, &previous);
            let scores = replies.rank(&question, || {
                elements.iter().map(|element| Passage::untitled(&element.text)).collect()
            })?;
            let best = descending(scores).into_iter().take(CandidateScope::PUBLISHED);
            elements = best.filter_map(|index| elements.get(index).copied()).collect();
        }
        let mut query = action.query.clone();
        if name == ActionName::Select {
            query.push_str(&prompts::option_hint(action.text.as_deref().unwrap_or_default()));
        }
        let (texts, places) = distinct(&elements);
        let scores = replies.rank(&prompts::question(&query, &previous), || {
            texts.iter().map(|text| Passage::untitled(text)).collect()
        })?;
        let scores: Vec<f64> =
            places.iter().map(|place| scores.get(*place).copied().unwrap_or(f64::MIN)).collect();
        let order = descending(&scores);
        let best = order.first().copied().unwrap_or_default();
        let returned = order.get(9).or(order.last()).copied().unwrap_or_default();
        let text =
            |index: usize| places.get(index).and_then(|place| texts.get(*place)).copied().unwrap_or_default();
        let alike = elements.iter().filter(|element| element.text == text(best));
        let chosen = Chosen {
            step,
            action: name,
            query: action.query.clone(),
            text: action.text.clone(),
            page,
            element: elements.get(best).map(|element| element.id.clone()).unwrap_or_default(),
            alike: alike.map(|element| element.id.clone()).collect(),
            returned: text(returned).to_owned(),
            carried: None,
        };
        Ok(Some((chosen, text(best).to_owned())))
    }

    /// The gold actions before a step, the last three of them.
    fn previous_actions(&self, step: u32) -> String {
        let step = (step as usize).min(self.history.len());
        self.history[step.saturating_sub(TOLD)..step].join("; ")
    }

    /// The sentence of a step's gold action; `None` if the original raises.
    fn gold_sentence(&mut self, step: u32) -> Option<String> {
        let representation = self.history.get(step as usize);
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
        match (written, self.behaviour) {
            (Some(Ok(sentence)), _) => Some(sentence),
            (_, Behaviour::Paper) => None,
            (_, Behaviour::Corrected) => Some(representation.cloned().unwrap_or_default()),
        }
    }

    /// Ends the episode where the original ends its run.
    fn raise(&mut self, exception: &str, failure: Failure, state: &mut LoopState) -> Want {
        self.evidence.raised = Some(exception.to_owned());
        self.end(Some(failure), state)
    }

    fn end(&mut self, failure: Option<Failure>, state: &mut LoopState) -> Want {
        self.evidence.subgoals = std::mem::take(&mut state.subgoals);
        state.end(failure, Evidence::Web(std::mem::take(&mut self.evidence)))
    }
}

impl Family for Web {
    fn subgoal(&self, plan: &str, state: &LoopState) -> String {
        if state.turn == 1 { subgoal(plan) } else { next_subgoal(plan) }
    }

    fn actions(&mut self, reply: &str, _state: &mut LoopState) -> Vec<String> {
        let most = if self.behaviour == Behaviour::Paper { MOST_ACTIONS } else { 1 };
        strip(reply).split("; ").take(most).map(str::to_owned).collect()
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        let step = state.turn - 1;
        let parsed = match self.parse(action) {
            Ok(parsed) => parsed,
            Err(why) => {
                state.observe(action, Observation::Refused(why.to_owned()));
                return Ok(());
            }
        };
        let Some(page) = self.page(step, &parsed.page) else {
            let detail = format!("no variable `{}`", parsed.page);
            state.observe(action, Observation::Refused(detail.clone()));
            return Err(self.raise("KeyError", Failure::argument(detail), state));
        };
        let Some(name) = parsed.name else {
            let why = format!("`{}` is not in the list of actions", parsed.written);
            state.observe(action, Observation::Refused(why));
            self.hold_next(parsed.variable, step);
            return Ok(());
        };
        match self.choose(&parsed, name, page, step, &turn.replies) {
            Ok(Some((chosen, text))) => {
                state.observe(action, Observation::Text(text));
                self.evidence.chosen.push(chosen);
                self.hold_next(parsed.variable, step);
                Ok(())
            }
            Ok(None) => {
                let detail = "the page has no candidates";
                state.observe(action, Observation::Refused(detail.to_owned()));
                match self.behaviour {
                    Behaviour::Paper => Err(self.raise("UnboundLocalError", Failure::tool(detail), state)),
                    Behaviour::Corrected => Ok(()),
                }
            }
            Err(Interrupt::Ask(call)) => Err(Want::Call(call)),
            Err(Interrupt::Failed(failure)) => Err(self.raise(&failure.exception(), failure, state)),
        }
    }

    /// Executes the step's prediction if there is a browser; the episode then continues independently of the
    /// result.
    fn turn_ended(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        let in_browser = self.evidence.in_browser;
        let prediction = self.evidence.chosen.last_mut();
        if let Some(chosen) = prediction.filter(|chosen| in_browser && chosen.step + 1 == state.turn) {
            let Some(ToolReply::Carried(carried)) = turn.replies.first() else {
                return Err(Want::Call(ToolCall::Carry(PageAction {
                    step: chosen.step,
                    page: chosen.page,
                    element: chosen.element.clone(),
                    action: chosen.action,
                    text: chosen.text.clone(),
                })));
            };
            chosen.carried = Some(*carried);
        }
        self.evidence.steps = state.turn;
        Ok(())
    }

    fn next_turn(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(String, String), Want> {
        let Some(sentence) = self.gold_sentence(state.turn - 1) else {
            let detail = "the gold action has no representation of the form `… -> …`";
            return Err(self.raise("IndexError", Failure::new(Stage::Limit, detail), state));
        };
        Ok((prompts::plan_again(state.turn, &sentence), ground_again(&turn.ground)))
    }

    /// Ends the episode after the last gold step, or after the limit on steps.
    fn conclude(&mut self, _replies: &[ToolReply], state: &mut LoopState) -> Want {
        self.end(None, state)
    }
}
