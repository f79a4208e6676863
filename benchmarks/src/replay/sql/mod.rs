//! Replays episodes of InterCode SQL: those of its own runner with recorded statement results, and published
//! logs, which contain observations and rewards but no results. An episode's item is compared with the data set,
//! if that is available.

mod cells;
mod log;
mod statement;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lumos_environments::sql::{SqlObservation, World};
use lumos_tasks::families::sql::DIALOGUE_LIMIT;
use lumos_tasks::outcome::SqlEvidence;
use lumos_tasks::{
    ChatReply, ContentHash, Ending, Episode, Evidence, Formulation, ItemId, Next, Reply, Setup, SqlGrade,
    Task, ToolCall, ToolReply, WorkUnit,
};
use serde::Deserialize;
use serde_json::Value;

use crate::benchmark::Benchmark;
use crate::intercode_sql::IntercodeSql;
use crate::loading::DataSource;

/// A recorded episode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct SqlRow {
    /// Name of the row.
    pub(super) id: String,
    /// Position in the data set.
    #[serde(default)]
    task_id: Option<usize>,
    db: String,
    query: String,
    gold_sql: String,
    #[serde(default)]
    max_turns: Option<u32>,
    #[serde(default)]
    dialogue_limit: Option<usize>,
    /// The model's replies; missing in published logs, which contain actions only.
    #[serde(default)]
    replies: Option<Vec<String>>,
    #[serde(default)]
    observations_shown_to_policy: Vec<Shown>,
    #[serde(default)]
    roles_sent: Vec<Vec<String>>,
    #[serde(default)]
    tools: Vec<Statement>,
    #[serde(default)]
    expected: Option<Summary>,
    #[serde(default)]
    turn_history: Option<History>,
    #[serde(default)]
    summary: Option<Figures>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    success: Option<bool>,
    /// The published run to which a log belongs.
    #[serde(default)]
    run: Option<String>,
    /// Folder of the file that contains the row.
    #[serde(skip)]
    pub(super) folder: PathBuf,
}

/// The observation that the model received after a turn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Shown {
    printed: String,
    /// Number of rows, if the observation contains rows.
    #[serde(default)]
    rows: Option<usize>,
    reward: f64,
}

/// A statement that was sent, and its result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Statement {
    tool: String,
    input: String,
    #[serde(default)]
    output: Option<Output>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Output {
    /// The cells, if they were recorded.
    #[serde(default)]
    rows: Option<Vec<Vec<Value>>>,
    /// Each row as printed by Python.
    row_strings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Failure {
    msg: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Summary {
    turn_history: History,
    summary: Figures,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct History {
    actions: Vec<String>,
    observations: Vec<String>,
    rewards: Vec<f64>,
    #[serde(default)]
    valid_action: Option<Vec<bool>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Figures {
    max_reward: f64,
    max_reward_idx: usize,
    turns_taken: u32,
    turns_max: u32,
}

impl Statement {
    /// Checks that the recorded cells print as the recorded rows.
    fn check(&self) -> Result<(), String> {
        if self.tool != "sql" {
            return Err(format!("{:?} was sent to the tool {}", self.input, self.tool));
        }
        let Some(Output { rows: Some(rows), row_strings }) = &self.output else { return Ok(()) };
        let printed = rows.iter().map(|row| cells::printed(row)).collect::<Result<Vec<_>, _>>()?;
        same("rows", row_strings, &printed)
    }

    fn observation(&self) -> SqlObservation {
        match (&self.output, &self.error) {
            (_, Some(failure)) => SqlObservation::Text(format!("Error executing query: {}", failure.msg)),
            (Some(output), None) => SqlObservation::Rows(output.row_strings.clone()),
            (None, None) => SqlObservation::None,
        }
    }
}

/// Source of the statements' results.
struct Source<'a>(std::slice::Iter<'a, Statement>);

impl Source<'_> {
    fn statement(&mut self, statement: &str) -> Result<SqlObservation, String> {
        match self.0.next() {
            Some(recorded) if recorded.input == statement => {
                recorded.check()?;
                Ok(recorded.observation())
            }
            Some(recorded) => Err(format!("sent {statement:?}, expected {:?}", recorded.input)),
            None => Err(format!("sent {statement:?}, expected no further statement")),
        }
    }

    fn is_used_up(&mut self) -> Result<(), String> {
        self.0
            .next()
            .map_or(Ok(()), |left| Err(format!("expected {:?}, sent no further statement", left.input)))
    }

    fn grade(&mut self, world: &World, gold_query: &str) -> Result<SqlGrade, String> {
        let gold = self.statement(gold_query)?;
        let is_corrupt = matches!(gold, SqlObservation::Text(_));
        let rows = if let SqlObservation::Rows(rows) = gold { rows } else { Vec::new() };
        Ok(world.grade_printed(gold_query, rows, is_corrupt).reply())
    }
}

impl SqlRow {
    fn history(&self) -> Option<(&History, &Figures)> {
        match (&self.expected, &self.turn_history, &self.summary) {
            (Some(expected), _, _) => Some((&expected.turn_history, &expected.summary)),
            (None, Some(history), Some(summary)) => Some((history, summary)),
            _ => None,
        }
    }

    fn episode(&self) -> Episode {
        let mut configuration = super::configuration(&IntercodeSql, Formulation::TryAgain, Vec::new());
        if let Some(turns) = self.max_turns.or(self.summary.as_ref().map(|summary| summary.turns_max)) {
            configuration.max_rounds = turns;
        }
        let task = Task::Sql { question: self.query.clone(), database: self.db.clone() };
        let item = ItemId { content: ContentHash::of_json(&task), occurrence: 0 };
        Episode::start(&WorkUnit::new(item, task, Setup::None, Arc::new(configuration)))
    }

    /// Replays the row.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_item()?;
        let Some(replies) = &self.replies else {
            let (history, figures) = self.history().ok_or("the row has neither replies nor a history")?;
            return self.check_log(history, figures);
        };
        let mut source = Source(self.statements()?);
        let mut replies = replies.iter();
        let mut episode = self.episode();
        let mut world = World::default();
        let mut observations = Vec::new();
        let mut asked = 0;
        loop {
            let reply = match episode.next() {
                Next::Done => break,
                Next::Generate(_) => return Err("unexpected call of a module".to_owned()),
                Next::Call(ToolCall::Chat { messages, .. }) => {
                    let mut roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
                    if self.dialogue_limit != Some(DIALOGUE_LIMIT) {
                        // The recorded run used a different dialogue limit, or none.
                        roles = conversation(asked, self.dialogue_limit);
                    }
                    same(&format!("conversation {}", asked + 1), &self.roles_sent.get(asked), &Some(&roles))?;
                    asked += 1;
                    let reply = replies.next().ok_or("the model was called more often than recorded")?;
                    observations.push(None);
                    ToolReply::Chat(ChatReply::recorded(reply.as_str()))
                }
                Next::Call(ToolCall::Sql { statement }) => {
                    let observation = source.statement(statement)?;
                    if let Some(last) = observations.last_mut() {
                        *last = Some(observation.printed());
                    }
                    world = World::showing(observation);
                    ToolReply::Sql(world.observation().reply())
                }
                Next::Call(ToolCall::SqlSubmit) => ToolReply::SqlGrade(source.grade(&world, &self.gold_sql)?),
                Next::Call(call) => return Err(format!("unexpected call of the tool {}", call.tool())),
            };
            episode.feed(Reply::Tool(reply)).map_err(|misfit| misfit.to_string())?;
        }
        if replies.next().is_some() || asked != self.roles_sent.len() {
            let (replied, sent) = (self.replies.iter().flatten().count(), self.roles_sent.len());
            return Err(format!(
                "the model was called {asked} times, expected {replied} replies to {sent} prompts"
            ));
        }
        source.is_used_up()?;
        let outcome = episode.finish();
        let Some(Evidence::Sql(evidence)) = outcome.evidence else {
            return Err("the episode ended without evidence".to_owned());
        };
        match (&self.error, &outcome.ending) {
            // The original's run ends here; lumos ends only the item.
            (Some(error), Ending::GaveUp(_)) if error == EMPTY_BLOCK => {
                self.compare_shown(&evidence)?;
                same("success", &self.success.unwrap_or_default(), &false)
            }
            (Some(error), _) => Err(format!("expected exception {error}, got an answer")),
            (None, _) => self.compare(&evidence, observations),
        }
    }

    /// Checks that the database, the question and the gold query equal those of the data set's record.
    fn check_item(&self) -> Result<(), String> {
        let Some(place) = self.task_id else { return Ok(()) };
        let Some(records) = records(&self.folder)? else { return Ok(()) };
        let Some(record) = records.get(place) else {
            return Err(format!("task_id: expected {place}, the data set has {} records", records.len()));
        };
        for (field, recorded, name) in
            [("db", &self.db, "db"), ("query", &self.query, "query"), ("gold_sql", &self.gold_sql, "gold")]
        {
            let place = format!("{field} of record {place}");
            same(&place, &Some(recorded.as_str()), &record.get(name).and_then(Value::as_str))?;
        }
        Ok(())
    }

    /// Returns the recorded statements after the one that selects the database.
    fn statements(&self) -> Result<std::slice::Iter<'_, Statement>, String> {
        let mut statements = self.tools.iter();
        match statements.next() {
            Some(first) if first.input == format!("use {}", self.db) => first.check().map(|()| statements),
            _ => Err("the first statement does not choose the database".to_owned()),
        }
    }

    fn compare(&self, evidence: &SqlEvidence, printed: Vec<Option<String>>) -> Result<(), String> {
        let (history, figures) = self.history().ok_or("the row has no history")?;
        let tries = &evidence.tries;
        same("actions", &history.actions, &tries.iter().map(|one| &one.action).collect::<Vec<_>>())?;
        let shown = tries.iter().map(|one| one.observation.clone());
        let whole: Vec<String> =
            printed.into_iter().zip(shown).map(|(printed, shown)| printed.unwrap_or(shown)).collect();
        same("observations", &history.observations, &whole)?;
        same("rewards", &history.rewards, &tries.iter().map(|one| one.reward).collect::<Vec<_>>())?;
        if let Some(valid) = &history.valid_action {
            same("valid_action", valid, &tries.iter().map(|one| one.executed).collect::<Vec<_>>())?;
        }
        self.compare_shown(evidence)?;
        let (at, best) = evidence.best().unwrap_or_default();
        same("max_reward", &figures.max_reward, &best)?;
        same("max_reward_idx", &figures.max_reward_idx, &at)?;
        same("turns_taken", &figures.turns_taken, &evidence.turns)?;
        if let Some(most) = self.max_turns {
            same("turns_max", &figures.turns_max, &most)?;
        }
        self.success.map_or(Ok(()), |recorded| same("success", &recorded, &(best == 1.0)))
    }

    /// Compares the observations after each turn except the last.
    fn compare_shown(&self, evidence: &SqlEvidence) -> Result<(), String> {
        let recorded = &self.observations_shown_to_policy;
        for (index, (recorded, got)) in recorded.iter().zip(&evidence.tries).enumerate() {
            let rows = match SqlObservation::of_printed(&got.observation) {
                SqlObservation::Rows(rows) => Some(rows.len()),
                SqlObservation::None | SqlObservation::Text(_) => None,
            };
            same(&format!("shown {}", index + 1), &recorded.printed, &got.observation)?;
            same(&format!("rows shown {}", index + 1), &recorded.rows, &rows)?;
            same(&format!("reward {}", index + 1), &recorded.reward, &got.reward)?;
        }
        let turns = usize::try_from(evidence.turns).unwrap_or(usize::MAX);
        same("times shown", &recorded.len(), &turns.saturating_sub(1))
    }
}

/// The data set's records, by position.
type Records = Arc<Vec<Value>>;

/// Returns the records of the data set for a folder of recorded cases, read once; `None` if the data set is
/// missing.
fn records(folder: &Path) -> Result<Option<Records>, String> {
    static KNOWN: OnceLock<Mutex<HashMap<PathBuf, Records>>> = OnceLock::new();
    let file = crate::replay::data_folder(folder).join(IntercodeSql.data_file());
    if !file.is_file() {
        return Ok(None);
    }
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(records) = known.get(&file) {
        return Ok(Some(Arc::clone(records)));
    }
    let items = IntercodeSql.open(DataSource::File(file.clone())).map_err(|error| error.to_string())?;
    let records = items.map(|item| item.map(|item| item.record));
    let records: Vec<Value> = records.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let records = Arc::new(records);
    known.insert(file, Arc::clone(&records));
    Ok(Some(records))
}

/// Exception that the original raises for a reply with an empty code block.
const EMPTY_BLOCK: &str = "IndexError";

/// Returns the roles of the messages sent after `turns` turns: the first two messages, and the last `limit`
/// of the others.
fn conversation(turns: usize, limit: Option<usize>) -> Vec<&'static str> {
    let later = (0..2 * turns).map(|index| if index % 2 == 0 { "assistant" } else { "user" });
    // The original treats a limit of 0 as unlimited.
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let forgotten = (2 * turns).saturating_sub(limit);
    ["system", "user"].into_iter().chain(later.skip(forgotten)).collect()
}

fn same(field: &str, recorded: &impl std::fmt::Debug, got: &impl std::fmt::Debug) -> Result<(), String> {
    let (recorded, got) = (format!("{recorded:?}"), format!("{got:?}"));
    if recorded == got { Ok(()) } else { Err(format!("{field}: expected {recorded}, got {got}")) }
}
