//! The shard policy, with arbitrary shards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lumos_tasks::ContentHash;
use lumos_tasks::RunToken;
use lumos_tasks::fleet::ShardId;
use proptest::prelude::*;

use crate::fleet::policy::{Holding, ModelKey, PolicySettings, PullHistory, Shard, decide};

fn model(number: u8) -> ModelKey {
    ModelKey { content: ContentHash::of_bytes(&[number]), dtype: None }
}

fn shard_id(number: u8, priority: u8) -> ShardId {
    ShardId { needs: RunToken::of(&ContentHash::of_bytes(&[number])), priority }
}

fn shard(number: u8, priority: u8, models: BTreeMap<ModelKey, u64>) -> Shard {
    Shard { id: shard_id(number, priority), models, refused: false, history: PullHistory::default() }
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
    fn any_shards()(
        sizes in sizes(),
        shards in prop::collection::vec(
            (0u8..4, prop::collection::btree_set(0u8..5, 0..4), any::<[bool; 2]>(), moment(), moment(), moment()),
            0..6,
        ),
        loaded in prop::collection::btree_set(0u8..5, 0..5),
        in_use in prop::collection::btree_set(0u8..5, 0..3),
        memory in prop::option::of(0u64..60),
        last_switch in moment(),
    ) -> (Vec<Shard>, Holding) {
        let size = |number: &u8| (model(*number), sizes[usize::from(*number)]);
        let shards = shards.into_iter().enumerate().map(|(index, (priority, models, flags, work, since, dry))| Shard {
            refused: flags[0] && flags[1],
            history: PullHistory { last_work: work, dry_since: since, last_dry: dry },
            ..shard(u8::try_from(index).unwrap(), priority, models.iter().map(size).collect())
        }).collect();
        let loaded: BTreeMap<ModelKey, u64> = loaded.iter().map(size).collect();
        let in_use = in_use.into_iter().map(model).filter(|model| loaded.contains_key(model)).collect();
        (shards, Holding { memory, loaded, in_use, last_switch })
    }
}

fn holdable(shard: &Shard, holding: &Holding) -> bool {
    !shard.refused && holding.memory.is_none_or(|memory| shard.models.values().sum::<u64>() <= memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn decisions_keep_the_rules((shards, holding) in any_shards(), now in 100u64..200) {
        let (settings, now) = (settings(), Duration::from_secs(now));
        let decision = decide(&shards, &holding, now, &settings);
        let find = |id: &ShardId| shards.iter().find(|shard| shard.id == *id).unwrap();

        let expected: BTreeSet<_> = shards
            .iter()
            .filter(|shard| holdable(shard, &holding))
            .filter(|shard| shard.models.keys().all(|model| holding.loaded.contains_key(model)))
            .map(|shard| shard.id.clone())
            .collect();
        prop_assert_eq!(decision.ask.iter().cloned().collect::<BTreeSet<_>>(), expected);
        prop_assert!(decision.ask.windows(2).all(|pair| pair[0].priority <= pair[1].priority));

        let Some(switch) = decision.switch else { return Ok(()) };
        let to = find(&switch.to);
        prop_assert!(holdable(to, &holding), "the shard cannot be held");
        prop_assert!(!decision.ask.contains(&switch.to), "the shard is already loaded");
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
            let since = loaded.history.dry_since.max(loaded.history.last_work).unwrap();
            prop_assert!(loaded.history.dry_since.is_some() && now - since >= settings.patience(cost));
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_work_that_fits_is_done(
        sizes in sizes(),
        shards in prop::collection::vec((0u8..4, prop::collection::btree_set(0u8..5, 1..4), 0u32..5), 1..6),
        memory in 10u64..60,
    ) {
        let size = |number: &u8| (model(*number), sizes[usize::from(*number)]);
        let mut world = World::new(memory);
        for (index, (priority, models, work)) in shards.iter().enumerate() {
            let shard = shard(u8::try_from(index).unwrap(), *priority, models.iter().map(size).collect());
            world.add(shard, *work);
        }
        for _ in 0..6_000 {
            world.step(Duration::from_millis(100));
        }
        for (shard, work) in world.shards.iter().zip(&world.work) {
            let fits = shard.models.values().sum::<u64>() <= memory;
            prop_assert!(*work == 0 || !fits, "shard {} has {work} units left", shard.id);
        }
    }

    #[test]
    fn trickles_cost_one_switch_per_patience(first in 1u32..40, second in 1u32..40, bytes in 5u64..15) {
        let mut world = World::new(bytes + 4);
        for number in 0..2 {
            world.add(shard(number, 5, BTreeMap::from([(model(number), bytes)])), 0);
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
fn the_urgent_shard_is_loaded_first_and_nothing_waits_at_the_start() {
    let shards =
        [shard(0, 5, BTreeMap::from([(model(0), 10)])), shard(1, 2, BTreeMap::from([(model(1), 15)]))];
    let holding = Holding { memory: Some(20), ..Holding::default() };
    let decision = decide(&shards, &holding, Duration::ZERO, &settings());
    assert_eq!(decision.switch.unwrap().to, shards[1].id);
}

/// Shards with units, and a worker that follows the policy. Units take no time.
struct World {
    shards: Vec<Shard>,
    work: Vec<u32>,
    holding: Holding,
    history: BTreeMap<ShardId, PullHistory>,
    now: Duration,
    switches: u32,
}

impl World {
    fn new(memory: u64) -> Self {
        Self {
            shards: Vec::new(),
            work: Vec::new(),
            holding: Holding { memory: Some(memory), ..Holding::default() },
            history: BTreeMap::new(),
            now: Duration::ZERO,
            switches: 0,
        }
    }

    fn add(&mut self, shard: Shard, work: u32) {
        self.shards.push(shard);
        self.work.push(work);
    }

    fn view(&self) -> Vec<Shard> {
        let with_answers = |shard: &Shard| {
            let history = self.history.get(&shard.id).copied().unwrap_or_default();
            Shard { history, ..shard.clone() }
        };
        self.shards.iter().map(with_answers).collect()
    }

    fn ask(&mut self, id: &ShardId) -> bool {
        let index = self.shards.iter().position(|shard| shard.id == *id).unwrap();
        if self.work[index] == 0 {
            self.history.entry(id.clone()).or_default().was_dry(self.now);
            return false;
        }
        self.work[index] -= 1;
        self.history.entry(id.clone()).or_default().gave_work(self.now);
        true
    }

    fn step(&mut self, by: Duration) {
        self.now += by;
        let decision = decide(&self.view(), &self.holding, self.now, &settings());
        if decision.ask.iter().any(|shard| self.ask(shard)) {
            return;
        }
        let Some(switch) = decide(&self.view(), &self.holding, self.now, &settings()).switch else { return };
        if !self.ask(&switch.to) {
            return;
        }
        let shard = self.shards.iter().find(|shard| shard.id == switch.to).unwrap().clone();
        self.holding.loaded.retain(|model, _| !switch.unload.contains(model));
        self.holding.loaded.extend(shard.models);
        self.holding.last_switch = Some(self.now);
        self.switches += 1;
    }
}
