//! Replaying episodes of InterCode SQL: of its own runner with recorded statement results, and of its published logs,
//! which hold what was shown and earned and no results.

use std::sync::Arc;

use lumos_environments::sql::{Observation, World};
use lumos_tasks::families::sql::DIALOGUE_LIMIT;
use lumos_tasks::outcome::{SqlEvidence, SqlTry};
use lumos_tasks::{
    ChatReply, ContentHash, Ending, Episode, EpisodeUnit, Evidence, Formulation, ItemId, Next, Reply, Setup,
    SqlGrade, Task, ToolCall, ToolReply,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Verdict;
use crate::intercode_sql::IntercodeSql;

/// A recorded episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlRow {
    /// The row's name.
    pub id: String,
    db: String,
    query: String,
    gold_sql: String,
    #[serde(default)]
    max_turns: Option<u32>,
    #[serde(default)]
    dialogue_limit: Option<usize>,
    /// What the model said; the published logs hold actions only.
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
}

/// What the model was shown after a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Shown {
    printed: String,
    reward: f64,
}

/// A statement that was sent, and what it gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Statement {
    input: String,
    #[serde(default)]
    output: Option<Output>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Output {
    row_strings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Failure {
    msg: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Summary {
    turn_history: History,
    summary: Figures,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct History {
    actions: Vec<String>,
    observations: Vec<String>,
    rewards: Vec<f64>,
    #[serde(default)]
    valid_action: Option<Vec<Value>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Figures {
    max_reward: f64,
    max_reward_idx: usize,
    turns_taken: u32,
    turns_max: u32,
}

impl Statement {
    fn observation(&self) -> Observation {
        match (&self.output, &self.error) {
            (_, Some(failure)) => Observation::Text(format!("Error executing query: {}", failure.msg)),
            (Some(output), None) => Observation::Rows(output.row_strings.clone()),
            (None, None) => Observation::None,
        }
    }
}

/// Where statements' results come from.
struct Source<'a>(std::slice::Iter<'a, Statement>);

impl Source<'_> {
    fn statement(&mut self, statement: &str) -> Result<Observation, String> {
        match self.0.next() {
            Some(recorded) if recorded.input == statement => Ok(recorded.observation()),
            Some(recorded) => Err(format!("sent is {statement:?}, recorded is {:?}", recorded.input)),
            None => Err(format!("sent is {statement:?}, recorded is nothing more")),
        }
    }

    fn grade(&mut self, world: &World, gold_query: &str) -> Result<SqlGrade, String> {
        let gold = self.statement(gold_query)?;
        let is_corrupt = matches!(gold, Observation::Text(_));
        let rows = if let Observation::Rows(rows) = gold { rows } else { Vec::new() };
        Ok(world.grade_printed(gold_query, rows, is_corrupt).reply())
    }
}

/// How the retry message of the published logs begins; how it goes on depends on the run.
const RETRY: &str = "No SQL code was found in your last response.";

impl SqlRow {
    /// Replays the row.
    pub fn replay(&self) -> Verdict {
        Verdict::of(&self.id, self.check())
    }

    fn history(&self) -> Option<(&History, &Figures)> {
        match (&self.expected, &self.turn_history, &self.summary) {
            (Some(expected), _, _) => Some((&expected.turn_history, &expected.summary)),
            (None, Some(history), Some(summary)) => Some((history, summary)),
            _ => None,
        }
    }

    /// Checks a published log, which holds actions as several versions of the parser read them, what was shown and what
    /// that earned, and neither replies nor gold rows. What was shown is read and printed again; where a turn earned 1 its
    /// rows stand for the gold rows, and every turn is graded by them (early logs were not rounded); the summary follows
    /// from the turns.
    fn check_log(&self, history: &History, figures: &Figures) -> Result<(), String> {
        let turns: Vec<_> = history.observations.iter().zip(&history.rewards).collect();
        let solved = turns.iter().find(|(_, reward)| **reward == 1.0);
        let gold = solved.and_then(|(shown, _)| match Observation::of_printed(shown) {
            Observation::Rows(rows) => Some(rows),
            _ => None,
        });
        let mut evidence = SqlEvidence::default();
        for (turn, ((shown, logged), action)) in turns.iter().zip(&history.actions).enumerate() {
            let executed = !shown.starts_with(RETRY);
            let mut reward = **logged;
            if executed {
                let world = World::showing(Observation::of_printed(shown));
                let printed = world.observation().printed();
                if printed != **shown {
                    return Err(format!("turn {}: shown is {shown:?}, printed {printed:?}", turn + 1));
                }
                if let Some(gold) = &gold {
                    let graded = world.grade_printed(&self.gold_sql, gold.clone(), false).reply().reward;
                    let rounded = (reward * 100.0).round_ties_even() / 100.0;
                    if graded != reward && graded != rounded {
                        return Err(format!("turn {}: logged is {reward}, graded {graded}", turn + 1));
                    }
                }
            } else if reward != 0.0 {
                return Err(format!("turn {}: a reply without code earned {reward}", turn + 1));
            }
            if evidence.best().is_some_and(|(_, best)| best == 1.0) {
                return Err(format!("turn {}: the episode went on after it was solved", turn + 1));
            }
            if reward == 0.0 {
                // Logs hold a negative zero now and then.
                reward = 0.0;
            }
            let (action, observation) = (action.clone(), (*shown).clone());
            evidence.tries.push(SqlTry { action, observation, executed, reward, grade: None });
        }
        let (at, best) = evidence.best().unwrap_or_default();
        if best != figures.max_reward || at != figures.max_reward_idx {
            return Err(format!("the best is {best} at {at}, logged {figures:?}"));
        }
        let taken = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        // A last reply that the parser could not take, or `skip`, is a turn that leaves nothing behind.
        let broken_off = best != 1.0 && figures.turns_taken == taken + 1;
        if (taken != figures.turns_taken && !broken_off) || figures.turns_taken > figures.turns_max {
            return Err(format!("{taken} turns were taken, logged {figures:?}"));
        }
        Ok(())
    }

    fn episode(&self) -> Episode {
        let mut configuration = super::configuration(&IntercodeSql, Formulation::TryAgain, Vec::new());
        if let Some(turns) = self.max_turns.or(self.summary.as_ref().map(|summary| summary.turns_max)) {
            configuration.max_rounds = turns;
        }
        let task = Task::Sql { question: self.query.clone(), database: self.db.clone() };
        let item = ItemId { content: ContentHash::of_json(&task), occurrence: 0 };
        Episode::start(&EpisodeUnit::new(item, task, Setup::None, Arc::new(configuration)))
    }

    fn check(&self) -> Result<(), String> {
        let Some(replies) = &self.replies else {
            let (history, figures) = self.history().ok_or("the row holds neither replies nor a history")?;
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
                Next::Generate(_) => return Err("a module is asked".to_owned()),
                Next::Call(ToolCall::Chat { messages, .. }) => {
                    let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
                    if self.dialogue_limit == Some(DIALOGUE_LIMIT) {
                        let recorded =
                            self.roles_sent.get(asked).map(|roles| roles.iter().map(String::as_str));
                        if !recorded.is_some_and(|recorded| recorded.eq(roles.iter().copied())) {
                            return Err(format!("turn {}: the conversation is {roles:?}", asked + 1));
                        }
                    }
                    asked += 1;
                    let reply = replies.next().ok_or("the model is asked more often than recorded")?;
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
                Next::Call(call) => return Err(format!("the tool {} is called", call.tool())),
            };
            episode.feed(Reply::Tool(reply)).map_err(|misfit| misfit.to_string())?;
        }
        let outcome = episode.finish();
        let Some(Evidence::Sql(evidence)) = outcome.evidence else {
            return Err("the episode ended without evidence".to_owned());
        };
        match (&self.error, &outcome.ending) {
            // The original's run ends here, ours only the item.
            (Some(_), Ending::GaveUp(_)) => Ok(()),
            (Some(error), _) => Err(format!("recorded is the exception {error}, got an answer")),
            (None, _) => self.compare(&evidence, observations),
        }
    }

    /// The recorded statements behind the one that chooses the database.
    fn statements(&self) -> Result<std::slice::Iter<'_, Statement>, String> {
        let mut statements = self.tools.iter();
        match statements.next() {
            Some(first) if first.input == format!("use {}", self.db) => Ok(statements),
            _ => Err("the first statement does not choose the database".to_owned()),
        }
    }

    fn compare(&self, evidence: &SqlEvidence, printed: Vec<Option<String>>) -> Result<(), String> {
        let (history, figures) = self.history().ok_or("the row holds no history")?;
        let tries = &evidence.tries;
        let same = |field: &str, recorded: &dyn std::fmt::Debug, got: &dyn std::fmt::Debug| {
            let (recorded, got) = (format!("{recorded:?}"), format!("{got:?}"));
            if recorded == got { Ok(()) } else { Err(format!("{field}: recorded is {recorded}, got {got}")) }
        };
        same("actions", &history.actions, &tries.iter().map(|one| &one.action).collect::<Vec<_>>())?;
        let shown = tries.iter().map(|one| one.observation.clone());
        let whole: Vec<String> =
            printed.into_iter().zip(shown).map(|(printed, shown)| printed.unwrap_or(shown)).collect();
        same("observations", &history.observations, &whole)?;
        same("rewards", &history.rewards, &tries.iter().map(|one| one.reward).collect::<Vec<_>>())?;
        if let Some(valid) = history.valid_action.as_ref().filter(|_| self.replies.is_some()) {
            let got: Vec<Value> = tries.iter().map(|one| one.executed.into()).collect();
            same("valid_action", valid, &got)?;
        }
        for (index, (recorded, got)) in self.observations_shown_to_policy.iter().zip(tries).enumerate() {
            same(&format!("shown {}", index + 1), &recorded.printed, &got.observation)?;
            same(&format!("reward {}", index + 1), &recorded.reward, &got.reward)?;
        }
        let (at, best) = evidence.best().unwrap_or_default();
        same("max_reward", &figures.max_reward, &best)?;
        same("max_reward_idx", &figures.max_reward_idx, &at)?;
        same("turns_taken", &figures.turns_taken, &evidence.turns)
    }
}
