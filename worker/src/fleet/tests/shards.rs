//! Shards in memory: order, eligibility, and model switches within a memory budget.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lumos_models::ModelRegistry;
use lumos_models::ModelsSettings;
use lumos_queue::{Lease, Queue};
use lumos_tasks::fleet::{RunState, ShardId};
use lumos_tasks::{
    Assignment, Configuration, ContentHash, Formulation, Input, ModelIdentity, Request, Role, Sampling, Stop,
    Swap, ToolBackend,
};
use lumos_tools::{
    BackendDescription, BackendError, BackendResources, NamedBackend, ToolSets, Tools, register_backend,
};
use tokio::time::timeout;

use super::support::{HandedShard, LONG, MemoryShards, Run, configuration, identity, models, script};
use crate::Backends;
use crate::fleet::WorkerSettings;
use crate::fleet::catalogue::Catalogue;
use crate::fleet::eligibility::{Eligibility, ShardVerdict};
use crate::fleet::lease_table::LeaseTable;
use crate::fleet::policy::PolicySettings;
use crate::fleet::shards::Shards;
use crate::fleet::source::ShardSource;

/// Time after which a claim has no further effects. The clock is paused.
const SETTLED: Duration = Duration::from_secs(60);

fn settings(memory: Option<u64>) -> WorkerSettings {
    let policy = PolicySettings { least: Duration::from_millis(50), ..PolicySettings::default() };
    WorkerSettings { memory, policy, ..WorkerSettings::default() }
}

struct Bench {
    folder: tempfile::TempDir,
    source: MemoryShards,
    catalogue: Arc<Catalogue>,
    eligibility: Arc<Eligibility>,
    held: Arc<LeaseTable>,
    models: Arc<ModelRegistry>,
    shards: Shards,
}

impl Bench {
    fn new(memory: Option<u64>) -> Self {
        Self::with(memory, models())
    }

    fn with(memory: Option<u64>, models: Arc<ModelRegistry>) -> Self {
        Self::with_swap(memory, models, Swap::Auto)
    }

    fn with_swap(memory: Option<u64>, models: Arc<ModelRegistry>, swap: Swap) -> Self {
        let source = MemoryShards::default();
        let catalogue = Arc::new(Catalogue::default());
        let within = memory.map(|memory| (memory, swap));
        let eligibility = Eligibility::new(Arc::clone(&models), Arc::new(ToolSets::default()), within);
        let eligibility = Arc::new(eligibility);
        let held = Arc::new(LeaseTable::default());
        let shards = Shards::new(
            WorkerSettings { swap, ..settings(memory) },
            Arc::new(source.clone()),
            Arc::clone(&catalogue),
            Arc::clone(&eligibility),
            Arc::clone(&models),
            Arc::clone(&held),
        );
        Self { folder: tempfile::tempdir().unwrap(), source, catalogue, eligibility, held, models, shards }
    }

    /// The shards of another source, without a memory limit.
    fn shards_of(&self, source: impl ShardSource + 'static) -> Shards {
        Shards::new(
            settings(None),
            Arc::new(source),
            Arc::clone(&self.catalogue),
            Arc::clone(&self.eligibility),
            Arc::clone(&self.models),
            Arc::clone(&self.held),
        )
    }

    /// Announces a run with one configuration and publishes its units.
    async fn run(&self, name: &str, model: &ModelIdentity, priority: u8, units: usize) -> Run {
        let run = Run::with_priority(name, vec![configuration(model.clone())], priority);
        self.note(&run).await;
        for number in 0..units {
            self.source.publish(&run.notice.shards[0], run.message(0, number)).await;
        }
        run
    }

    async fn note(&self, run: &Run) {
        self.catalogue.update(run.token().as_str(), Some(&run.written()));
        self.catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
        for shard in self.catalogue.shards().iter() {
            self.eligibility.verify(shard).await;
        }
    }

    async fn claim(&self, max: usize) -> Vec<Lease<Assignment>> {
        timeout(LONG, self.shards.claim(max)).await.unwrap().unwrap()
    }

    async fn loaded(&self) -> BTreeSet<String> {
        self.models.list().await.into_iter().map(|model| model.identity.name).collect()
    }
}

#[tokio::test]
async fn models_change_under_a_memory_budget_and_never_under_an_episode() {
    let bench = Bench::new(Some(1_500));
    let names = ["one", "two"].map(|name| script(bench.folder.path(), name, 2, 600));
    let first = bench.run("first", &identity(&names[0]), 3, 2).await;
    let second = bench.run("second", &identity(&names[1]), 5, 1).await;

    let leases = bench.claim(8).await;
    assert_eq!(leases.len(), 1, "one unit before its models are loaded");
    let more = bench.claim(8).await;
    assert_eq!((more.len(), bench.held.count()), (1, 2));
    assert!(more.iter().chain(&leases).all(|lease| lease.body().run.as_ref() == Some(first.token())));
    assert_eq!(bench.loaded().await, BTreeSet::from([names[0].clone()]));

    // The other shard's model does not fit in addition to the first, which is in use.
    assert!(timeout(Duration::from_millis(1_500), bench.shards.claim(8)).await.is_err());
    assert_eq!(bench.loaded().await, BTreeSet::from([names[0].clone()]));
    for lease in leases.into_iter().chain(more) {
        lease.acknowledge().await.unwrap();
    }
    assert_eq!(bench.held.count(), 0);
    let leases = bench.claim(8).await;
    assert_eq!(leases[0].body().run.as_ref(), Some(second.token()));
    assert_eq!(bench.loaded().await, BTreeSet::from([names[1].clone()]));
    drop(leases);
    assert_eq!(bench.source.shard(&second.notice.shards[0]).waiting(), 1, "a dropped lease is released");
}

#[tokio::test]
async fn a_shard_that_is_alone_no_longer_is_asked_as_one_of_several_at_once() {
    let bench = Bench::new(None);
    let model = identity(&script(bench.folder.path(), "one", 2, 0));
    let first = bench.run("first", &model, 5, 4).await;
    // The first claim loads the model, the second has only one shard.
    for _ in 0..2 {
        assert_eq!(bench.claim(1).await[0].body().run.as_ref(), Some(first.token()));
    }
    let urgent = bench.run("urgent", &model, 0, 1).await;
    let taken = bench.claim(1).await;
    assert_eq!(taken[0].body().run.as_ref(), Some(urgent.token()));
}

#[tokio::test]
async fn a_shard_without_work_is_not_loaded() {
    let bench = Bench::new(None);
    let names = ["one", "two"].map(|name| script(bench.folder.path(), name, 2, 0));
    // The first shard is more urgent, and empty.
    bench.run("first", &identity(&names[0]), 0, 0).await;
    let second = bench.run("second", &identity(&names[1]), 5, 1).await;
    let leases = bench.claim(8).await;
    assert_eq!(leases[0].body().run.as_ref(), Some(second.token()));
    assert_eq!(bench.loaded().await, BTreeSet::from([names[1].clone()]));
}

#[tokio::test]
async fn a_model_that_is_another_or_not_here_is_refused() {
    let bench = Bench::new(None);
    let name = script(bench.folder.path(), "one", 1, 0);
    let other = ModelIdentity { content: ContentHash::of_bytes(b"other"), ..identity(&name) };
    let missing = ModelIdentity { name: "script:nowhere.jsonl".to_owned(), ..identity(&name) };
    let missing = ModelIdentity { content: ContentHash::of_bytes(b"missing"), ..missing };
    bench.run("other", &other, 5, 1).await;
    bench.run("missing", &missing, 5, 1).await;
    let refusals = bench.eligibility.refusals();
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert!(
        refusals.iter().any(|one| one.contains("differs from the model that the run was planned with")),
        "{refusals:?}"
    );
    assert!(refusals.iter().any(|one| one.contains("not available on this host")), "{refusals:?}");
    let content = identity(&name).content;
    assert!(
        refusals.iter().all(|one| !one.contains(content.short())),
        "the refusal reveals the file's content: {refusals:?}"
    );
    assert!(timeout(Duration::from_millis(300), bench.shards.claim(8)).await.is_err());

    // The shard does not depend on the name of the model.
    let found = ModelIdentity { content: missing.content.clone(), ..identity(&name) };
    assert_eq!(ShardId::of(&configuration(found), 5), ShardId::of(&configuration(missing), 5));
}

#[tokio::test]
async fn files_that_are_replaced_are_verified_again() {
    let bench = Bench::new(None);
    let write = |count| identity(&script(bench.folder.path(), "one", count, 0));
    let planned = write(2);
    write(1);
    let run = bench.run("run", &planned, 5, 0).await;
    assert_eq!(bench.eligibility.refusals().len(), 1);
    write(2);
    tokio::time::pause();
    tokio::time::advance(SETTLED).await;
    bench.note(&run).await;
    let needs = &run.notice.shards[0].needs;
    assert!(matches!(bench.eligibility.of(needs), Some(ShardVerdict::Fits(_))));
}

/// How often [`Counted`] was hashed.
static HASHED: AtomicUsize = AtomicUsize::new(0);

/// A backend that counts how often it is hashed.
struct Counted;

impl NamedBackend for Counted {
    fn version(&self) -> u32 {
        1
    }

    fn content(&self) -> Result<String, BackendError> {
        HASHED.fetch_add(1, Ordering::Relaxed);
        Ok(String::new())
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Err(BackendError::Unusable("this backend is only verified".to_owned()))
    }
}

static COUNTED: BackendDescription = BackendDescription {
    tool: Some("wiki"),
    forms: &["counted"],
    parse: |_, backend| Ok((backend == "counted").then(|| Box::new(Counted) as Box<dyn NamedBackend>)),
};

#[tokio::test]
async fn the_files_of_a_tool_are_hashed_once_for_all_configurations_of_a_shard() {
    register_backend(&COUNTED).unwrap();
    let bench = Bench::new(None);
    let usual = configuration(identity(&script(bench.folder.path(), "one", 1, 0)));
    let tool = ToolBackend { tool: "wiki".to_owned(), backend: "counted".to_owned(), version: 1 };
    let seeded = |seed| Arc::new(Configuration { seed, tools: vec![tool.clone()], ..(*usual).clone() });
    let run = Run::new("seeds", (0..3).map(seeded).collect());
    assert_eq!(run.notice.shards.len(), 1);
    bench.note(&run).await;
    let verdict = bench.eligibility.of(&run.notice.shards[0].needs);
    assert!(matches!(verdict, Some(ShardVerdict::Fits(_))), "{verdict:?}");
    assert_eq!(HASHED.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn reasons_of_any_length_are_cut() {
    let bench = Bench::new(None);
    let name = format!("script:{}.jsonl", "\u{e9}".repeat(100_000));
    let long = ModelIdentity { name, content: ContentHash::of_bytes(b"long"), dtype: None };
    bench.run("long", &long, 5, 1).await;
    let refusals = bench.eligibility.refusals();
    assert_eq!(refusals.len(), 1);
    assert!((1000..=1024).contains(&refusals[0].len()), "{}", refusals[0].len());
    assert!(bench.eligibility.looking_for().is_none());
}

#[tokio::test]
async fn models_of_servers_that_no_shard_needs_are_dropped_when_there_are_many() {
    let bench = Bench::new(None);
    let model = |number: usize| ModelIdentity {
        name: format!("openai:m{number}@http://127.0.0.1:9/v1"),
        content: ContentHash::of_bytes(number.to_string().as_bytes()),
        dtype: None,
    };
    let script = identity(&script(bench.folder.path(), "one", 1, 0));
    bench.models.check(&script, Role::Answerer, &configuration(script.clone())).await.unwrap();
    let load = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let model = model(number);
            bench.models.get(&model, Role::Answerer, &configuration(model.clone())).await.unwrap();
        }
    };
    load(0..60).await;
    bench.eligibility.forget_unneeded(&[]).await;
    assert_eq!(bench.loaded().await.len(), 61, "there are few");
    load(60..100).await;
    let run = Run::new("run", vec![configuration(model(7))]);
    bench.catalogue.update(run.token().as_str(), Some(&run.written()));
    bench.catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
    bench.eligibility.forget_unneeded(&bench.catalogue.shards()).await;
    assert_eq!(bench.loaded().await, BTreeSet::from([model(7).name, script.name]));
}

#[tokio::test]
async fn a_model_may_lie_elsewhere_on_this_host() {
    let folder = tempfile::tempdir().unwrap();
    let here = script(folder.path(), "here", 1, 0);
    let planned = ModelIdentity { name: "script:there.jsonl".to_owned(), ..identity(&here) };
    let names = [(planned.name.clone(), here)].into();
    let models = Arc::new(ModelRegistry::new(ModelsSettings { names, ..ModelsSettings::default() }));
    let bench = Bench::with(None, models);
    let run = bench.run("run", &planned, 5, 1).await;
    assert!(matches!(bench.eligibility.of(&run.notice.shards[0].needs), Some(ShardVerdict::Fits(_))));
    assert_eq!(bench.claim(1).await.len(), 1);
}

#[tokio::test]
async fn units_that_cannot_be_worked_on_are_taken_out_or_given_back() {
    let bench = Bench::new(None);
    let names = ["one", "two"].map(|name| script(bench.folder.path(), name, 4, 0));
    let mut ended = bench.run("ended", &identity(&names[0]), 5, 1).await;
    ended.notice.state = RunState::Ended;
    bench.note(&ended).await;
    let run = bench.run("run", &identity(&names[0]), 5, 0).await;
    let shard = &run.notice.shards[0];
    let foreign = bench.run("foreign", &identity(&names[1]), 5, 0).await;
    // Published to the wrong shard.
    bench.source.publish(shard, foreign.message(0, 3)).await;
    bench.source.publish(shard, run.message(0, 2)).await;
    let mut claimed = Vec::new();
    while claimed.is_empty() {
        claimed = bench.claim(8).await;
    }
    claimed.extend(bench.claim(8).now_or_none().await);
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].body().run.as_ref(), Some(run.token()));
    assert_eq!((bench.source.shard(shard).waiting(), bench.source.shard(shard).leased()), (0, 1));
}

/// A shard whose models are loaded, and a run that uses it and whose notice is missing.
async fn shard_with_unknown_run(bench: &Bench) -> (HandedShard, Shards, Run) {
    let model = identity(&script(bench.folder.path(), "one", 8, 0));
    let known = bench.run("known", &model, 5, 0).await;
    let shard = HandedShard::default();
    let shards = bench.shards_of(shard.clone());
    shard.hand(known.message(0, 0), 1);
    let leases = timeout(LONG, shards.claim(1)).await.unwrap().unwrap();
    assert_eq!(leases.len(), 1);
    for lease in leases {
        lease.acknowledge().await.unwrap();
    }
    (shard, shards, Run::new("unknown", vec![configuration(model)]))
}

#[tokio::test]
async fn units_of_an_unknown_run_are_left_to_others_and_never_counted_as_faults() {
    let bench = Bench::new(None);
    let (shard, shards, unknown) = shard_with_unknown_run(&bench).await;
    let limit = WorkerSettings::default().max_deliveries;
    shard.hand(unknown.message(0, 1), limit - 1);
    shard.hand(unknown.message(0, 2), limit);
    tokio::time::pause();
    assert!(timeout(SETTLED, shards.claim(8)).await.is_err());
    assert_eq!(*shard.counts.delays.lock().unwrap(), [Duration::from_secs(15)]);
    assert_eq!(shard.counts.ended(), (1, 1, 1), "the last permitted delivery removes the unit");
}

#[tokio::test]
async fn units_that_wait_for_their_run_are_kept_when_another_run_appears() {
    let bench = Bench::new(None);
    let (shard, shards, unknown) = shard_with_unknown_run(&bench).await;
    let model = identity(&script(bench.folder.path(), "two", 1, 0));
    let other = Run::new("other", vec![configuration(model)]);
    shard.hand(unknown.message(0, 1), 1);
    tokio::time::pause();
    let noting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.catalogue.update(other.token().as_str(), Some(&other.written()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.note(&unknown).await;
    };
    let (claimed, ()) = tokio::join!(timeout(SETTLED, shards.claim(8)), noting);
    assert_eq!(claimed.unwrap().unwrap()[0].body().run.as_ref(), Some(unknown.token()));
}

#[tokio::test]
async fn a_unit_whose_models_fail_to_load_is_left_to_others_and_never_counted_as_a_fault() {
    let limit = WorkerSettings::default().max_deliveries;
    for (deliveries, ended) in [(1, (0, 1, 0)), (limit, (0, 0, 1))] {
        let bench = Bench::new(None);
        let model = identity(&script(bench.folder.path(), "one", 2, 0));
        let run = bench.run("run", &model, 5, 0).await;
        // It is verified, and cannot be read again.
        std::fs::remove_file(bench.folder.path().join("one.jsonl")).unwrap();
        let shard = HandedShard::default();
        shard.hand(run.message(0, 0), deliveries);
        let shards = bench.shards_of(shard.clone());
        tokio::time::pause();
        assert!(timeout(SETTLED, shards.claim(8)).await.is_err());
        assert_eq!(shard.counts.ended(), ended);
        assert_eq!(shard.counts.delays.lock().unwrap().len(), ended.1);
        tokio::time::resume();
    }
}

trait NowOrNone {
    async fn now_or_none(self) -> Vec<Lease<Assignment>>;
}

impl<F: Future<Output = Vec<Lease<Assignment>>>> NowOrNone for F {
    async fn now_or_none(self) -> Vec<Lease<Assignment>> {
        timeout(Duration::from_millis(300), self).await.unwrap_or_default()
    }
}

#[tokio::test]
async fn closed_shards_end_a_claim_that_waits() {
    let bench = Arc::new(Bench::new(None));
    let claiming = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.shards.claim(4).await.unwrap().len() })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.shards.close();
    assert_eq!(timeout(LONG, claiming).await.unwrap().unwrap(), 0);
}

/// Models of `builtin:tiny` in the one-time formulation.
fn builtin(roles: impl IntoIterator<Item = Role>) -> Arc<Configuration> {
    let of = |role| {
        let found = models().identify("builtin:tiny", role, Formulation::OneTime).unwrap();
        (role, found.identity)
    };
    let usual = configuration(of(Role::Planner).1);
    Arc::new(Configuration {
        formulation: Formulation::OneTime,
        models: roles.into_iter().map(of).collect(),
        ..(*usual).clone()
    })
}

/// Planner and grounder, whose tokenizers differ. They need 33 MB each.
fn pair() -> Arc<Configuration> {
    builtin([Role::Planner, Role::Grounder])
}

/// The caches of a shard's models take the memory that models of other shards would need.
#[tokio::test]
async fn engines_of_different_shards_do_not_share_a_limited_memory() {
    let bench = Bench::new(Some(100_000_000));
    for role in [Role::Planner, Role::Grounder] {
        let run = Run::new(&role.to_string(), vec![builtin([role])]);
        bench.note(&run).await;
        bench.source.publish(&run.notice.shards[0], run.message(0, 0)).await;
        let leases = bench.claim(1).await;
        assert_eq!(leases[0].body().run.as_ref(), Some(run.token()));
        let loaded: Vec<ContentHash> =
            bench.models.list().await.into_iter().map(|model| model.identity.content).collect();
        assert_eq!(loaded, [run.configurations[0].models[&role].content.clone()]);
        for lease in leases {
            lease.acknowledge().await.unwrap();
        }
    }
}

#[tokio::test]
async fn models_that_do_not_fit_together_take_turns() {
    let bench = Bench::new(Some(48_000_000));
    let run = Run::new("pair", vec![pair()]);
    bench.note(&run).await;
    bench.source.publish(&run.notice.shards[0], run.message(0, 0)).await;
    let leases = bench.claim(1).await;
    assert_eq!(leases.len(), 1);
    assert_eq!(bench.models.list().await.len(), 1, "one of them is resident");
    let backends = Backends::of(&bench.models, &ToolSets::default(), &run.configurations[0]).await.unwrap();
    for role in [Role::Planner, Role::Grounder, Role::Planner] {
        let request = Request {
            role,
            input: Input::Raw("Question".to_owned()),
            stop: Stop::Newline,
            max_new_tokens: 2,
            sampling: Sampling::Greedy,
            seed: 0,
        };
        backends.models[&role].complete(request).await.unwrap();
        assert_eq!(bench.models.list().await.len(), 1);
    }
    // Each model is loaded once to verify that it fits, then once per request; the first request may find its
    // model still loaded.
    assert!((4..=5).contains(&bench.models.swapping().loads), "{:?}", bench.models.swapping());
}

#[tokio::test]
async fn models_that_may_not_take_turns_are_left_to_others() {
    let bench = Bench::with_swap(Some(48_000_000), models(), Swap::Never);
    let run = Run::new("pair", vec![pair()]);
    bench.note(&run).await;
    bench.source.publish(&run.notice.shards[0], run.message(0, 0)).await;
    assert!(timeout(Duration::from_millis(500), bench.shards.claim(1)).await.is_err());
    let refusals = bench.eligibility.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    for part in ["on cpu: the models need", "together", "planner builtin:tiny", "omit `--swap never`"] {
        assert!(refusals[0].contains(part), "{refusals:?}");
    }
}

#[tokio::test]
async fn a_model_that_does_not_fit_alone_is_refused_with_its_size() {
    let bench = Bench::new(Some(8_000_000));
    bench.note(&Run::new("planner", vec![builtin([Role::Planner])])).await;
    let refusals = bench.eligibility.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains("for weights and at least"), "{refusals:?}");
}

/// Earlier versions rounded the rotary frequencies of half-precision folders; the runs they planned lack the
/// mark of full precision.
#[tokio::test]
async fn a_run_planned_with_rounded_rotary_frequencies_is_not_continued() {
    let bench = Bench::new(None);
    let found = models().identify("builtin:tiny", Role::Planner, Formulation::Cot).unwrap().identity;
    assert_eq!(found.dtype.as_deref(), Some("f32+full-rotary"));
    let old = ModelIdentity { dtype: Some("f32".to_owned()), ..found.clone() };
    let planned = |model: &ModelIdentity| {
        let models = [(Role::Planner, model.clone())].into();
        Arc::new(Configuration { models, ..(*configuration(model.clone())).clone() })
    };
    let (now, before) = (planned(&found), planned(&old));
    assert_ne!(now.identity(), before.identity(), "recorded results are separate");
    assert_ne!(ShardId::of(&now, 5), ShardId::of(&before, 5));
    bench.note(&Run::new("now", vec![now.clone()])).await;
    bench.note(&Run::new("before", vec![before.clone()])).await;
    let refusals = bench.eligibility.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals.iter().all(|why| why.contains("could round rotary frequencies")), "{refusals:?}");
    // `lumos resume` performs this check first.
    let error = bench.models.check(&old, Role::Planner, &before).await.unwrap_err().to_string();
    assert!(error.contains("lumos run --name"), "{error}");
    bench.models.check(&found, Role::Planner, &now).await.unwrap();
}
