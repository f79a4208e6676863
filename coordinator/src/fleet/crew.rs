//! The workers a run has, as their notices tell. Pure: time is handed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lumos_tasks::RunToken;
use lumos_tasks::fleet::{ClaimNotice, HeldLease, PROTOCOL, WorkerNotice};

/// A worker and when it was heard of last, by this machine's clock.
#[derive(Debug)]
struct Member {
    notice: WorkerNotice,
    /// Claims told since the notice was written.
    claims: Vec<ClaimNotice>,
    heard: Instant,
}

impl Member {
    /// What it holds, as far as it has told.
    fn held(&self) -> impl Iterator<Item = &HeldLease> {
        self.notice.held.iter().chain(self.claims.iter().flat_map(|claims| &claims.held))
    }
}

/// Claims kept between two notices of a worker: more than one every twenty milliseconds comes of no worker of ours.
const MOST_CLAIMS: usize = 1000;

/// The workers there are.
#[derive(Debug, Default)]
pub(super) struct Crew {
    members: BTreeMap<String, Member>,
}

impl Crew {
    /// Takes a notice in.
    pub(super) fn hear(&mut self, notice: WorkerNotice, now: Instant) {
        if notice.protocol != PROTOCOL {
            return;
        }
        let mut claims = self.members.remove(&notice.name).map(|member| member.claims).unwrap_or_default();
        // Claims travel another way than notices, and may overtake one.
        claims.retain(|claims| claims.written_ms >= notice.written_ms);
        self.members.insert(notice.name.clone(), Member { notice, claims, heard: now });
    }

    /// Takes in what a worker has just claimed.
    pub(super) fn hear_claims(&mut self, worker: &str, claims: ClaimNotice) {
        if let Some(member) = self.members.get_mut(worker)
            && claims.protocol == PROTOCOL
            && claims.written_ms >= member.notice.written_ms
            && member.claims.len() < MOST_CLAIMS
        {
            member.claims.push(claims);
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
        let lost = names.iter().filter_map(|name| self.members.remove(name));
        lost.map(|member| {
            let held = member.held().cloned().collect();
            WorkerNotice { held, ..member.notice }
        })
        .collect()
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
        let held = self.members.values().flat_map(Member::held);
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
            held,
            ..WorkerNotice::default()
        }
    }

    #[test]
    fn claims_count_until_a_later_notice_tells_what_became_of_them() {
        let run = RunToken::of(&ContentHash::of_bytes(b"run"));
        let lease =
            |token: &str| HeldLease { run: run.clone(), message: token.to_owned(), token: token.to_owned() };
        let claims = |token: &str, written_ms| ClaimNotice {
            protocol: PROTOCOL,
            held: vec![lease(token)],
            written_ms,
        };
        let written = |written_ms, held| WorkerNotice { written_ms, ..notice("a", held) };
        let tokens = |crew: &Crew| crew.held(&run).map(|lease| lease.token.clone()).collect::<Vec<_>>();
        let start = Instant::now();
        let mut crew = Crew::default();
        crew.hear_claims("a", claims("from nobody", 1));
        crew.hear(written(10, vec![lease("1")]), start);
        crew.hear_claims("a", claims("late", 9));
        crew.hear_claims("a", claims("2", 12));
        crew.hear_claims("a", claims("3", 20));
        assert_eq!(tokens(&crew), ["1", "2", "3"]);
        crew.hear(written(15, vec![lease("2")]), start);
        assert_eq!(tokens(&crew), ["2", "3"]);
        let lost = crew.lost(start + Duration::from_secs(7), Duration::from_secs(6));
        assert_eq!(lost[0].held, [lease("2"), lease("3")]);
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
