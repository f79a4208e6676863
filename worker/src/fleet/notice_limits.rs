//! Limits of what a worker writes into its notice. A notice that does not fit into a message is not renewed, and every
//! coordinator then considers the worker lost. Some lists of a notice grow with what runs name: refusals, models and
//! servers. [`encoded`] bounds each of them, and then the leases, which coordinators need most, to the rest.

use lumos_tasks::fleet::WorkerNotice;
use serde::Serialize;

/// Maximum length of a refusal in bytes. Coordinators keep as much (`LONGEST_REFUSAL` in their registry of workers).
pub(super) const LONGEST_REFUSAL: usize = 1024;
/// Maximum number of refusals in a notice. Coordinators keep the first 16, `lumos status` shows 100.
const MOST_REFUSALS: usize = 64;
/// Maximum size of the refusals in bytes as JSON, where a control character takes six.
const REFUSAL_BYTES: usize = 80 << 10;
/// Maximum size of the loaded models, of the engines, of the oldest units and of the servers in bytes as JSON, each.
const LIST_BYTES: usize = 64 << 10;
/// Maximum size of a notice in bytes: less than 1 MiB, the default `max_payload` of NATS servers.
const NOTICE_BYTES: usize = 960 << 10;

/// Shortens a text to at most `most` bytes, at a character boundary.
pub(super) fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// Shortens the lists of a notice and returns it as JSON.
pub(super) fn encoded(notice: &mut WorkerNotice) -> serde_json::Result<Vec<u8>> {
    let refusals = notice.refusals.len();
    notice.refusals.truncate(MOST_REFUSALS);
    shorten(&mut notice.refusals, REFUSAL_BYTES);
    let more = refusals - notice.refusals.len();
    if more > 0 {
        notice.refusals.push(format!("{more} more reasons are not listed"));
    }
    let telemetry = shorten(&mut notice.holdings.models, LIST_BYTES)
        + shorten(&mut notice.engines, LIST_BYTES)
        + shorten(&mut notice.oldest, LIST_BYTES)
        + shorten(&mut notice.servers, LIST_BYTES);
    let held = std::mem::take(&mut notice.held);
    let rest = serde_json::to_vec(notice)?.len();
    notice.held = held;
    // A lease that is left out is not returned by coordinators if this worker disappears: it expires.
    let leases = shorten(&mut notice.held, NOTICE_BYTES.saturating_sub(rest));
    if telemetry + leases > 0 {
        tracing::debug!(telemetry, leases, "left entries out of the notice of this worker: it is too large");
    }
    serde_json::to_vec(notice)
}

/// Removes the entries of a list that do not fit into `most` bytes of JSON. Returns their number.
fn shorten<T: Serialize>(list: &mut Vec<T>, most: usize) -> usize {
    let (before, mut bytes) = (list.len(), 0);
    list.retain(|entry| {
        // With a comma. An entry that cannot be written is left out.
        let size = serde_json::to_vec(entry).map_or(most + 1, |text| text.len() + 1);
        let fits = bytes + size <= most;
        if fits {
            bytes += size;
        }
        fits
    });
    before - list.len()
}

#[cfg(test)]
mod tests {
    use lumos_tasks::fleet::{HeldLease, OldestUnit};
    use lumos_tasks::{ContentHash, EngineUse, ModelIdentity, RunToken, UnitId};

    use super::*;

    fn run() -> RunToken {
        RunToken::of(&ContentHash::of_bytes(b"run"))
    }

    fn lease(length: usize) -> HeldLease {
        HeldLease { run: run(), message: "m".repeat(length), token: "t".repeat(length) }
    }

    fn model(name: String) -> ModelIdentity {
        ModelIdentity { name, content: ContentHash::of_bytes(b"model"), dtype: None }
    }

    /// Parses a notice as other processes do.
    fn read(bytes: &[u8]) -> WorkerNotice {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(cut("short", LONGEST_REFUSAL), "short");
        assert_eq!(cut(&format!("a{}", "\u{e9}".repeat(4000)), 1024), format!("a{}", "\u{e9}".repeat(511)));
    }

    #[test]
    fn a_usual_notice_is_written_completely() {
        let mut notice = WorkerNotice {
            refusals: (0..MOST_REFUSALS).map(|number| format!("reason {number}")).collect(),
            held: vec![lease(150); 1000],
            ..WorkerNotice::default()
        };
        notice.holdings.models = vec![model("candle:models/plan".to_owned()); 20];
        let before = notice.clone();
        assert_eq!(read(&encoded(&mut notice).unwrap()), before);
    }

    /// Regression test: a run with many models that are not on a worker made the worker disappear.
    #[test]
    fn refusals_are_bounded_in_number_and_length() {
        let reason = |number: usize| cut(&format!("{number:05} {}", "x".repeat(5000)), LONGEST_REFUSAL);
        let mut notice =
            WorkerNotice { refusals: (0..20_000).map(reason).collect(), ..WorkerNotice::default() };
        let written = read(&encoded(&mut notice).unwrap());
        assert_eq!(written.refusals.len(), MOST_REFUSALS + 1);
        assert_eq!(written.refusals[0], reason(0));
        assert_eq!(written.refusals[MOST_REFUSALS], "19936 more reasons are not listed");
        // Control characters take six times the space.
        notice.refusals = vec!["\u{1b}".repeat(LONGEST_REFUSAL); 20];
        let written = read(&encoded(&mut notice).unwrap());
        assert_eq!(written.refusals.len(), 14);
        assert_eq!(written.refusals[13], "7 more reasons are not listed");
    }

    #[test]
    fn a_notice_always_fits_into_a_message() {
        let engine = EngineUse::new(&model("m".to_owned()), "cuda:0".to_owned());
        let oldest =
            OldestUnit { run: run(), unit: UnitId::new(ContentHash::of_bytes(b"unit")), since_ms: 1 };
        let mut notice = WorkerNotice {
            refusals: vec!["\u{1}".repeat(LONGEST_REFUSAL); 1000],
            held: vec![lease(500); 5000],
            engines: vec![engine; 5000],
            oldest: vec![oldest; 5000],
            ..WorkerNotice::default()
        };
        // One long name does not hide the models after it.
        notice.holdings.models = vec![model("n".repeat(1 << 20)), model("candle:models/plan".to_owned())];
        notice.holdings.models.extend(vec![model("n".repeat(1000)); 5000]);
        let bytes = encoded(&mut notice).unwrap();
        assert!(bytes.len() <= NOTICE_BYTES, "{}", bytes.len());
        let written = read(&bytes);
        assert_eq!(written.holdings.models[0].name, "candle:models/plan");
        assert!(
            written.holdings.models.len() > 50 && written.engines.len() > 100 && written.oldest.len() > 100
        );
        assert!((600..1000).contains(&written.held.len()), "{}", written.held.len());
    }
}
