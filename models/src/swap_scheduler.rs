//! Decides which of several models that share a memory is loaded and which requests run. Pure: it receives
//! events and returns decisions.
//!
//! One model is loaded at a time, for a phase. All requests that wait for it run, and all that arrive in the
//! meantime. The phase ends when none waits and none runs; the next model is the one whose request has waited
//! longest. So that a constant stream of requests for the loaded model cannot block the other models forever,
//! at most `longest` requests (see [`SwapScheduler::new`]) are admitted while others wait. The phase then ends when
//! the running requests end.

use std::collections::VecDeque;

/// Number of a request.
pub(super) type SwapTicket = u64;

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision<K> {
    /// Run these requests on the resident model.
    Admit(Vec<SwapTicket>),
    /// Do nothing: a request or a load must end first, or no request waits.
    Hold,
    /// Unload the resident model and load another one.
    Swap {
        /// Model to unload first. Its memory is freed before the other model is loaded.
        unload: Option<K>,
        /// Model to load.
        load: K,
    },
}

/// Content of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Memory<K> {
    Empty,
    Loading(K),
    Resident(K),
}

/// Models that are loaded in phases into one memory.
#[derive(Debug)]
pub(super) struct SwapScheduler<K> {
    memory: Memory<K>,
    /// Number of requests running on the resident model.
    running: usize,
    /// Waiting requests, in order of arrival.
    waiting: VecDeque<(SwapTicket, K)>,
    /// Requests for the resident model that were admitted while another model's requests waited.
    overtaken: usize,
    longest: usize,
    /// Whether the loading model is removed once it is loaded, unless a request waits for it.
    discard: bool,
    next: SwapTicket,
}

impl<K: Clone + PartialEq> SwapScheduler<K> {
    /// Creates an empty memory. At most `longest` requests (at least 1) are admitted while others wait for
    /// another model.
    pub(super) fn new(longest: usize) -> Self {
        Self {
            memory: Memory::Empty,
            running: 0,
            waiting: VecDeque::new(),
            overtaken: 0,
            longest: longest.max(1),
            discard: false,
            next: 0,
        }
    }

    /// Adds a request for a model.
    pub(super) fn ask(&mut self, model: K) -> SwapTicket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back((ticket, model));
        ticket
    }

    /// Removes a waiting request. Has no effect on an admitted one.
    pub(super) fn withdraw(&mut self, ticket: SwapTicket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Records that a running request has ended.
    pub(super) fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Records that the model was loaded. Returns whether it is kept. Otherwise it counts as loading until
    /// [`SwapScheduler::freed`].
    pub(super) fn loaded(&mut self) -> bool {
        let Memory::Loading(loaded) = &self.memory else { return false };
        if std::mem::take(&mut self.discard) && !self.waiting.iter().any(|(_, model)| model == loaded) {
            return false;
        }
        self.memory = Memory::Resident(loaded.clone());
        self.overtaken = 0;
        true
    }

    /// Records that a loaded model that is not kept was freed.
    pub(super) fn freed(&mut self) {
        self.memory = Memory::Empty;
        self.discard = false;
    }

    /// Records that loading failed. Removes and returns the requests that waited for the model.
    pub(super) fn failed(&mut self) -> Vec<SwapTicket> {
        self.discard = false;
        let Memory::Loading(failed) = std::mem::replace(&mut self.memory, Memory::Empty) else {
            return Vec::new();
        };
        let (refused, waiting): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|(_, model)| *model == failed);
        self.waiting = waiting.into();
        refused.into_iter().map(|(ticket, _)| ticket).collect()
    }

    /// The model that requests run on.
    pub(super) fn resident(&self) -> Option<&K> {
        match &self.memory {
            Memory::Resident(model) => Some(model),
            Memory::Empty | Memory::Loading(_) => None,
        }
    }

    /// The model that is being loaded.
    pub(super) fn loading(&self) -> Option<&K> {
        match &self.memory {
            Memory::Loading(model) => Some(model),
            Memory::Empty | Memory::Resident(_) => None,
        }
    }

    /// Removes the resident model if no request is running on it. Returns whether it was removed. A model that is
    /// being loaded is removed once it is loaded, unless a request waits for it then.
    pub(super) fn clear(&mut self) -> bool {
        self.discard |= self.loading().is_some();
        let idle = self.running == 0 && matches!(self.memory, Memory::Resident(_));
        if idle {
            self.memory = Memory::Empty;
        }
        idle
    }

    /// Makes the next decision and assumes that it is executed.
    pub(super) fn decide(&mut self) -> Decision<K> {
        match self.memory.clone() {
            Memory::Loading(_) => Decision::Hold,
            Memory::Empty => self.swap(None),
            Memory::Resident(resident) => {
                let admitted = self.admit(&resident);
                if !admitted.is_empty() {
                    return Decision::Admit(admitted);
                }
                if self.running > 0 {
                    return Decision::Hold;
                }
                self.swap(Some(resident))
            }
        }
    }

    /// Admits requests for the resident model within the fairness limit.
    fn admit(&mut self, resident: &K) -> Vec<SwapTicket> {
        let mut admitted = Vec::new();
        let others_wait = self.waiting.iter().any(|(_, model)| model != resident);
        self.waiting.retain(|(ticket, model)| {
            let fair = !others_wait || self.overtaken < self.longest;
            if model != resident || !fair {
                return true;
            }
            self.overtaken += usize::from(others_wait);
            admitted.push(*ticket);
            false
        });
        self.running += admitted.len();
        admitted
    }

    fn swap(&mut self, unload: Option<K>) -> Decision<K> {
        // When the phase has reached its limit, the first waiting request may be for the resident model
        // itself.
        let next = self.waiting.iter().map(|(_, model)| model).find(|model| Some(*model) != unload.as_ref());
        let Some(load) = next.cloned() else { return Decision::Hold };
        self.memory = Memory::Loading(load.clone());
        Decision::Swap { unload, load }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Simulated episodes, each of which requests its models one after the other.
    struct Stage {
        phases: SwapScheduler<u8>,
        episodes: Vec<VecDeque<u8>>,
        /// Tickets of waiting requests, with their episodes.
        waiting: Vec<(SwapTicket, usize)>,
        running: Vec<usize>,
        resident: Option<u8>,
        loading: Option<u8>,
        loads: usize,
        served: usize,
    }

    impl Stage {
        fn new(episodes: Vec<Vec<u8>>, longest: usize) -> Self {
            let mut stage = Self {
                phases: SwapScheduler::new(longest),
                episodes: episodes.into_iter().map(VecDeque::from).collect(),
                waiting: Vec::new(),
                running: Vec::new(),
                resident: None,
                loading: None,
                loads: 0,
                served: 0,
            };
            for episode in 0..stage.episodes.len() {
                stage.ask(episode);
            }
            stage
        }

        fn ask(&mut self, episode: usize) {
            if let Some(model) = self.episodes[episode].pop_front() {
                let ticket = self.phases.ask(model);
                self.waiting.push((ticket, episode));
            }
        }

        /// Executes decisions until there are none left.
        fn settle(&mut self) {
            loop {
                match self.phases.decide() {
                    Decision::Hold => return,
                    Decision::Admit(tickets) => {
                        assert!(self.resident.is_some() && self.loading.is_none());
                        for ticket in tickets {
                            let index = self.waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                            self.running.push(self.waiting.remove(index).1);
                        }
                    }
                    Decision::Swap { unload, load } => {
                        assert!(self.running.is_empty(), "a model is unloaded while a request runs on it");
                        assert_eq!(unload, self.resident, "the unloaded model is not the resident one");
                        assert_ne!(unload, Some(load));
                        self.resident = None;
                        self.loading = Some(load);
                        self.loads += 1;
                    }
                }
            }
        }

        /// Ends a load or a request.
        fn step(&mut self, choice: usize) -> bool {
            self.settle();
            if let Some(model) = self.loading.take() {
                self.resident = Some(model);
                self.phases.loaded();
            } else if !self.running.is_empty() {
                let episode = self.running.swap_remove(choice % self.running.len());
                self.served += 1;
                self.ask(episode);
                self.phases.ended();
            } else {
                return false;
            }
            true
        }
    }

    /// Number of runs of the same model in a sequence.
    fn runs(episode: &[u8]) -> usize {
        episode.len().min(1) + episode.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    proptest! {
        #[test]
        fn every_turn_is_served_with_as_few_swaps_as_alternation_needs(
            episodes in proptest::collection::vec(proptest::collection::vec(0u8..2, 0..8), 1..12),
            choices in proptest::collection::vec(any::<usize>(), 256),
        ) {
            let turns: usize = episodes.iter().map(Vec::len).sum();
            let most = episodes.iter().map(|one| runs(one)).max().unwrap_or(0);
            let mut stage = Stage::new(episodes, usize::MAX);
            for choice in choices.iter().cycle() {
                if !stage.step(*choice) {
                    break;
                }
            }
            prop_assert_eq!(stage.served, turns);
            // Each phase completes one run of every episode. The first phase may be for a model that the
            // episode does not start with.
            prop_assert!(stage.loads <= most + 1, "{} loads for {most} runs", stage.loads);
        }

        #[test]
        fn three_models_and_a_bound_on_phases_serve_every_turn_too(
            episodes in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..8), 1..12),
            choices in proptest::collection::vec(any::<usize>(), 256),
            longest in 0usize..5,
        ) {
            let turns: usize = episodes.iter().map(Vec::len).sum();
            let mut stage = Stage::new(episodes, longest);
            for choice in choices.iter().cycle() {
                if !stage.step(*choice) {
                    break;
                }
            }
            prop_assert_eq!(stage.served, turns);
            prop_assert!(stage.loads <= turns);
        }

        #[test]
        fn turns_that_are_given_up_hold_nobody_up(
            asked in proptest::collection::vec((0u8..2, any::<bool>()), 1..40),
        ) {
            let mut phases = SwapScheduler::new(usize::MAX);
            let tickets: Vec<(SwapTicket, bool)> =
                asked.iter().map(|(model, stays)| (phases.ask(*model), *stays)).collect();
            for (ticket, _) in tickets.iter().filter(|(_, stays)| !stays) {
                phases.withdraw(*ticket);
            }
            let mut served = BTreeSet::new();
            loop {
                match phases.decide() {
                    Decision::Hold => break,
                    Decision::Swap { .. } => assert!(phases.loaded()),
                    Decision::Admit(tickets) => {
                        for ticket in tickets {
                            served.insert(ticket);
                            // Withdrawing an admitted request has no effect.
                            phases.withdraw(ticket);
                            phases.ended();
                        }
                    }
                }
            }
            let stayed: BTreeSet<SwapTicket> =
                tickets.iter().filter(|(_, stays)| *stays).map(|(ticket, _)| *ticket).collect();
            prop_assert_eq!(served, stayed);
        }
    }

    #[test]
    fn an_endless_phase_ends_for_those_that_wait() {
        let mut phases = SwapScheduler::new(3);
        phases.ask('a');
        assert_eq!(phases.decide(), Decision::Swap { unload: None, load: 'a' });
        phases.loaded();
        assert_eq!(phases.decide(), Decision::Admit(vec![0]));
        phases.ask('b');
        // Each request arrives before the previous one has ended.
        let mut let_in = 0;
        loop {
            phases.ask('a');
            match phases.decide() {
                Decision::Admit(tickets) => let_in += tickets.len(),
                Decision::Hold => break,
                Decision::Swap { .. } => unreachable!("a request is still running"),
            }
            phases.ended();
        }
        assert_eq!(let_in, 3);
        phases.ended();
        assert_eq!(phases.decide(), Decision::Swap { unload: Some('a'), load: 'b' });
    }

    #[test]
    fn what_cannot_be_loaded_is_refused_to_all_who_wait_for_it_and_to_nobody_else() {
        let mut phases = SwapScheduler::new(9);
        let (first, second, third) = (phases.ask('a'), phases.ask('b'), phases.ask('a'));
        assert_eq!(phases.decide(), Decision::Swap { unload: None, load: 'a' });
        assert_eq!(phases.decide(), Decision::Hold);
        assert_eq!(phases.failed(), [first, third]);
        assert_eq!(phases.decide(), Decision::Swap { unload: None, load: 'b' });
        phases.loaded();
        assert_eq!(phases.decide(), Decision::Admit(vec![second]));
        assert!(!phases.clear());
        phases.ended();
        assert!(phases.clear() && phases.resident().is_none());
    }

    #[test]
    fn a_model_that_is_cleared_while_it_loads_is_kept_only_for_a_waiting_request() {
        let mut phases = SwapScheduler::new(9);
        let withdrawn = phases.ask('a');
        assert_eq!(phases.decide(), Decision::Swap { unload: None, load: 'a' });
        assert!(!phases.clear());
        phases.withdraw(withdrawn);
        phases.ask('b');
        assert!(!phases.loaded());
        assert_eq!(phases.decide(), Decision::Hold, "its memory is not free yet");
        phases.freed();
        assert_eq!(phases.decide(), Decision::Swap { unload: None, load: 'b' });
        assert!(!phases.clear());
        assert!(phases.loaded(), "a request waits for it");
        assert_eq!((phases.resident(), phases.loading()), (Some(&'b'), None));
    }
}
