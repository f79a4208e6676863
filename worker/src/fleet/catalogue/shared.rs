//! The inputs that the units of runs share: decoded once, and kept while an active run needs them, within a limit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use lumos_queue::nats::NatsError;
use lumos_tasks::fleet::{ShardId, SharedInputs};
use lumos_tasks::{Configuration, ContentHash, RunToken};

/// Maximum total size of the shared inputs of active runs in bytes as JSON.
const SHARED_BYTES: usize = 256 << 20;

/// The configurations of a run by the `needs` part of their shard, then by identity.
type Configurations = BTreeMap<RunToken, BTreeMap<ContentHash, Arc<Configuration>>>;

/// The shared inputs that were fetched.
#[derive(Debug, Default)]
pub(super) struct FetchedInputs {
    inputs: HashMap<ContentHash, Shared>,
    /// Those that cannot be decoded.
    unreadable: BTreeSet<ContentHash>,
    /// Those that do not fit into [`SHARED_BYTES`], with their sizes in bytes.
    too_large: BTreeMap<ContentHash, usize>,
}

/// Decoded shared inputs.
#[derive(Debug)]
struct Shared {
    configurations: Arc<Configurations>,
    /// Their size in bytes as JSON.
    bytes: usize,
}

impl FetchedInputs {
    /// Returns the configurations of decoded inputs.
    pub(super) fn get(&self, hash: &ContentHash) -> Option<&Arc<Configurations>> {
        self.inputs.get(hash).map(|shared| &shared.configurations)
    }

    /// Whether fetching these inputs is unnecessary: they are known, cannot be decoded, or do not fit.
    pub(super) fn is_settled(&self, hash: &ContentHash) -> bool {
        self.inputs.contains_key(hash) || self.unreadable.contains(hash) || self.too_large.contains_key(hash)
    }

    /// Records fetched inputs, or the error of fetching them.
    ///
    /// # Errors
    /// A warning if the inputs cannot be used.
    pub(super) fn record(
        &mut self,
        hash: &ContentHash,
        fetched: Result<Vec<u8>, NatsError>,
    ) -> Result<(), String> {
        let short = hash.short();
        let json = fetched.map_err(|error| {
            // Missing inputs may be stored again; inputs that are corrupted in transit may be intact next time.
            format!("failed to fetch the configurations of a run ({short}): {error}")
        })?;
        let bytes = json.len();
        if self.bytes() + bytes > SHARED_BYTES {
            self.too_large.insert(hash.clone(), bytes);
            return Err(format!(
                "ignoring the configurations of a run ({short}): those of the active runs exceed {} MiB; hint: end \
                 other runs with `lumos cancel`",
                SHARED_BYTES >> 20
            ));
        }
        let inputs: SharedInputs = serde_json::from_slice(&json).map_err(|error| {
            // The bytes match the hash, so fetching them again cannot help.
            self.unreadable.insert(hash.clone());
            format!("failed to decode the configurations of a run ({short}): {error}")
        })?;
        let mut configurations = Configurations::new();
        for (identity, configuration) in inputs.by_identity() {
            let needs = ShardId::of(&configuration, 0).needs;
            configurations.entry(needs).or_default().insert(identity, configuration);
        }
        self.inputs.insert(hash.clone(), Shared { configurations: Arc::new(configurations), bytes });
        Ok(())
    }

    /// Removes inputs that no active run needs.
    pub(super) fn retain(&mut self, needed: &BTreeSet<&ContentHash>) {
        self.inputs.retain(|hash, _| needed.contains(hash));
        self.unreadable.retain(|hash| needed.contains(hash));
        let bytes = self.bytes();
        self.too_large.retain(|hash, more| needed.contains(hash) && bytes + *more > SHARED_BYTES);
    }

    fn bytes(&self) -> usize {
        self.inputs.values().map(|shared| shared.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::fleet::{RunNotice, RunState};

    use super::super::Catalogue;
    use super::super::tests::{notice, token};
    use super::*;

    #[test]
    fn shared_inputs_are_bounded_and_kept_once_they_fit() {
        let catalogue = Catalogue::default();
        let shared = |number: usize| ContentHash::of_bytes(&number.to_le_bytes());
        let note = |number: usize, state| {
            let notice = RunNotice { shared: shared(number), ..notice(number, state) };
            let value = serde_json::to_vec(&notice).unwrap();
            catalogue.update(token(number).as_str(), Some(&value));
        };
        for number in 0..3 {
            note(number, RunState::Active);
        }
        let inputs = serde_json::to_vec(&SharedInputs::default()).unwrap();
        catalogue.supply(&shared(0), Ok(inputs.clone()));
        if let Some(shared) = catalogue.lock().shared.inputs.get_mut(&shared(0)) {
            shared.bytes = SHARED_BYTES - inputs.len();
        }
        catalogue.supply(&shared(1), Ok(inputs.clone()));
        catalogue.supply(&shared(2), Ok(inputs.clone()));
        assert!(catalogue.wanted().is_empty(), "not fetched again");
        {
            let state = catalogue.lock();
            assert_eq!((state.shared.inputs.len(), state.shared.bytes()), (2, SHARED_BYTES));
            assert_eq!((state.shared.too_large.len(), state.said.len()), (1, 1));
        }
        note(0, RunState::Ended);
        assert_eq!(catalogue.wanted(), BTreeSet::from([shared(2)]), "it fits now");
        catalogue.supply(&shared(2), Ok(inputs));
        assert_eq!(catalogue.lock().shared.inputs.len(), 2);
    }
}
