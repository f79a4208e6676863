//! Where and at what cost the sessions of a run computed its models.
//!
//! [`Computing`] describes sessions in the coordinator's own process, and [`WorkerComputing`] the workers of
//! a queue. Both are stored in the checkpoint and shown in reports. They describe machines and schedules, and
//! results are never compared by them.

use lumos_tasks::{EngineUse, Placement, ServerUse};
use serde::{Deserialize, Serialize};

/// How models were computed, by sessions with the same setup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Computing {
    /// Device of each role.
    pub device: Placement,
    /// Whether models took turns in memory that held one of them at a time.
    pub in_phases: bool,
    /// Number of episodes driven at the same time.
    #[serde(rename = "places")]
    pub concurrency: u64,
    /// Number of sessions that started.
    pub sessions: u64,
    /// Number of sessions that ended normally. The cost of swapping models is known only for these.
    pub ended: u64,
    /// Number of model loads while models took turns.
    pub loads: u64,
    /// Seconds spent on unloading and loading models.
    pub load_seconds: f64,
    /// The model servers that the sessions used, as far as they ended normally.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerUse>,
}

impl Computing {
    /// Adds the start of a session to the entry with the same setup, or adds an entry.
    pub(crate) fn begin(&self, before: &mut Vec<Self>) {
        match before.iter_mut().find(|one| one.is_like(self)) {
            Some(like) => like.sessions += 1,
            None => before.push(Self {
                sessions: 1,
                ended: 0,
                loads: 0,
                load_seconds: 0.0,
                servers: Vec::new(),
                ..self.clone()
            }),
        }
    }

    /// Adds the figures of a session whose start was counted.
    pub(crate) fn end(&self, before: &mut [Self]) {
        if let Some(like) = before.iter_mut().find(|one| one.is_like(self)) {
            like.ended += 1;
            like.loads += self.loads;
            like.load_seconds += self.load_seconds;
            ServerUse::merge(&mut like.servers, &self.servers);
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let way = |one: &Self| (one.device.clone(), one.in_phases, one.concurrency);
        way(self) == way(other)
    }
}

/// How a worker of a queue computed models.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerComputing {
    /// Name of the worker.
    pub worker: String,
    /// Host name.
    pub host: String,
    /// Start time in milliseconds since 1970 by the worker's clock. Distinguishes processes with the same
    /// name.
    pub started_ms: i64,
    /// Number of episodes driven at the same time.
    #[serde(rename = "places")]
    pub concurrency: u32,
    /// Latest reported usage of its engines for the run's models.
    pub engines: Vec<EngineUse>,
    /// Usage of the engines before the worker's first unit of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<EngineUse>,
    /// Latest reported use of the run's model servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerUse>,
    /// Use of the servers before the worker's first unit of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers_before: Vec<ServerUse>,
}

impl WorkerComputing {
    /// Key that identifies the worker process: name and start time.
    pub(crate) fn key(&self) -> (String, i64) {
        (self.worker.clone(), self.started_ms)
    }

    /// Returns the usage of the run, without usage from before it.
    #[must_use]
    pub fn spent(&self) -> Self {
        let engines = self.engines.iter().map(|engine| engine.since(&self.before)).collect();
        let servers = self.servers.iter().map(|server| server.since(&self.servers_before)).collect();
        Self { engines, servers, before: Vec::new(), servers_before: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_compute_alike_are_added_up() {
        let mut all = Vec::new();
        let phases = Computing { in_phases: true, concurrency: 256, ..Computing::default() };
        phases.begin(&mut all);
        phases.begin(&mut all);
        Computing { loads: 4, load_seconds: 0.5, ..phases.clone() }.end(&mut all);
        let together = Computing { concurrency: 64, ..Computing::default() };
        together.begin(&mut all);
        together.end(&mut all);
        // The first session was killed.
        assert_eq!(all[0], Computing { sessions: 2, ended: 1, loads: 4, load_seconds: 0.5, ..phases });
        assert_eq!(all[1], Computing { sessions: 1, ended: 1, ..together });
    }
}
