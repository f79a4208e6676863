//! Differences between two states that a page receives one after the other.

use serde_json::{Map, Value};

/// Returns the top-level fields of `after` that are new or differ from `before`. A client that assigns them to its
/// copy of `before` has `after`: fields are never removed.
pub fn delta(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(*value));
    changed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn states() -> impl Strategy<Value = Map<String, Value>> {
        let value = prop_oneof![
            Just(Value::Null),
            any::<u8>().prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", any::<bool>(), 0..3).prop_map(|map| json!(map)),
        ];
        prop::collection::vec(value, 6).prop_map(|values| {
            let names = ["name", "state", "ledger", "workers", "faults", "queue"];
            names.into_iter().map(str::to_owned).zip(values).collect()
        })
    }

    proptest! {
        #[test]
        fn a_client_that_assigns_the_fields_has_the_new_state(before in states(), after in states()) {
            let changed = delta(&before, &after);
            for (name, value) in &changed {
                prop_assert_ne!(before.get(name), Some(value), "only what differs is sent");
            }
            let mut client = before;
            client.extend(changed);
            prop_assert_eq!(&client, &after);
            prop_assert!(delta(&client, &after).is_empty());
        }
    }
}
