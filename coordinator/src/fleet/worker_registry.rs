//! Registry of a fleet's workers, built from their notices. Performs no I/O; the caller passes the time.
//!
//! [`WorkerRegistry`] holds the latest notice and claims of every worker within fixed memory limits, because any client
//! with write access to the bucket can write notices. `watch_workers` updates it; reconciliation and draining
//! read it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use lumos_tasks::RunToken;
use lumos_tasks::fleet::{ClaimNotice, HeldLease, Holdings, PROTOCOL, WorkerNotice};

/// A worker and the local time of its last notice.
#[derive(Debug)]
pub(super) struct WorkerEntry {
    notice: WorkerNotice,
    /// Claims reported since the notice was written.
    claims: Vec<ClaimNotice>,
    heard: Instant,
    /// Memory of the entry in bytes.
    bytes: usize,
}

impl WorkerEntry {
    /// Leases that it has reported.
    fn held(&self) -> impl Iterator<Item = &HeldLease> {
        self.notice.held.iter().chain(self.claims.iter().flat_map(|claims| &claims.held))
    }
}

/// Maximum number of claims kept between two notices of a worker. lumos workers report at most one per 20
/// milliseconds.
const MOST_CLAIMS: usize = 1000;

/// Maximum number of known workers, because any client with write access can write any number of notices.
const MOST_MEMBERS: usize = 20_000;

/// Maximum total size of notices and claims in bytes: that of a thousand workers with 256 slots each. A
/// notice that does not fit is dropped; a known worker keeps its previous one.
const MOST_BYTES: usize = 128 << 20;

/// Maximum number of refusals kept per worker, and maximum length of one in bytes.
const MOST_REFUSALS: usize = 16;
const LONGEST_REFUSAL: usize = 1024;
/// Maximum number of refusals or workers named in a message.
const NAMED: usize = 4;

/// Maximum concurrency counted per worker, because the number of published units depends on it.
const MAX_CONCURRENCY: u32 = 65_536;

/// The known workers.
#[derive(Debug, Default)]
pub(super) struct WorkerRegistry {
    members: BTreeMap<String, WorkerEntry>,
    /// Total size of all entries in bytes.
    bytes: usize,
}

/// Returns the needed parts of a notice, limited in size.
fn trimmed(notice: WorkerNotice) -> WorkerNotice {
    let WorkerNotice { protocol, name, mut held, spooled, mut refusals, written_ms, .. } = notice;
    held.shrink_to_fit();
    refusals.truncate(MOST_REFUSALS);
    refusals.shrink_to_fit();
    for refusal in &mut refusals {
        refusal.truncate(refusal.floor_char_boundary(LONGEST_REFUSAL));
        refusal.shrink_to_fit();
    }
    let holdings = Holdings { concurrency: notice.holdings.concurrency, ..Holdings::default() };
    WorkerNotice { protocol, name, held, spooled, refusals, written_ms, holdings, ..WorkerNotice::default() }
}

/// Returns the size of leases in bytes.
fn bytes_of(held: &[HeldLease]) -> usize {
    let text = |lease: &HeldLease| lease.run.as_str().len() + lease.message.len() + lease.token.len();
    held.iter().map(|lease| size_of::<HeldLease>() + text(lease)).sum()
}

impl WorkerRegistry {
    /// Adds a notice.
    pub(super) fn receive(&mut self, notice: WorkerNotice, now: Instant) {
        if notice.protocol != PROTOCOL {
            return;
        }
        if self.members.len() >= MOST_MEMBERS && !self.members.contains_key(&notice.name) {
            return;
        }
        let notice = trimmed(notice);
        let known = self.leave(&notice.name);
        // The worker's clock was set back. Then the order of claims and notice is unknown; the notice
        // contains all but the latest claims.
        let is_set_back = known.as_ref().is_some_and(|known| notice.written_ms < known.notice.written_ms);
        // Claims use a different path than notices and may arrive first.
        let later = |claims: &&ClaimNotice| !is_set_back && claims.written_ms >= notice.written_ms;
        let claims: Vec<ClaimNotice> =
            known.iter().flat_map(|member| &member.claims).filter(later).cloned().collect();
        let bytes = size_of::<WorkerEntry>()
            + notice.name.len()
            + notice.refusals.iter().map(|refusal| size_of::<String>() + refusal.len()).sum::<usize>()
            + bytes_of(&notice.held)
            + claims.iter().map(|claims| bytes_of(&claims.held)).sum::<usize>();
        let member = if self.bytes + bytes <= MOST_BYTES {
            Some(WorkerEntry { notice, claims, heard: now, bytes })
        } else {
            tracing::debug!(worker = notice.name, bytes, "ignored a worker's notice: too many notices");
            known.map(|member| WorkerEntry { heard: now, ..member })
        };
        if let Some(member) = member {
            self.bytes += member.bytes;
            self.members.insert(member.notice.name.clone(), member);
        }
    }

    /// Removes a worker, for example one that has shut down and returned its leases.
    pub(super) fn leave(&mut self, name: &str) -> Option<WorkerEntry> {
        let member = self.members.remove(name)?;
        self.bytes -= member.bytes;
        Some(member)
    }

    /// Adds claims that a worker has just reported.
    pub(super) fn receive_claims(&mut self, worker: &str, claims: ClaimNotice) {
        let bytes = size_of::<ClaimNotice>() + bytes_of(&claims.held);
        if self.bytes + bytes <= MOST_BYTES
            && let Some(member) = self.members.get_mut(worker)
            && claims.protocol == PROTOCOL
            && claims.written_ms >= member.notice.written_ms
            && member.claims.len() < MOST_CLAIMS
        {
            member.claims.push(claims);
            member.bytes += bytes;
            self.bytes += bytes;
        }
    }

    /// Resets all timers after this coordinator was disconnected, so that its own absence does not count
    /// against workers.
    pub(super) fn forgive(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.heard = now;
        }
    }

    /// Removes and returns the workers without a notice for longer than `limit`.
    pub(super) fn lost(&mut self, now: Instant, limit: Duration) -> Vec<WorkerNotice> {
        let gone = |member: &WorkerEntry| now.saturating_duration_since(member.heard) > limit;
        let names: Vec<String> =
            self.members.iter().filter(|(_, member)| gone(member)).map(|(name, _)| name.clone()).collect();
        let lost = names.iter().filter_map(|name| self.leave(name));
        lost.map(|member| {
            let held = member.held().cloned().collect();
            WorkerNotice { held, ..member.notice }
        })
        .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Total concurrency of all workers, in episodes.
    pub(super) fn concurrency(&self) -> usize {
        let concurrency =
            self.members.values().map(|member| member.notice.holdings.concurrency.min(MAX_CONCURRENCY));
        let concurrency: u64 = concurrency.map(u64::from).sum();
        usize::try_from(concurrency).unwrap_or(usize::MAX)
    }

    /// Whether a worker cannot take an existing shard.
    pub(super) fn has_refusals(&self) -> bool {
        self.members.values().any(|member| !member.notice.refusals.is_empty())
    }

    /// Lists the reasons why workers cannot take existing shards: the first ones, and the number of others. Sorts all of
    /// them, so call it only for a message that is due.
    pub(super) fn refusals(&self) -> String {
        let refusals = self.members.values().flat_map(|member| &member.notice.refusals);
        let refusals: BTreeSet<&str> = refusals.map(String::as_str).collect();
        first_of(refusals.into_iter(), "; ")
    }

    /// Leases of a run held by live workers.
    pub(super) fn held<'a>(&'a self, run: &'a RunToken) -> impl Iterator<Item = &'a HeldLease> {
        let held = self.members.values().flat_map(WorkerEntry::held);
        held.filter(move |lease| lease.run == *run)
    }

    /// Number of workers.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// Number of results that workers have not been able to send.
    pub(super) fn spooled(&self) -> u64 {
        self.members.values().map(|member| member.notice.spooled).fold(0, u64::saturating_add)
    }

    /// Names of the workers that hold units of a run.
    pub(super) fn holders(&self, run: &RunToken) -> Vec<String> {
        let holds = |member: &&WorkerEntry| member.held().any(|lease| lease.run == *run);
        self.members.values().filter(holds).map(|member| member.notice.name.clone()).collect()
    }

    /// Whether no worker holds units of a run, according to notices newer than `since`.
    pub(super) fn is_idle(&self, run: &RunToken, since: Instant) -> bool {
        let fresh = self.members.values().all(|member| member.heard > since && member.notice.spooled == 0);
        fresh && self.held(run).next().is_none()
    }
}

/// Lists the first texts, and the number of others.
pub(super) fn first_of<'a>(texts: impl ExactSizeIterator<Item = &'a str>, separator: &str) -> String {
    let more = texts.len().saturating_sub(NAMED);
    let named = texts.take(NAMED).collect::<Vec<_>>().join(separator);
    if more > 0 { format!("{named}{separator}and {more} more") } else { named }
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
            holdings: Holdings { concurrency: 4, ..Holdings::default() },
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
        let tokens = |registry: &WorkerRegistry| {
            registry.held(&run).map(|lease| lease.token.clone()).collect::<Vec<_>>()
        };
        let start = Instant::now();
        let mut registry = WorkerRegistry::default();
        registry.receive_claims("a", claims("from nobody", 1));
        registry.receive(written(10, vec![lease("1")]), start);
        registry.receive_claims("a", claims("late", 9));
        registry.receive_claims("a", claims("2", 12));
        registry.receive_claims("a", claims("3", 20));
        assert_eq!(tokens(&registry), ["1", "2", "3"]);
        registry.receive(written(15, vec![lease("2")]), start);
        assert_eq!(tokens(&registry), ["2", "3"]);
        let lost = registry.lost(start + Duration::from_secs(7), Duration::from_secs(6));
        assert_eq!(lost[0].held, [lease("2"), lease("3")]);
    }

    #[test]
    fn claims_of_before_a_worker_s_clock_was_set_back_are_forgotten() {
        let run = RunToken::of(&ContentHash::of_bytes(b"run"));
        let lease =
            |token: &str| HeldLease { run: run.clone(), message: token.to_owned(), token: token.to_owned() };
        let claims = |token: &str, written_ms| ClaimNotice {
            protocol: PROTOCOL,
            held: vec![lease(token)],
            written_ms,
        };
        let hour = 3_600_000;
        let start = Instant::now();
        let mut registry = WorkerRegistry::default();
        registry.receive(WorkerNotice { written_ms: 10 * hour, ..notice("a", vec![]) }, start);
        registry.receive_claims("a", claims("1", 10 * hour + 5));
        registry.receive(WorkerNotice { written_ms: 5 * hour, ..notice("a", vec![]) }, start);
        assert_eq!(
            registry.held(&run).count(),
            0,
            "the unit is not held: it would not be published again if it is lost"
        );
        registry.receive_claims("a", claims("2", 5 * hour + 5));
        assert_eq!(registry.held(&run).count(), 1);
    }

    #[test]
    fn a_flood_of_notices_is_bounded() {
        let mut registry = WorkerRegistry::default();
        let now = Instant::now();
        for number in 0..MOST_MEMBERS + 10 {
            registry.receive(notice(&format!("w{number}"), vec![]), now);
        }
        assert_eq!(registry.members.len(), MOST_MEMBERS);
        // Known workers are still updated.
        let mut greedy = notice("w0", vec![]);
        greedy.holdings.concurrency = u32::MAX;
        registry.receive(greedy, now + Duration::from_secs(5));
        assert_eq!(registry.concurrency(), 4 * (MOST_MEMBERS - 1) + MAX_CONCURRENCY as usize);
        assert_eq!(
            registry.lost(now + Duration::from_secs(8), Duration::from_secs(6)).len(),
            MOST_MEMBERS - 1
        );
    }

    #[test]
    fn bytes_of_notices_and_claims_are_bounded() {
        let run = RunToken::of(&ContentHash::of_bytes(b"run"));
        let long =
            |bytes: usize| HeldLease { run: run.clone(), message: "m".repeat(bytes), token: String::new() };
        let now = Instant::now();
        let mut registry = WorkerRegistry::default();
        registry.receive(notice("honest", vec![long(10)]), now);
        for number in 0..200 {
            registry.receive(notice(&format!("w{number}"), vec![long(1 << 20)]), now);
        }
        let count = registry.members.len();
        assert!((100..129).contains(&count) && registry.bytes <= MOST_BYTES, "{count}");
        let claims = ClaimNotice { protocol: PROTOCOL, held: vec![long(1 << 20)], written_ms: 1 };
        for _ in 0..MOST_CLAIMS {
            registry.receive_claims("honest", claims.clone());
        }
        assert!(registry.bytes <= MOST_BYTES);
        // Its previous notice is kept.
        registry.receive(notice("honest", vec![long(MOST_BYTES)]), now + Duration::from_secs(5));
        let lost = registry.lost(now + Duration::from_secs(8), Duration::from_secs(6));
        assert_eq!((lost.len(), registry.members.len()), (count - 1, 1));
        assert_eq!(registry.held(&run).next(), Some(&long(10)));
        registry.leave("honest");
        assert_eq!(registry.bytes, 0);
        // Unneeded fields are not stored.
        let mut talkative = notice("talkative", vec![]);
        talkative.refusals = vec!["\u{e9}".repeat(10_000); 1000];
        talkative.holdings.tools = vec!["t".repeat(1000); 1000];
        registry.receive(talkative, now);
        assert!(registry.bytes < 20_000, "{}", registry.bytes);
        assert_eq!(registry.refusals(), "\u{e9}".repeat(512));
    }

    #[test]
    fn a_message_names_four_refusals_and_counts_the_others() {
        let mut registry = WorkerRegistry::default();
        let mut add = |name: &str, reasons: &[&str]| {
            let refusals = reasons.iter().map(|reason| (*reason).to_owned()).collect();
            registry.receive(WorkerNotice { refusals, ..notice(name, vec![]) }, Instant::now());
            (registry.has_refusals(), registry.refusals())
        };
        assert_eq!(add("a", &[]), (false, String::new()));
        assert_eq!(add("b", &["4", "2", "2"]), (true, "2; 4".to_owned()));
        assert_eq!(add("c", &["3", "4", "1"]), (true, "1; 2; 3; 4".to_owned()));
        assert_eq!(add("d", &["6", "5"]), (true, "1; 2; 3; 4; and 2 more".to_owned()));
    }

    #[test]
    fn numbers_of_hostile_notices_do_not_overflow() {
        let mut registry = WorkerRegistry::default();
        for name in ["a", "b"] {
            registry.receive(WorkerNotice { spooled: u64::MAX, ..notice(name, vec![]) }, Instant::now());
        }
        assert_eq!(registry.spooled(), u64::MAX);
    }

    #[test]
    fn silence_is_a_loss_unless_this_side_was_away() {
        let run = RunToken::of(&ContentHash::of_bytes(b"run"));
        let lease = HeldLease { run: run.clone(), message: "m".to_owned(), token: "t".to_owned() };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limit = Duration::from_secs(6);
        let mut registry = WorkerRegistry::default();
        registry.receive(notice("a", vec![lease.clone()]), start);
        registry.receive(notice("b", vec![]), start);
        registry.receive(WorkerNotice { protocol: PROTOCOL + 1, ..notice("c", vec![]) }, start);
        assert_eq!(registry.concurrency(), 8);
        assert!(!registry.is_idle(&run, start));
        assert!(registry.lost(at(6), limit).is_empty());
        registry.receive(notice("b", vec![]), at(5));
        let lost = registry.lost(at(7), limit);
        assert_eq!(lost.iter().map(|worker| worker.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(lost[0].held, [lease]);
        assert!(registry.is_idle(&run, start));
        assert!(!registry.is_idle(&run, at(5)));
        registry.forgive(at(20));
        assert!(registry.lost(at(21), limit).is_empty());
        registry.leave("b");
        assert!(registry.is_empty());
        assert!(registry.is_idle(&run, at(30)));
    }
}
