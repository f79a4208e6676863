//! Checks published logs. They contain parsed actions (from several versions of the parser), the shown
//! observations and the rewards, but neither replies nor gold rows.
//!
//! A log is checked for consistency. Each observation is parsed and printed again. The rows of a turn with
//! reward 1 are used as the gold rows, by which every turn is graded (early logs were not rounded). An error
//! must be one that MySQL returns for the turn's statement. Equal statements must show equal rows. The
//! summary must follow from the turns.

use std::collections::HashMap;

use lumos_environments::sql::{SqlObservation, World};
use lumos_tasks::outcome::{SqlEvidence, SqlTry};

use super::statement::{could_fail_with, could_show, is_repeatable};
use super::{Figures, History, SqlRow, same};

/// Beginnings of the messages for a reply without code. The rest depends on the run.
const RETRY: [&str; 2] =
    ["No SQL code was found in your last response.", "Format your SQL command as follows:"];
/// Action of a final reply that the parser rejected. It is logged without an observation.
const BLOCKED: &str = "blocked";
/// Prefix of a shown error.
const ERROR: &str = "Error executing query: ";

/// A turn of a log.
struct Turn<'a> {
    action: &'a str,
    shown: &'a str,
    reward: f64,
}

impl Turn<'_> {
    fn has_code(&self) -> bool {
        !RETRY.iter().any(|retry| self.shown.starts_with(retry))
    }

    /// Checks that the statement can return the shown observation, and that such a result can earn the
    /// reward.
    fn check(&self, database: &str) -> Result<SqlObservation, String> {
        let observation = SqlObservation::of_printed(self.shown);
        let printed = observation.printed();
        if printed != self.shown {
            return Err(format!("shown {:?}, expected {printed:?}", self.shown));
        }
        if !self.has_code() {
            return if self.reward == 0.0 {
                Ok(SqlObservation::None)
            } else {
                Err(format!("a reply without code earned {}", self.reward))
            };
        }
        match &observation {
            SqlObservation::Rows(rows) => could_show(self.action, rows)?,
            SqlObservation::None => {}
            SqlObservation::Text(text) => {
                let message = text
                    .strip_prefix(ERROR)
                    .ok_or_else(|| format!("the shown text is neither rows nor an error: {text:?}"))?;
                could_fail_with(self.action, database, message)?;
            }
        }
        if self.reward != 0.0 && !matches!(observation, SqlObservation::Rows(_)) {
            return Err(format!("an observation without rows earned {}", self.reward));
        }
        Ok(observation)
    }
}

impl SqlRow {
    /// Checks a published log.
    pub(super) fn check_log(&self, history: &History, figures: &Figures) -> Result<(), String> {
        let turns = self.turns(history)?;
        let solved = turns.iter().find(|turn| turn.reward == 1.0);
        let gold = solved.and_then(|turn| match SqlObservation::of_printed(turn.shown) {
            SqlObservation::Rows(rows) => Some(rows),
            SqlObservation::None | SqlObservation::Text(_) => None,
        });
        let mut evidence = SqlEvidence::default();
        let mut known: HashMap<&str, Vec<String>> = HashMap::new();
        for (index, turn) in turns.iter().enumerate() {
            let place = |difference: String| format!("turn {}: {difference}", index + 1);
            let observation = turn.check(&self.db).map_err(place)?;
            if let SqlObservation::Rows(rows) = &observation
                && is_repeatable(turn.action)
            {
                let before = known.entry(turn.action).or_insert_with(|| rows.clone());
                same("rows of the same statement", before, rows).map_err(place)?;
            }
            let mut reward = turn.reward;
            if let Some(gold) = gold.as_ref().filter(|_| turn.has_code()) {
                let world = World::showing(observation);
                let graded = world.grade_printed(&self.gold_sql, gold.clone(), false).reply().reward;
                let rounded = (reward * 100.0).round_ties_even() / 100.0;
                if graded != reward && graded != rounded {
                    return Err(place(format!("logged {reward}, graded {graded}")));
                }
            }
            if evidence.best().is_some_and(|(_, best)| best == 1.0) {
                return Err(place("the episode went on after it was solved".to_owned()));
            }
            if reward == 0.0 {
                // Some logs contain a negative zero.
                reward = 0.0;
            }
            let (action, observation) = (turn.action.to_owned(), turn.shown.to_owned());
            evidence.tries.push(SqlTry {
                action,
                observation,
                executed: turn.has_code(),
                reward,
                grade: None,
            });
        }
        check_valid(history, &turns)?;
        let (at, best) = evidence.best().unwrap_or_default();
        if best != figures.max_reward || at != figures.max_reward_idx {
            return Err(format!("the best is {best} at {at}, logged {figures:?}"));
        }
        // A reply that the parser rejected is a turn without a log entry, or with the action `blocked`;
        // `skip` is treated alike.
        let taken = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let is_blocked = history.actions.len() > turns.len();
        let broken_off = best != 1.0 && figures.turns_taken == taken + 1;
        if (taken != figures.turns_taken || is_blocked) && !broken_off {
            return Err(format!("{taken} turns were taken, logged {figures:?}"));
        }
        if figures.turns_taken > figures.turns_max {
            return Err(format!("{taken} turns were taken, logged {figures:?}"));
        }
        match self.run_turns() {
            Some(most) if most != figures.turns_max => {
                Err(format!("the run {:?} has {most} turns, logged {figures:?}", self.run))
            }
            _ => Ok(()),
        }
    }

    /// Returns the turns of a log. The numbers of actions, observations and rewards are equal, except for a
    /// rejected last reply.
    fn turns<'a>(&self, history: &'a History) -> Result<Vec<Turn<'a>>, String> {
        let History { actions, observations, rewards, .. } = history;
        if actions.len() == observations.len() + 1 {
            same("the last action", &actions.last().map(String::as_str), &Some(BLOCKED))?;
            same("the last reward", &rewards.get(observations.len()), &Some(&0.0))?;
        } else {
            same("actions", &actions.len(), &observations.len())?;
        }
        same("rewards", &rewards.len(), &actions.len())?;
        let turns = actions.iter().zip(observations).zip(rewards);
        Ok(turns.map(|((action, shown), reward)| Turn { action, shown, reward: *reward }).collect())
    }

    /// Returns the number of turns in the run's name: `ic_sql_multiturn_gpt-4_10_turns.json`.
    fn run_turns(&self) -> Option<u32> {
        let (before, _) = self.run.as_deref()?.split_once("_turns")?;
        before.rsplit(['_', '-']).next()?.parse().ok()
    }
}

/// Checks validity: a statement with a result is valid, a failed statement or a reply without code is not.
/// For replies without code some versions of the runner kept the value of the previous turn.
fn check_valid(history: &History, turns: &[Turn<'_>]) -> Result<(), String> {
    let Some(valid) = &history.valid_action else { return Ok(()) };
    same("valid_action", &valid.len(), &turns.len())?;
    let mut before = false;
    for (index, (turn, valid)) in turns.iter().zip(valid).enumerate() {
        let fits = if turn.has_code() { *valid != turn.shown.starts_with(ERROR) } else { !*valid || before };
        if !fits {
            return Err(format!("turn {}: valid_action is {valid}, but shown {:?}", index + 1, turn.shown));
        }
        before = *valid;
    }
    Ok(())
}
