//! Identifiers of runs and messages on a shared server.

use lumos_tasks::{ContentHash, RunToken, UnitId};

use crate::manifest::Manifest;
use crate::unit_key::UnitKey;

/// Returns a run's token. It is independent of the run's folder, and different for a new run with the same
/// configurations and items.
pub fn run_token(manifest: &Manifest) -> RunToken {
    let made_of = ("run-token/1", &manifest.identity, manifest.created, &manifest.spec.name);
    RunToken::of(&ContentHash::of_json(&made_of))
}

/// Parses the unit and attempt of a message id: `<unit>-<attempt>` for work, `<unit>-<attempt>-<worker>` for
/// a result.
fn parse_message(id: &str) -> Option<(UnitId, u32)> {
    let mut parts = id.splitn(3, '-');
    let unit = parts.next().filter(|unit| unit.len() == 64)?;
    let attempt = parts.next()?.parse().ok()?;
    Some((UnitId::new(ContentHash::from_hex(unit)), attempt))
}

/// Returns the units and attempts of a message id. Results that a worker sent together share one message
/// ([`ResultBatch::message_id`](lumos_tasks::fleet::ResultBatch::message_id)).
pub(super) fn tickets(id: &str) -> impl Iterator<Item = (UnitKey, u32)> {
    id.split('_').filter_map(parse_message).map(|(unit, attempt)| (UnitKey::of(&unit), attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{configuration, item, manifest_of};

    #[test]
    fn a_token_follows_the_run_and_not_its_folder() {
        let manifest = manifest_of(&[configuration(0)], &[item(0)]);
        let mut moved = manifest.clone();
        moved.spec.output_path = "elsewhere".into();
        assert_eq!(run_token(&manifest), run_token(&moved));
        let mut anew = manifest.clone();
        anew.created = jiff::Timestamp::from_second(1).unwrap();
        assert_ne!(run_token(&manifest), run_token(&anew));
        assert_ne!(run_token(&manifest), run_token(&manifest_of(&[configuration(1)], &[item(0)])));
    }

    #[test]
    fn messages_name_unit_and_attempt() {
        let unit = lumos_tasks::UnitId::new(ContentHash::of_bytes(b"unit"));
        assert_eq!(parse_message(&format!("{unit}-2")), Some((unit.clone(), 2)));
        assert_eq!(parse_message(&format!("{unit}-12-host-1-ab")), Some((unit.clone(), 12)));
        for strange in ["", "a-1", &format!("{unit}"), &format!("{unit}-x"), &format!("{unit}--1")] {
            assert_eq!(parse_message(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_message_of_several_results_names_all_of_them() {
        let unit = |name: &[u8]| lumos_tasks::UnitId::new(ContentHash::of_bytes(name));
        let id = format!("{}-1-my_host-7_{}-2", unit(b"a"), unit(b"b"));
        let expected = [(UnitKey::of(&unit(b"a")), 1), (UnitKey::of(&unit(b"b")), 2)];
        assert_eq!(tickets(&id).collect::<Vec<_>>(), expected);
    }
}
