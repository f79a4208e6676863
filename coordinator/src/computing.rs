//! How the sessions of a run computed its models: where, and at what cost. Facts of the machine and the schedule, never
//! part of a comparison.

use lumos_tasks::Placement;
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
