//! The workers a run has, as their notices tell. Pure: time is handed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lumos_tasks::RunToken;
use lumos_tasks::fleet::{HeldLease, PROTOCOL, WorkerNotice};

/// A worker and when it was heard of last, by this machine's clock.
#[derive(Debug)]
struct Member {
    notice: WorkerNotice,
    heard: Instant,
}

/// The workers there are.
#[derive(Debug, Default)]
pub(super) struct Crew {
    members: BTreeMap<String, Member>,
}

impl Crew {
    /// Takes a notice in.
    pub(super) fn hear(&mut self, notice: WorkerNotice, now: Instant) {
        if notice.protocol == PROTOCOL {
            self.members.insert(notice.name.clone(), Member { notice, heard: now });
        }
    }

    /// A worker has said goodbye: it gave back what it held.
    pub(super) fn leave(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// After this side was away nobody can be blamed for silence.
    pub(super) fn forgive(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.heard = now;
        }
    }

    /// Takes out who was not heard of for so long.
    pub(super) fn lost(&mut self, now: Instant, limit: Duration) -> Vec<WorkerNotice> {
        let gone = |member: &Member| now.saturating_duration_since(member.heard) > limit;
        let names: Vec<String> =
            self.members.iter().filter(|(_, member)| gone(member)).map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| self.members.remove(name)).map(|member| member.notice).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Episodes that can be driven side by side.
    pub(super) fn places(&self) -> usize {
        let places =
            self.members.values().map(|member| u64::from(member.notice.holdings.places)).sum::<u64>();
        usize::try_from(places).unwrap_or(usize::MAX)
    }

    /// Why workers cannot take lanes that are there.
    pub(super) fn refusals(&self) -> Vec<&str> {
        let refusals = self.members.values().flat_map(|member| &member.notice.refusals);
        let mut refusals: Vec<&str> = refusals.map(String::as_str).collect();
        refusals.sort_unstable();
        refusals.dedup();
        refusals
    }

    /// Leases of a run that live workers hold.
    pub(super) fn held<'a>(&'a self, run: &'a RunToken) -> impl Iterator<Item = &'a HeldLease> {
        let held = self.members.values().flat_map(|member| &member.notice.held);
        held.filter(move |lease| lease.run == *run)
    }

    /// Whether no worker holds anything of a run, by notices that are newer than a moment.
    pub(super) fn is_idle(&self, run: &RunToken, since: Instant) -> bool {
        let fresh = self.members.values().all(|member| member.heard > since && member.notice.spooled == 0);
        fresh && self.held(run).next().is_none()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use lumos_tasks::ContentHash;
    use lumos_tasks::fleet::Holdings;

    use super::*;

    pub(in crate::fleet) fn notice(name: &str, held: Vec<HeldLease>) -> WorkerNotice {
        WorkerNotice {
            protocol: PROTOCOL,
            name: name.to_owned(),
            host: "host".to_owned(),
            process: 1,
            version: "0".to_owned(),
            holdings: Holdings { places: 4, ..Holdings::default() },
            in_use: 0,
            held,
            finished: 0,
            spooled: 0,
            units_per_second: 0.0,
            tokens_per_second: 0.0,
            draining: false,
            refusals: Vec::new(),
            started_ms: 0,
            written_ms: 0,
        }
    }

    #[test]
    fn silence_is_a_loss_unless_this_side_was_away() {
        let run = RunToken::of(&ContentHash::of_bytes(b"run"));
        let lease = HeldLease { run: run.clone(), message: "m".to_owned(), token: "t".to_owned() };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limit = Duration::from_secs(6);
        let mut crew = Crew::default();
        crew.hear(notice("a", vec![lease.clone()]), start);
        crew.hear(notice("b", vec![]), start);
        crew.hear(WorkerNotice { protocol: PROTOCOL + 1, ..notice("c", vec![]) }, start);
        assert_eq!(crew.places(), 8);
        assert!(!crew.is_idle(&run, start));
        assert!(crew.lost(at(6), limit).is_empty());
        crew.hear(notice("b", vec![]), at(5));
        let lost = crew.lost(at(7), limit);
        assert_eq!(lost.iter().map(|worker| worker.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(lost[0].held, [lease]);
        assert!(crew.is_idle(&run, start));
        assert!(!crew.is_idle(&run, at(5)));
        crew.forgive(at(20));
        assert!(crew.lost(at(21), limit).is_empty());
        crew.leave("b");
        assert!(crew.is_empty());
        assert!(crew.is_idle(&run, at(30)));
    }
}
