//! The messages of units: work for workers ([`WorkMessage`]) and results for coordinators ([`ResultMessage`], sent as
//! [`ResultBatch`]).

use std::fmt::Write;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::RunToken;
use crate::configuration::Configuration;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::item::{Setup, Task};
use crate::outcome::{Outcome, Telemetry};
use crate::unit::{Assignment, Finished, WorkUnit};

/// A unit sent to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkMessage {
    /// The run.
    pub run: RunToken,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The unit.
    pub work: UnitMessage,
}

/// A unit that names its configuration by hash.
///
/// On the queue it begins with the kind of work, of which there is one: `"work":"episode"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename = "episode")]
pub struct UnitMessage {
    /// The unit's identity.
    pub id: UnitId,
    /// The item's identity.
    pub item: ItemId,
    /// The input of the episode.
    pub task: Task,
    /// The additional input of its session.
    pub setup: Setup,
    /// The configuration's identity.
    pub configuration: ContentHash,
}

/// An invalid work message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Its configuration is not one of the run's.
    #[error("configuration {0} not found in the run")]
    UnknownConfiguration(ContentHash),
    /// Its id does not match its content.
    #[error("unit id mismatch: claimed {claimed}, computed {found}")]
    WrongIdentity {
        /// The id in the message.
        claimed: UnitId,
        /// The id computed from the content.
        found: UnitId,
    },
}

impl WorkMessage {
    /// Packs an assignment with the identity of its configuration.
    pub fn pack(run: RunToken, assignment: Assignment, configuration: ContentHash) -> Self {
        let WorkUnit { id, item, task, setup, .. } = assignment.unit;
        let work = UnitMessage { id, item, task, setup, configuration };
        Self { run, attempt: assignment.attempt, work }
    }

    /// The message's id on the queue. Each attempt of a unit has its own.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.work.id, self.attempt)
    }

    /// Returns the assignment with its configuration filled in, after verifying its identity.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn unpack(
        self,
        configuration: impl FnOnce(&ContentHash) -> Option<Arc<Configuration>>,
    ) -> Result<Assignment, MessageError> {
        let UnitMessage { id, item, task, setup, configuration: identity } = self.work;
        let Some(configuration) = configuration(&identity) else {
            return Err(MessageError::UnknownConfiguration(identity));
        };
        let unit = WorkUnit::under(item, task, setup, configuration, &identity);
        if unit.id != id {
            return Err(MessageError::WrongIdentity { claimed: id, found: unit.id });
        }
        Ok(Assignment { unit, attempt: self.attempt, run: Some(self.run) })
    }
}

/// The result of a unit, sent back to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultMessage {
    /// The run.
    pub run: RunToken,
    /// The unit.
    pub unit: UnitId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The episode's record.
    pub outcome: Outcome,
    /// Data that depends on schedule and machine.
    pub telemetry: Telemetry,
}

impl ResultMessage {
    /// Packs a result; `None` if it does not belong to a run on a shared queue.
    pub fn pack(finished: Finished) -> Option<Self> {
        let Finished { unit, attempt, outcome, telemetry, run } = finished;
        Some(Self { run: run?, unit, attempt, outcome, telemetry })
    }
}

/// Results of one run that a worker sends together: those that finished while an earlier message was in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResultBatch {
    /// The results, in the order in which they finished.
    #[serde(deserialize_with = "bounded")]
    pub results: Vec<Arc<ResultMessage>>,
}

impl ResultBatch {
    /// Maximum number of results in a batch; their unit ids have to fit into the message's name. A batch with more cannot be
    /// decoded.
    pub const MOST: usize = 16;

    /// Names the message after its units, so that a message on a server can be identified without reading it:
    /// `<unit>-<attempt>-<worker>`, and `_<unit>-<attempt>` for each further one.
    pub fn message_id(&self) -> String {
        let mut id = String::new();
        for (index, one) in self.results.iter().enumerate() {
            let ResultMessage { unit, attempt, telemetry, .. } = one.as_ref();
            // Writing to a string cannot fail.
            let _ = match index {
                0 => write!(id, "{unit}-{attempt}-{}", telemetry.worker),
                _ => write!(id, "_{unit}-{attempt}"),
            };
        }
        id
    }
}

/// Decodes at most [`ResultBatch::MOST`] results.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<ResultMessage>>, D::Error> {
    let results: Vec<Arc<ResultMessage>> = Deserialize::deserialize(deserializer)?;
    if results.len() > ResultBatch::MOST {
        let (found, most) = (results.len(), ResultBatch::MOST);
        return Err(D::Error::custom(format_args!(
            "invalid batch: expected at most {most} results, found {found}"
        )));
    }
    Ok(results)
}

impl From<Arc<ResultMessage>> for ResultBatch {
    fn from(message: Arc<ResultMessage>) -> Self {
        Self { results: vec![message] }
    }
}

impl From<ResultBatch> for Vec<Finished> {
    fn from(batch: ResultBatch) -> Self {
        batch.results.into_iter().map(|message| Arc::unwrap_or_clone(message).into()).collect()
    }
}

impl From<ResultMessage> for Finished {
    fn from(message: ResultMessage) -> Self {
        let ResultMessage { run, unit, attempt, outcome, telemetry } = message;
        Self { unit, attempt, outcome, telemetry, run: Some(run) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Ending;

    #[test]
    fn a_unit_names_its_kind_of_work_first() {
        let hash = ContentHash::of_bytes(b"");
        let item = ItemId { content: hash.clone(), occurrence: 0 };
        let id = WorkUnit::identity_of(&item, &hash);
        let task = Task::Maths { question: "1 + 1?".to_owned() };
        let unit = UnitMessage { id, item, task, setup: Setup::None, configuration: hash };
        let text = serde_json::to_string(&unit).unwrap();
        assert!(text.starts_with(r#"{"work":"episode","id":""#), "{text}");
        let serde_json::Value::Object(fields) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        let names: Vec<&String> = fields.keys().collect();
        assert_eq!(names, ["work", "id", "item", "task", "setup", "configuration"]);
        assert_eq!(serde_json::from_str::<UnitMessage>(&text).unwrap(), unit);
    }

    #[test]
    fn a_batch_of_too_many_results_is_refused() {
        let message = Arc::new(ResultMessage {
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            unit: UnitId::new(ContentHash::of_bytes(b"unit")),
            attempt: 1,
            outcome: Outcome { ending: Ending::Answered, evidence: None, steps: Vec::new() },
            telemetry: Telemetry::default(),
        });
        let received = |results: usize| {
            let batch = ResultBatch { results: vec![Arc::clone(&message); results] };
            serde_json::from_str::<ResultBatch>(&serde_json::to_string(&batch).unwrap())
        };
        assert_eq!(received(ResultBatch::MOST).unwrap().results.len(), ResultBatch::MOST);
        let refused = received(ResultBatch::MOST + 1).unwrap_err().to_string();
        assert!(refused.starts_with("invalid batch: expected at most 16 results, found 17"), "{refused}");
    }
}
