//! The active visits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lumos_environments::shop::{Goal, Raised, ShopServices, ShopSession};
use rand::Rng;

/// A visit and the effect of its last action.
#[derive(Debug)]
pub(super) struct Place {
    /// The visit.
    pub(super) visit: ShopSession,
    /// Number of actions so far. A client that waits for a page uses it to detect the next one.
    pub(super) steps: u64,
    /// The exception raised by the last action.
    pub(super) raised: Option<Raised>,
}

impl Place {
    /// Executes an action. An action that raises an exception in the original does not change the visit.
    pub(super) fn step(&mut self, action: &str) {
        self.steps += 1;
        self.raised = self.visit.step(action).err();
    }
}

/// Visits, by unguessable name.
#[derive(Debug)]
pub(super) struct Visits {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    visits: HashMap<String, (u64, Arc<Mutex<Place>>)>,
    begun: u64,
}

impl Visits {
    /// Creates an empty collection. When it exceeds `most` visits, the oldest one ends.
    pub(super) fn at_most(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    /// Starts a visit. Returns its name.
    pub(super) fn begin(&self, staff: &ShopServices, goal: Goal) -> String {
        let name = format!("{:032x}", rand::rng().random::<u128>());
        let place = Place { visit: ShopSession::new(staff.clone(), goal), steps: 0, raised: None };
        let place = Arc::new(Mutex::new(place));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.visits.len() >= self.most {
            let oldest =
                inner.visits.iter().min_by_key(|(_, (begun, _))| *begun).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| inner.visits.remove(&oldest));
        }
        inner.begun += 1;
        let begun = inner.begun;
        inner.visits.insert(name.clone(), (begun, place));
        name
    }

    /// Returns the visit with this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Mutex<Place>>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.visits.get(name).map(|(_, visit)| Arc::clone(visit))
    }

    /// Ends a visit.
    pub(super) fn end(&self, name: &str) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).visits.remove(name);
    }
}
