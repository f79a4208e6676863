//! A model server whose replies are SQL statements. It sends them to a run's database one after another, and
//! records the result and the duration of each.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::model_server::Server;
use crate::support::{Lumos, lumos};

/// Statements per item: one fewer than it has turns, so that the result of each is visible.
const OF_AN_ITEM: usize = 9;
/// Text that precedes the result of a turn in a planner's prompt.
const RESULT: &str = "The executed result for Subgoal ";

/// Result of a statement.
#[derive(Debug, Clone)]
pub(crate) struct Tried {
    pub(crate) statement: String,
    /// When the program received it.
    sent: Instant,
    /// Time until the program's next request, which contains the result.
    pub(crate) took: Option<Duration>,
    /// The observation in the model's prompt.
    pub(crate) observation: String,
}

impl Tried {
    /// Returns the end of the statement, where long statements differ.
    pub(crate) fn shown(&self) -> String {
        let left_out = self.statement.chars().count().saturating_sub(120);
        self.statement.chars().skip(left_out).collect()
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.observation.contains("Error executing query: ") || self.observation.contains(" = Error: ")
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<String>,
    of_this_item: usize,
    tried: Vec<Tried>,
}

/// The agent and its server.
pub(crate) struct SqlAgent {
    server: Server,
    state: Arc<Mutex<State>>,
    items: usize,
}

impl SqlAgent {
    /// Creates an agent that sends these statements.
    pub(crate) fn sending(statements: impl IntoIterator<Item = String>) -> Self {
        let waiting: VecDeque<String> = statements.into_iter().collect();
        let items = waiting.len().div_ceil(OF_AN_ITEM);
        let state = Arc::new(Mutex::new(State { waiting, ..State::default() }));
        let shared = Arc::clone(&state);
        let server =
            Server::start_listing(Some(&["agent"]), move |_, body| Ok(shared.lock().unwrap().reply(body)));
        Self { server, state, items }
    }

    /// Returns a run of as many sample items as the statements need, one at a time.
    pub(crate) fn command(&self, folder: &Path, name: &str) -> Lumos {
        let run = "run --tasks intercode_sql --formulation iterative --concurrency 1 --retry-on-error 0";
        let items = format!("--limit {} --model openai:agent@{}", self.items, self.server.url);
        lumos().args(run).args(items).output(folder, name)
    }

    /// Returns the results so far.
    pub(crate) fn tried(&self) -> Vec<Tried> {
        self.state.lock().unwrap().tried.clone()
    }
}

impl State {
    fn reply(&mut self, body: &Value) -> String {
        let prompt = body["prompt"].as_str().unwrap();
        if prompt.contains("Subgoal to be grounded") {
            let statement = self.waiting.pop_front().expect("no statement left for a subgoal");
            self.of_this_item += 1;
            let reply = format!("R1 = ExecuteSQL({statement})");
            let tried = Tried { statement, sent: Instant::now(), took: None, observation: String::new() };
            self.tried.push(tried);
            return reply;
        }
        match (prompt.rfind(RESULT), self.tried.last_mut()) {
            (Some(at), Some(last)) if last.took.is_none() => {
                last.took = Some(last.sent.elapsed());
                last.observation = prompt[at..].to_owned();
            }
            _ => self.of_this_item = 0,
        }
        if self.of_this_item == OF_AN_ITEM || self.waiting.is_empty() {
            return "Yes, I will stop planning.".to_owned();
        }
        "Subgoal: Ask the database.".to_owned()
    }
}
