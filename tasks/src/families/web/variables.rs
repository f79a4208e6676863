//! Variables that hold pages.

use std::collections::HashMap;

/// The variable of the first page.
const FIRST: &str = "Env";

/// Which step's page each variable holds.
#[derive(Debug, Default)]
pub(super) struct Variables(HashMap<String, u32>);

impl Variables {
    /// The page an action of a step is about: in the first step always the first, whatever is named; later that of the
    /// variable, `None` where there is none of that name.
    pub(super) fn page(&mut self, step: u32, named: &str) -> Option<u32> {
        if step == 0 {
            self.0.insert(FIRST.to_owned(), 0);
            return Some(0);
        }
        self.0.get(named).copied()
    }

    /// The page of a step is held by a variable.
    pub(super) fn set(&mut self, variable: &str, step: u32) {
        self.0.insert(variable.to_owned(), step);
    }
}
