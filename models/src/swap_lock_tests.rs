use std::sync::atomic::{AtomicUsize, Ordering};

use lumos_tasks::{Input, Role, Sampling, Stop};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// Shared memory that counts the models in it.
#[derive(Default)]
struct Room {
    resident: AtomicUsize,
    loads: AtomicUsize,
    served: AtomicUsize,
    /// Number of upcoming loads that fail.
    failing: AtomicUsize,
}

struct Loader {
    room: Arc<Room>,
    name: &'static str,
}

struct Model {
    room: Arc<Room>,
    name: &'static str,
}

#[async_trait]
impl Load for Loader {
    async fn load(&self) -> Result<Arc<dyn ModelBackend>, String> {
        sleep(Duration::from_secs(5)).await;
        if self
            .room
            .failing
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(format!("{} is damaged", self.name));
        }
        assert_eq!(self.room.resident.fetch_add(1, Ordering::SeqCst), 0, "more than one model is resident");
        self.room.loads.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Model { room: Arc::clone(&self.room), name: self.name }))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.room.resident.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ModelBackend for Model {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        sleep(Duration::from_millis(10 + u64::from(request.max_new_tokens))).await;
        self.room.served.fetch_add(1, Ordering::SeqCst);
        Ok(Completion::recorded(self.name))
    }
}

fn request(tokens: u32) -> Request {
    Request {
        role: Role::Planner,
        input: Input::Raw(String::new()),
        stop: Stop::Newline,
        max_new_tokens: tokens,
        sampling: Sampling::Greedy,
        seed: 0,
    }
}

type Backend = Arc<SwappedModel<&'static str>>;

fn pair() -> (Arc<Room>, Arc<ModelSwapLock<&'static str>>, Backend, Backend) {
    let (room, gate) = (Arc::new(Room::default()), ModelSwapLock::new());
    let backend =
        |name: &'static str| Arc::new(gate.backend(name, Arc::new(Loader { room: Arc::clone(&room), name })));
    let (planner, grounder) = (backend("planner"), backend("grounder"));
    (room, gate, planner, grounder)
}

#[tokio::test(start_paused = true)]
async fn many_episodes_share_few_loads() {
    let (room, gate, planner, grounder) = pair();
    let mut episodes = JoinSet::new();
    for number in 0..50u32 {
        let (planner, grounder) = (Arc::clone(&planner), Arc::clone(&grounder));
        episodes.spawn(async move {
            for turn in 0..4 {
                let model = if turn % 2 == 0 { &planner } else { &grounder };
                let name = if turn % 2 == 0 { "planner" } else { "grounder" };
                assert_eq!(model.complete(request(number)).await.unwrap().text, name);
            }
        });
    }
    while let Some(ended) = episodes.join_next().await {
        ended.unwrap();
    }
    assert_eq!(room.served.load(Ordering::SeqCst), 200);
    let swapping = gate.swapping();
    assert_eq!((swapping.loads, room.loads.load(Ordering::SeqCst)), (4, 4));
    gate.unload().await;
    assert_eq!((room.resident.load(Ordering::SeqCst), gate.resident()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn futures_that_are_dropped_hold_nobody_up() {
    let (room, _, planner, grounder) = pair();
    let call = |backend: &Backend, tokens| {
        let backend = Arc::clone(backend);
        tokio::spawn(async move { backend.complete(request(tokens)).await })
    };
    // One request is cancelled while its model loads, one while it runs, one while it waits for another
    // phase.
    let (loading, other) = (call(&planner, 0), call(&grounder, 0));
    sleep(Duration::from_secs(1)).await;
    loading.abort();
    assert_eq!(timeout(Duration::from_secs(60), other).await.unwrap().unwrap().unwrap().text, "grounder");
    let (running, waiting) = (call(&grounder, 60_000), call(&planner, 0));
    sleep(Duration::from_secs(1)).await;
    running.abort();
    waiting.abort();
    let last = timeout(Duration::from_secs(60), planner.complete(request(0))).await.unwrap();
    assert_eq!(last.unwrap().text, "planner");
    assert_eq!(room.resident.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_unloaded_while_it_loads_does_not_stay() {
    let (room, gate, planner, grounder) = pair();
    let cancelled = tokio::spawn(async move { planner.complete(request(0)).await });
    sleep(Duration::from_secs(1)).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    assert_eq!((gate.resident(), gate.present()), (None, Some("planner")));
    timeout(Duration::from_secs(60), gate.unload()).await.unwrap();
    assert_eq!((room.loads.load(Ordering::SeqCst), room.resident.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(gate.present(), None);
    // A request that waits keeps its model.
    let waiting = tokio::spawn(async move { grounder.complete(request(0)).await });
    sleep(Duration::from_secs(1)).await;
    timeout(Duration::from_secs(60), gate.unload()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().text, "grounder");
    assert_eq!(gate.resident(), Some("grounder"));
}

#[tokio::test(start_paused = true)]
async fn a_later_loader_replaces_an_earlier_one() {
    let (room, gate, planner, _) = pair();
    assert_eq!(planner.complete(request(0)).await.unwrap().text, "planner");
    gate.unload().await;
    let moved = gate.backend("planner", Arc::new(Loader { room, name: "moved" }));
    assert_eq!(moved.complete(request(0)).await.unwrap().text, "moved");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_cannot_be_loaded_fails_its_turns_and_no_others() {
    let (room, _, planner, grounder) = pair();
    room.failing.store(1, Ordering::SeqCst);
    let (first, second, other) = tokio::join!(
        planner.complete(request(0)),
        planner.complete(request(0)),
        grounder.complete(request(0))
    );
    for failed in [first, second] {
        assert_eq!(failed, Err(ModelError::Failed("planner is damaged".to_owned())));
    }
    assert_eq!(other.unwrap().text, "grounder");
    // The model may have been repaired in the meantime, so loading is attempted again.
    planner.check().await.unwrap();
    assert_eq!(planner.complete(request(0)).await.unwrap().text, "planner");
}
