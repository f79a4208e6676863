//! [`ServerUse`]: telemetry about a model server. It has no influence on results.

use serde::{Deserialize, Serialize};

/// How many requests a process sent to a model server at the same time, since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Host and port.
    pub server: String,
    /// The smallest number that is allowed.
    pub least: u64,
    /// The largest number that is allowed.
    pub most: u64,
    /// The smallest limit that applied.
    pub lowest: u64,
    /// The largest limit that applied.
    pub highest: u64,
    /// The latest limit.
    pub last: u64,
    /// Number of decreases of the limit.
    pub decreases: u64,
    /// Requests that the server rejected because of its load, or that timed out.
    pub rejections: u64,
    /// Requests that succeeded.
    pub successes: u64,
    /// Whether the server reported its load.
    pub has_load: bool,
}

impl ServerUse {
    /// Adds the use by another session or process.
    pub fn add(&mut self, other: &Self) {
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.last = other.last;
        self.decreases = self.decreases.saturating_add(other.decreases);
        self.rejections = self.rejections.saturating_add(other.rejections);
        self.successes = self.successes.saturating_add(other.successes);
        self.has_load |= other.has_load;
    }

    /// Adds a list to another, by server.
    pub fn merge(into: &mut Vec<Self>, others: &[Self]) {
        for other in others {
            match into.iter_mut().find(|one| one.server == other.server) {
                Some(one) => one.add(other),
                None => into.push(other.clone()),
            }
        }
    }

    /// The counts since an earlier snapshot of the same process. Limits are those since the process started.
    #[must_use]
    pub fn since(&self, before: &[Self]) -> Self {
        let Some(before) = before.iter().find(|one| one.server == self.server) else { return self.clone() };
        Self {
            decreases: self.decreases.saturating_sub(before.decreases),
            rejections: self.rejections.saturating_sub(before.rejections),
            successes: self.successes.saturating_sub(before.successes),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(server: &str, lowest: u64, highest: u64, successes: u64) -> ServerUse {
        ServerUse {
            server: server.to_owned(),
            least: 1,
            most: 64,
            lowest,
            highest,
            last: highest,
            decreases: 2,
            rejections: 3,
            successes,
            has_load: false,
        }
    }

    #[test]
    fn uses_are_added_by_server() {
        let mut all = vec![used("a:1", 4, 9, 10)];
        ServerUse::merge(&mut all, &[used("b:1", 8, 8, 1), used("a:1", 2, 8, 5)]);
        assert_eq!(all.len(), 2);
        let ServerUse { lowest, highest, last, decreases, rejections, successes, .. } = all[0];
        assert_eq!((lowest, highest, last, decreases, rejections, successes), (2, 9, 8, 4, 6, 15));
        assert_eq!(used("a:1", 4, 9, 10).since(&[used("a:1", 4, 9, 4)]).successes, 6);
        assert_eq!(used("a:1", 4, 9, 10).since(&[]), used("a:1", 4, 9, 10));
    }
}
