//! How the sessions of a run computed its models: where, and at what cost. Facts of the machine and the schedule, never
//! part of a comparison.

use lumos_tasks::{EngineUse, Placement};
use serde::{Deserialize, Serialize};

/// How models were computed, by sessions that did it alike.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Computing {
    /// The device of every role.
    pub device: Placement,
    /// Whether models took turns in a memory that held one of them at a time.
    pub in_phases: bool,
    /// Episodes driven side by side.
    pub places: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Sessions that came to their end: only of these it is known what swapping cost.
    pub ended: u64,
    /// Models that were loaded in turn.
    pub loads: u64,
    /// Seconds that unloading and loading them took.
    pub load_seconds: f64,
}

impl Computing {
    /// Counts a session among those before it; gives its place.
    pub(crate) fn begin(&self, before: &mut Vec<Self>) {
        match before.iter_mut().find(|one| one.is_like(self)) {
            Some(like) => like.sessions += 1,
            None => before.push(Self { sessions: 1, ended: 0, loads: 0, load_seconds: 0.0, ..self.clone() }),
        }
    }

    /// Adds what a session that was counted when it began came to.
    pub(crate) fn end(&self, before: &mut [Self]) {
        if let Some(like) = before.iter_mut().find(|one| one.is_like(self)) {
            like.ended += 1;
            like.loads += self.loads;
            like.load_seconds += self.load_seconds;
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let way = |one: &Self| (one.device.clone(), one.in_phases, one.places);
        way(self) == way(other)
    }
}

/// How a worker of a queue computed models.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerComputing {
    /// Its name.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// When it began, milliseconds since 1970 by its own clock: another process may have had its name before.
    pub started_ms: i64,
    /// Episodes driven side by side.
    pub places: u32,
    /// Its engines for the run's models, as it told last.
    pub engines: Vec<EngineUse>,
    /// What they came to before it had a unit of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<EngineUse>,
}

impl WorkerComputing {
    /// What tells it from every other worker: its name, and when it began.
    pub(crate) fn key(&self) -> (String, i64) {
        (self.worker.clone(), self.started_ms)
    }

    /// Without what came before the run.
    #[must_use]
    pub fn spent(&self) -> Self {
        let engines = self.engines.iter().map(|engine| engine.since(&self.before)).collect();
        Self { engines, before: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_compute_alike_are_added_up() {
        let mut all = Vec::new();
        let phases = Computing { in_phases: true, places: 256, ..Computing::default() };
        phases.begin(&mut all);
        phases.begin(&mut all);
        Computing { loads: 4, load_seconds: 0.5, ..phases.clone() }.end(&mut all);
        let together = Computing { places: 64, ..Computing::default() };
        together.begin(&mut all);
        together.end(&mut all);
        // The first session was killed.
        assert_eq!(all[0], Computing { sessions: 2, ended: 1, loads: 4, load_seconds: 0.5, ..phases });
        assert_eq!(all[1], Computing { sessions: 1, ended: 1, ..together });
    }
}
