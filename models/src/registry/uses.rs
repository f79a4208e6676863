//! Tracks the engines that a process has used, and the time and device of loading them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumos_tasks::{EngineUse, ModelIdentity, Role};

use super::loaded::Key;
use crate::EngineBackend;

/// The requested engines, whether loaded or not.
#[derive(Debug, Default)]
pub(super) struct Uses(Mutex<BTreeMap<Key, Use>>);

#[derive(Debug)]
struct Use {
    told: EngineUse,
    /// Exact load time; the reported one is rounded.
    time: Duration,
}

impl Uses {
    /// Records that an engine was requested for a role.
    pub(super) fn asked(&self, key: &Key, identity: &ModelIdentity, role: Role, in_turns: bool) {
        let mut uses = self.lock();
        let new = || Use { told: EngineUse::new(identity, key.2.to_string()), time: Duration::ZERO };
        let told = &mut uses.entry(key.clone()).or_insert_with(new).told;
        told.roles.insert(role);
        told.in_turns = in_turns;
    }

    /// Records that an engine was loaded, or that loading it failed, and how long it took.
    pub(super) fn loaded(&self, key: &Key, engine: Option<&EngineBackend>, took: Duration) {
        let mut uses = self.lock();
        let Some(Use { told, time }) = uses.get_mut(key) else { return };
        *time += took;
        told.loads += 1;
        // Rounded to milliseconds, because it is sent repeatedly.
        told.load_seconds = (time.as_secs_f64() * 1000.0).round() / 1000.0;
        if let Some(EngineBackend { model, .. }) = engine {
            // The device that `auto` resolved to.
            told.device = model.device().to_string();
            told.weights = Some(model.weights());
        }
    }

    /// Returns all engines, grouped by model.
    pub(super) fn told(&self) -> Vec<EngineUse> {
        self.lock().values().map(|one| one.told.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
