//! The visits that are going on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lumos_environments::shop::{Goal, Staff, Visit};
use rand::Rng;

/// Visits at a time; when there are more the one that was begun first ends.
const MOST: usize = 10_000;

/// Visits by their names, which nobody can guess.
#[derive(Debug, Default)]
pub(super) struct Visits {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    visits: HashMap<String, (u64, Arc<Mutex<Visit>>)>,
    begun: u64,
}

impl Visits {
    /// Begins a visit; its name.
    pub(super) fn begin(&self, staff: &Staff, goal: Goal) -> String {
        let name = format!("{:032x}", rand::rng().random::<u128>());
        let visit = Arc::new(Mutex::new(Visit::new(staff.clone(), goal)));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.visits.len() >= MOST {
            let oldest =
                inner.visits.iter().min_by_key(|(_, (begun, _))| *begun).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| inner.visits.remove(&oldest));
        }
        inner.begun += 1;
        let begun = inner.begun;
        inner.visits.insert(name.clone(), (begun, visit));
        name
    }

    /// The visit of a name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Mutex<Visit>>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.visits.get(name).map(|(_, visit)| Arc::clone(visit))
    }

    /// Ends a visit.
    pub(super) fn end(&self, name: &str) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).visits.remove(name);
    }
}
