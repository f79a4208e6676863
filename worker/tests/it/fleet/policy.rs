//! The lane policy, with arbitrary lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lumos_tasks::ContentHash;
use lumos_tasks::RunToken;
use lumos_tasks::fleet::LaneId;
use lumos_worker::fleet::policy::{Holding, Lane, ModelKey, PolicySettings, decide};
use lumos_worker::fleet::pull_history::PullHistory;
use proptest::prelude::*;

fn model(number: u8) -> ModelKey {
    ModelKey { content: ContentHash::of_bytes(&[number]), dtype: None }
}

fn lane_id(number: u8, priority: u8) -> LaneId {
    LaneId { needs: RunToken::of(&ContentHash::of_bytes(&[number])), priority }
}

fn lane(number: u8, priority: u8, models: BTreeMap<ModelKey, u64>) -> Lane {
    Lane {
        id: lane_id(number, priority),
        models,
        tools: BTreeSet::new(),
        refused: false,
        last_work: None,
        dry_since: None,
        last_dry: None,
    }
}

fn settings() -> PolicySettings {
    PolicySettings {
        bytes_per_second: 1,
        least: Duration::from_millis(100),
        patience: 1.0,
        dry_for: Duration::from_secs(1),
        fresh: Duration::from_secs(5),
    }
}

/// Sizes of five models.
fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0u64..20, 5)
}

fn moment() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of((0u64..100).prop_map(Duration::from_secs))
}

prop_compose! {
    fn any_lanes()(
        sizes in sizes(),
        lanes in prop::collection::vec(
            (0u8..4, prop::collection::btree_set(0u8..5, 0..4), any::<[bool; 3]>(), moment(), moment(), moment()),
            0..6,
        ),
        loaded in prop::collection::btree_set(0u8..5, 0..5),
        in_use in prop::collection::btree_set(0u8..5, 0..3),
        memory in prop::option::of(0u64..60),
        last_switch in moment(),
        has_tool in any::<bool>(),
    ) -> (Vec<Lane>, Holding) {
        let size = |number: &u8| (model(*number), sizes[usize::from(*number)]);
        let lanes = lanes.into_iter().enumerate().map(|(index, (priority, models, flags, work, since, dry))| Lane {
            tools: if flags[0] && flags[1] { BTreeSet::from(["chromium".to_owned()]) } else { BTreeSet::new() },
            refused: flags[1] && flags[2],
            last_work: work,
            dry_since: since,
            last_dry: dry,
            ..lane(u8::try_from(index).unwrap(), priority, models.iter().map(size).collect())
        }).collect();
        let loaded: BTreeMap<ModelKey, u64> = loaded.iter().map(size).collect();
        let in_use = in_use.into_iter().map(model).filter(|model| loaded.contains_key(model)).collect();
        let tools = has_tool.then(|| "chromium".to_owned()).into_iter().collect();
        (lanes, Holding { memory, loaded, in_use, tools, last_switch })
    }
}

fn holdable(lane: &Lane, holding: &Holding) -> bool {
    !lane.refused
        && lane.tools.iter().all(|tool| holding.tools.contains(tool))
        && holding.memory.is_none_or(|memory| lane.models.values().sum::<u64>() <= memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn decisions_keep_the_rules((lanes, holding) in any_lanes(), now in 100u64..200) {
        let (settings, now) = (settings(), Duration::from_secs(now));
        let decision = decide(&lanes, &holding, now, &settings);
        let find = |id: &LaneId| lanes.iter().find(|lane| lane.id == *id).unwrap();

        let expected: BTreeSet<_> = lanes
            .iter()
            .filter(|lane| holdable(lane, &holding))
            .filter(|lane| lane.models.keys().all(|model| holding.loaded.contains_key(model)))
            .map(|lane| lane.id.clone())
            .collect();
        prop_assert_eq!(decision.ask.iter().cloned().collect::<BTreeSet<_>>(), expected);
        prop_assert!(decision.ask.windows(2).all(|pair| pair[0].priority <= pair[1].priority));

        let Some(switch) = decision.switch else { return Ok(()) };
        let to = find(&switch.to);
        prop_assert!(holdable(to, &holding), "the lane cannot be held");
        prop_assert!(!decision.ask.contains(&switch.to), "the lane is already loaded");
        let missing: BTreeSet<_> = to.models.keys().filter(|model| !holding.loaded.contains_key(model)).collect();
        prop_assert_eq!(switch.load.iter().collect::<BTreeSet<_>>(), missing);
        for model in &switch.unload {
            prop_assert!(holding.loaded.contains_key(model) && !to.models.contains_key(model));
            prop_assert!(!holding.in_use.contains(model), "a model in use is unloaded");
        }
        let bytes = |unload: &[ModelKey]| -> u64 {
            let kept = holding.loaded.iter().filter(|(model, _)| !unload.contains(model)).map(|(_, bytes)| bytes);
            kept.sum::<u64>() + switch.load.iter().map(|model| to.models[model]).sum::<u64>()
        };
        if let Some(memory) = holding.memory {
            prop_assert!(bytes(&switch.unload) <= memory, "the models do not fit");
            for (index, _) in switch.unload.iter().enumerate() {
                let mut fewer = switch.unload.clone();
                fewer.remove(index);
                prop_assert!(bytes(&fewer) > memory, "a model is unloaded unnecessarily");
            }
        } else {
            prop_assert!(switch.unload.is_empty());
        }
        let cost: u64 = switch.load.iter().map(|model| to.models[model]).sum();
        for loaded in decision.ask.iter().map(find) {
            let since = loaded.dry_since.max(loaded.last_work).unwrap();
            prop_assert!(loaded.dry_since.is_some() && now - since >= settings.patience(cost));
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_work_that_fits_is_done(
        sizes in sizes(),
        lanes in prop::collection::vec((0u8..4, prop::collection::btree_set(0u8..5, 1..4), 0u32..5), 1..6),
        memory in 10u64..60,
    ) {
        let size = |number: &u8| (model(*number), sizes[usize::from(*number)]);
        let mut world = World::new(memory);
        for (index, (priority, models, work)) in lanes.iter().enumerate() {
            let lane = lane(u8::try_from(index).unwrap(), *priority, models.iter().map(size).collect());
            world.add(lane, *work);
        }
        for _ in 0..6_000 {
            world.step(Duration::from_millis(100));
        }
        for (lane, work) in world.lanes.iter().zip(&world.work) {
            let fits = lane.models.values().sum::<u64>() <= memory;
            prop_assert!(*work == 0 || !fits, "lane {} has {work} units left", lane.id);
        }
    }

    #[test]
    fn trickles_cost_one_switch_per_patience(first in 1u32..40, second in 1u32..40, bytes in 5u64..15) {
        let mut world = World::new(bytes + 4);
        for number in 0..2 {
            world.add(lane(number, 5, BTreeMap::from([(model(number), bytes)])), 0);
        }
        for step in 0..6_000u32 {
            for (index, every) in [first, second].into_iter().enumerate() {
                world.work[index] += u32::from(step % every == 0);
            }
            world.step(Duration::from_millis(100));
        }
        let most = 600.0 / settings().patience(bytes).as_secs_f64() + 2.0;
        prop_assert!(f64::from(world.switches) <= most, "{} switches in ten minutes", world.switches);
    }
}

#[test]
fn the_urgent_lane_is_loaded_first_and_nothing_waits_at_the_start() {
    let lanes = [lane(0, 5, BTreeMap::from([(model(0), 10)])), lane(1, 2, BTreeMap::from([(model(1), 15)]))];
    let holding = Holding { memory: Some(20), ..Holding::default() };
    let decision = decide(&lanes, &holding, Duration::ZERO, &settings());
    assert_eq!(decision.switch.unwrap().to, lanes[1].id);
}

/// Lanes with units, and a worker that follows the policy. Units take no time.
struct World {
    lanes: Vec<Lane>,
    work: Vec<u32>,
    holding: Holding,
    history: PullHistory,
    now: Duration,
    switches: u32,
}

impl World {
    fn new(memory: u64) -> Self {
        Self {
            lanes: Vec::new(),
            work: Vec::new(),
            holding: Holding { memory: Some(memory), ..Holding::default() },
            history: PullHistory::default(),
            now: Duration::ZERO,
            switches: 0,
        }
    }

    fn add(&mut self, lane: Lane, work: u32) {
        self.lanes.push(lane);
        self.work.push(work);
    }

    fn view(&self) -> Vec<Lane> {
        let with_answers = |lane: &Lane| {
            let answers = self.history.of(&lane.id);
            Lane {
                last_work: answers.last_work,
                dry_since: answers.dry_since,
                last_dry: answers.last_dry,
                ..lane.clone()
            }
        };
        self.lanes.iter().map(with_answers).collect()
    }

    fn ask(&mut self, id: &LaneId) -> bool {
        let index = self.lanes.iter().position(|lane| lane.id == *id).unwrap();
        if self.work[index] == 0 {
            self.history.was_dry(id, self.now);
            return false;
        }
        self.work[index] -= 1;
        self.history.gave_work(id, self.now);
        true
    }

    fn step(&mut self, by: Duration) {
        self.now += by;
        let decision = decide(&self.view(), &self.holding, self.now, &settings());
        if decision.ask.iter().any(|lane| self.ask(lane)) {
            return;
        }
        let Some(switch) = decide(&self.view(), &self.holding, self.now, &settings()).switch else { return };
        if !self.ask(&switch.to) {
            return;
        }
        let lane = self.lanes.iter().find(|lane| lane.id == switch.to).unwrap().clone();
        self.holding.loaded.retain(|model, _| !switch.unload.contains(model));
        self.holding.loaded.extend(lane.models);
        self.holding.last_switch = Some(self.now);
        self.switches += 1;
    }
}
