//! The loop of plan, ground and execute (paper, section 3).
//!
//! ```text
//! planner ── subgoal ──> grounder ── actions ──> execute each ──> end of turn ── limit on rounds ──┐
//!    ^                                                                                             │
//!    └────────────── the turn's results are appended to both prompts ──────────────────────────────┘
//! ```
//!
//! [`PlanLoop`] has the phases, the count of turns, both prompts and the limit; [`LoopState`] is what families read
//! and record of it. A [`Family`] supplies the texts, executes actions and builds the record. Where a family needs
//! a tool, it returns the call as an error and runs again with one more reply.

use std::collections::BTreeMap;
use std::fmt;

use super::{Failure, prompts};
use crate::call::ToolReply;
use crate::dialogue::Dialogue;
use crate::episode::{Machine, Started, Want};
use crate::outcome::{Ending, Evidence, Observation, PlanEvidence, Step, Value};
use crate::python::strip;
use crate::request::Role;

/// What a family adds to the loop.
///
/// A function that returns a `Result` fails with what the episode needs before it can go on: a call, after which
/// the same function runs again with the reply, or the end. Until it has all its replies, such a function must not
/// change anything that it does not change in the same way when it runs again.
pub trait Family: fmt::Debug + Send + Sync + 'static {
    /// Strips a subgoal for the record.
    const STRIP: fn(&str) -> &str = strip;

    /// Whether the planner's reply ends planning.
    fn stops(&self, _plan: &str) -> bool {
        false
    }

    /// Text appended to the grounder's prompt: the subgoal in the planner's reply.
    fn subgoal(&self, plan: &str, state: &LoopState) -> String;

    /// The actions in the grounder's reply; at least one.
    fn actions(&mut self, reply: &str, _state: &mut LoopState) -> Vec<String> {
        strip(reply).split("; ").map(str::to_owned).collect()
    }

    /// Executes one action.
    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want>;

    /// Ends a turn whose actions have been executed.
    fn turn_ended(&mut self, _turn: &Turn, _state: &mut LoopState) -> Result<(), Want> {
        Ok(())
    }

    /// Texts appended to the planner's and to the grounder's prompt for the next turn.
    fn next_turn(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(String, String), Want> {
        let plan = prompts::plan_again(&turn.plan, state.turn, state.last_result());
        Ok((plan, prompts::ground_again(&turn.ground)))
    }

    /// Ends the episode after planning: the planner stopped, or the rounds are used up. `replies` are those to the
    /// calls that this function requested so far.
    fn conclude(&mut self, replies: &[ToolReply], state: &mut LoopState) -> Want;
}

/// The actions of one turn and the progress of their execution.
#[derive(Debug)]
pub struct Turn {
    /// The planner's reply.
    pub plan: String,
    /// The grounder's reply.
    pub ground: String,
    /// The actions in it.
    pub actions: Vec<String>,
    /// The index of the current action; the number of actions when the turn ends.
    pub at: usize,
    /// The tools' replies for the current action, or for the end of the turn.
    pub replies: Vec<ToolReply>,
}

/// The loop's state that families read and record.
#[derive(Debug, Default)]
pub struct LoopState {
    /// The current turn, counted from 1.
    pub turn: u32,
    /// Grounded subgoals, stripped.
    pub subgoals: Vec<String>,
    /// Actions as the record lists them, with their values.
    pub actions: Vec<String>,
    /// Whether the planner was still planning when the limit on rounds was reached.
    pub rounds_exhausted: bool,
    /// Steps that the episode has not recorded yet.
    steps: Vec<Step>,
}

impl LoopState {
    /// The state at the start of an episode.
    pub fn start() -> Self {
        Self { turn: 1, ..Self::default() }
    }

    /// Records the result of an action.
    pub fn observe(&mut self, action: &str, observation: Observation) {
        self.steps.push(Step::Action { turn: self.turn, action: action.to_owned(), observation });
    }

    /// The result of the last recorded action: the text after its last `=`.
    pub fn last_result(&self) -> &str {
        let last = self.actions.last().map_or("", String::as_str);
        strip(last.rsplit('=').next().unwrap_or_default())
    }

    /// Ends the episode, without a prediction if there is a failure.
    pub fn end(&self, failure: Option<Failure>, evidence: Evidence) -> Want {
        let ending = failure.map_or(Ending::Answered, |failure| failure.ending(self.turn));
        Want::Done { ending, evidence: Box::new(evidence) }
    }

    /// Ends the episode with its prediction, its variables and the exception of the original, if it raised.
    pub fn end_with(
        &mut self,
        prediction: Result<Value, Failure>,
        results: Option<BTreeMap<String, Value>>,
        raised: Option<String>,
        evidence: impl FnOnce(PlanEvidence) -> Evidence,
    ) -> Want {
        let (prediction, failure) = match prediction {
            Ok(prediction) => (Some(prediction), None),
            Err(failure) => (None, Some(failure)),
        };
        let plan = PlanEvidence {
            prediction,
            subgoals: std::mem::take(&mut self.subgoals),
            actions: std::mem::take(&mut self.actions),
            results,
            rounds_exhausted: self.rounds_exhausted,
            raised,
        };
        self.end(failure, evidence(plan))
    }
}

/// What the loop waits for.
#[derive(Debug)]
enum Phase {
    /// A subgoal.
    Planning,
    /// Actions; holds the planner's reply.
    Grounding { plan: String },
    /// A tool's reply for an action or for the end of a turn.
    Executing(Turn),
    /// A tool's reply for the conclusion; holds the earlier ones.
    Concluding { replies: Vec<ToolReply> },
    /// Nothing: the episode has ended.
    Ended,
}

/// The state machine of one episode of a family.
#[derive(Debug)]
pub struct PlanLoop<F> {
    family: F,
    max_rounds: u32,
    phase: Phase,
    plan_prompt: Dialogue,
    ground_prompt: Dialogue,
    state: LoopState,
}

impl<F: Family> PlanLoop<F> {
    /// Starts an episode with the planner's first prompt. The grounder's first prompt ends before the subgoal.
    pub fn start(
        family: F,
        max_rounds: u32,
        plan_prompt: impl Into<Dialogue>,
        ground_prompt: impl Into<Dialogue>,
    ) -> Started {
        let mut machine = Self {
            family,
            max_rounds: max_rounds.max(1),
            phase: Phase::Planning,
            plan_prompt: plan_prompt.into(),
            ground_prompt: ground_prompt.into(),
            state: LoopState::start(),
        };
        let want = machine.plan();
        (Box::new(machine), want)
    }

    fn plan(&mut self) -> Want {
        self.phase = Phase::Planning;
        self.plan_prompt.ask();
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    fn ground(&mut self, plan: &str) -> Want {
        self.ground_prompt.push(&self.family.subgoal(plan, &self.state));
        self.ground_prompt.ask();
        self.phase = Phase::Grounding { plan: plan.to_owned() };
        Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() }
    }

    /// Executes a turn until a reply is missing, then continues with the next turn.
    fn advance(&mut self, mut turn: Turn) -> Want {
        if let Err(want) = self.execute(&mut turn) {
            self.phase = Phase::Executing(turn);
            return want;
        }
        if self.state.turn == self.max_rounds {
            self.state.rounds_exhausted = true;
            return self.conclude(Vec::new());
        }
        match self.family.next_turn(&turn, &mut self.state) {
            Ok((plan, ground)) => {
                self.plan_prompt.push(&plan);
                self.ground_prompt.push(&ground);
                self.state.turn += 1;
                self.plan()
            }
            Err(want) => want,
        }
    }

    /// Executes the remaining actions of a turn and ends it.
    fn execute(&mut self, turn: &mut Turn) -> Result<(), Want> {
        while let Some(action) = turn.actions.get(turn.at) {
            self.family.execute(action, turn, &mut self.state)?;
            turn.at += 1;
            turn.replies.clear();
        }
        self.family.turn_ended(turn, &mut self.state)
    }

    fn conclude(&mut self, replies: Vec<ToolReply>) -> Want {
        let want = self.family.conclude(&replies, &mut self.state);
        self.phase = Phase::Concluding { replies };
        want
    }
}

impl<F: Family> Machine for PlanLoop<F> {
    fn turn(&self) -> u32 {
        self.state.turn
    }

    fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Option<Want> {
        let want = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planning if self.family.stops(reply) => self.conclude(Vec::new()),
            Phase::Planning => self.ground(reply),
            Phase::Grounding { plan } => {
                self.state.subgoals.push(F::STRIP(&plan).to_owned());
                let actions = self.family.actions(reply, &mut self.state);
                self.advance(Turn { plan, ground: reply.to_owned(), actions, at: 0, replies: Vec::new() })
            }
            Phase::Executing(_) | Phase::Concluding { .. } | Phase::Ended => return None,
        };
        steps.append(&mut self.state.steps);
        Some(want)
    }

    fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Option<Want> {
        let want = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Executing(mut turn) => {
                turn.replies.push(reply);
                self.advance(turn)
            }
            Phase::Concluding { mut replies } => {
                replies.push(reply);
                self.conclude(replies)
            }
            Phase::Planning | Phase::Grounding { .. } | Phase::Ended => return None,
        };
        steps.append(&mut self.state.steps);
        Some(want)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call::{MathsReply, ToolCall};

    /// Every action and every end of a turn, and the conclusion, take as many calls as they name.
    #[derive(Debug)]
    struct Counting;

    fn wait(calls: usize, replies: &[ToolReply]) -> Result<(), Want> {
        if replies.len() < calls { Err(ToolCall::Maths { query: String::new() }.into()) } else { Ok(()) }
    }

    impl Family for Counting {
        fn stops(&self, plan: &str) -> bool {
            plan.contains("stop")
        }

        fn subgoal(&self, plan: &str, _state: &LoopState) -> String {
            prompts::subgoal(plan)
        }

        fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
            wait(action.matches('x').count(), &turn.replies)?;
            if action.contains("end") {
                let failure = Failure::argument("end");
                return Err(state.end_with(Err(failure), None, None, Evidence::Maths));
            }
            state.observe(action, Observation::Text(String::new()));
            state.actions.push(format!("{action} = {}", state.turn));
            Ok(())
        }

        fn turn_ended(&mut self, turn: &Turn, _state: &mut LoopState) -> Result<(), Want> {
            wait(turn.plan.matches('x').count(), &turn.replies)
        }

        fn conclude(&mut self, replies: &[ToolReply], state: &mut LoopState) -> Want {
            let prediction = Ok("".into());
            match wait(2, replies) {
                Ok(()) => state.end_with(prediction, None, None, Evidence::Maths),
                Err(want) => want,
            }
        }
    }

    /// Drives an episode to its end. Returns the turns, the tool calls, the steps and the end.
    fn drive(replies: &[String], max_rounds: u32) -> (u32, usize, Vec<Step>, Ending, PlanEvidence) {
        let (mut machine, mut want) =
            PlanLoop::start(Counting, max_rounds, "plan ".to_owned(), "ground ".to_owned());
        let (mut calls, mut steps) = (0, Vec::new());
        let mut replies = replies.iter().map(String::as_str).cycle();
        loop {
            let next = match want {
                Want::Generate { .. } => machine.completed(replies.next().unwrap_or_default(), &mut steps),
                Want::Call(_) => {
                    calls += 1;
                    machine.called(ToolReply::Maths(MathsReply::Empty), &mut steps)
                }
                Want::Done { ending, evidence } => {
                    let Evidence::Maths(evidence) = *evidence else { panic!() };
                    return (machine.turn(), calls, steps, ending, evidence);
                }
            };
            want = next.unwrap();
        }
    }

    fn texts(replies: &[&str]) -> Vec<String> {
        replies.iter().map(|&reply| reply.to_owned()).collect()
    }

    #[test]
    fn calls_of_actions_turns_and_the_conclusion_are_awaited() {
        let (turn, calls, steps, ending, evidence) =
            drive(&texts(&[" one x ", "a x; b", "two", "c xx", "stop"]), 8);
        assert_eq!((turn, calls, steps.len(), ending), (3, 1 + 1 + 2 + 2, 3, Ending::Answered));
        assert_eq!(evidence.subgoals, ["one x", "two"]);
        assert_eq!(evidence.actions, ["a x = 1", "b = 1", "c xx = 2"]);
        assert!(!evidence.rounds_exhausted);
    }

    #[test]
    fn the_limit_on_rounds_concludes_the_episode() {
        let (turn, calls, _, ending, evidence) = drive(&texts(&["one", "a"]), 3);
        assert_eq!((turn, calls, ending), (3, 2, Ending::Answered));
        assert!(evidence.rounds_exhausted);
    }

    #[test]
    fn an_action_that_ends_the_episode_is_the_last() {
        let (turn, _, steps, ending, evidence) = drive(&texts(&["one", "a; end; b"]), 3);
        assert_eq!((turn, steps.len(), evidence.actions.len()), (1, 1, 1));
        assert!(matches!(ending, Ending::GaveUp(reason) if reason.turn == 1));
    }

    #[test]
    fn replies_that_were_not_requested_are_refused() {
        let (mut machine, _) = PlanLoop::start(Counting, 1, String::new(), String::new());
        assert!(machine.called(ToolReply::Maths(MathsReply::Empty), &mut Vec::new()).is_none());
        let (mut machine, _) = PlanLoop::start(Counting, 1, String::new(), String::new());
        machine.completed("plan", &mut Vec::new());
        assert!(matches!(machine.completed("x", &mut Vec::new()), Some(Want::Call(_))));
        assert!(machine.completed("x", &mut Vec::new()).is_none());
    }

    proptest! {
        #[test]
        fn any_replies_end_within_the_rounds(
            replies in proptest::collection::vec("(stop|end|x|; |[a-z =]{0,4}){0,6}", 1..6),
            max_rounds in 0u32..6,
        ) {
            let (turn, _, steps, _, evidence) = drive(&replies, max_rounds);
            prop_assert!(turn <= max_rounds.max(1));
            prop_assert_eq!(steps.len(), evidence.actions.len());
            prop_assert!(evidence.subgoals.len() <= turn as usize);
        }
    }
}
