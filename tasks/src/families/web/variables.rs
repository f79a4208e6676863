//! Variables that refer to pages.

use std::collections::HashMap;

/// The variable of the first page.
const FIRST: &str = "Env";

/// The step whose page each variable holds.
#[derive(Debug, Default)]
pub(super) struct Variables(HashMap<String, u32>);

impl Variables {
    /// The page that an action of a step refers to: in the first step always the first page, whatever is
    /// named; later that of the variable, `None` if it is undefined.
    pub(super) fn page(&mut self, step: u32, named: &str) -> Option<u32> {
        if step == 0 {
            self.0.insert(FIRST.to_owned(), 0);
            return Some(0);
        }
        self.0.get(named).copied()
    }

    /// Assigns the page of a step to a variable.
    pub(super) fn set(&mut self, variable: &str, step: u32) {
        self.0.insert(variable.to_owned(), step);
    }
}
