//! Replies that are not computed anew.
//!
//! [`RecordedTools`] answers from a file of recorded replies: `--tool maths=recorded:<cases file>`, also for `wiki` and
//! `rank`. [`Remembering`] deduplicates identical calls across a sweep: a call that is in progress is awaited, and
//! earlier replies are cached.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use lumos_environments::lines;
use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_models::hash_file;
use lumos_tasks::recorded::{self, CallKey, Case, RecordedCall};
use lumos_tasks::{ToolCall, ToolReply};
use serde::Serialize;
use tokio::sync::OnceCell;

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend, hash_suffix};
use super::{ToolFault, ToolOperation, Tools};

/// `recorded:<cases file>` for a tool; for every tool that is not built in if `tool` is `None`.
pub(super) const fn recorded(tool: Option<&'static str>) -> BackendDescription {
    BackendDescription {
        tool,
        forms: &["recorded:<cases file>"],
        parse: |_, backend| {
            let file = backend.strip_prefix("recorded:").map(PathBuf::from);
            Ok(file.map(|file| Box::new(RecordedFile(file)) as Box<dyn NamedBackend>))
        },
    }
}

/// A file of recorded replies.
struct RecordedFile(PathBuf);

impl NamedBackend for RecordedFile {
    fn version(&self) -> u32 {
        0
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        access.check_path(&self.0)
    }

    fn content(&self) -> Result<String, BackendError> {
        Ok(hash_file(&self.0).map(hash_suffix)?)
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(RecordedTools::read(&self.0)?))
    }
}

/// Approximate limit of the cache, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// Recorded replies by call, from a cases file. The first reply recorded for a call is used.
#[derive(Debug, Default)]
pub(crate) struct RecordedTools {
    calls: HashMap<CallKey, RecordedCall>,
}

impl RecordedTools {
    /// Reads a `.jsonl` or `.jsonl.gz` file.
    ///
    /// # Errors
    /// If the file cannot be read or a line is not a recorded case.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut tools = Self::default();
        for line in lines::open(path)? {
            let (number, line) = line?;
            let case: Case = serde_json::from_str(&line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
            })?;
            for call in case.tools {
                if let Some(key) = call.key() {
                    tools.calls.entry(key).or_insert(call);
                }
            }
        }
        Ok(tools)
    }
}

#[async_trait]
impl Tools for RecordedTools {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        recorded::answer(call, |key| self.calls.get(key))
            .map_err(|error| ToolFault { tool: call.tool().to_owned().into(), message: error.to_string() })
    }
}

/// A backend with a cache of replies. Faults are not cached: the call is repeated next time.
pub struct Remembering {
    tools: Arc<dyn Tools>,
    memory: Mutex<Memory>,
    most_bytes: usize,
}

#[derive(Default)]
struct Memory {
    replies: HashMap<ToolCall, Arc<OnceCell<ToolReply>>>,
    /// Calls with cached replies and their sizes, oldest first.
    order: VecDeque<(ToolCall, usize)>,
    bytes: usize,
}

impl Remembering {
    /// Adds an empty cache to a backend.
    pub fn new(tools: Arc<dyn Tools>) -> Self {
        Self { tools, memory: Mutex::default(), most_bytes: MOST_BYTES }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a reply and evicts the oldest ones if the cache is too large.
    fn keep(&self, call: &ToolCall, reply: &ToolReply) {
        let size = size_of(call) * 2 + size_of(reply);
        let mut memory = self.memory();
        memory.bytes += size;
        memory.order.push_back((call.clone(), size));
        while memory.bytes > self.most_bytes {
            let Some((oldest, size)) = memory.order.pop_front() else { break };
            memory.bytes -= size;
            memory.replies.remove(&oldest);
        }
    }
}

/// A call in progress. If it fails and no other caller waits for it, its entry is removed.
struct UnderWay<'a> {
    remembering: &'a Remembering,
    call: &'a ToolCall,
    cell: Arc<OnceCell<ToolReply>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.cell.initialized() {
            return;
        }
        let mut memory = self.remembering.memory();
        // One reference is in the cache, the other one is `self.cell`.
        let alone = Arc::strong_count(&self.cell) <= 2;
        if alone && memory.replies.get(self.call).is_some_and(|kept| Arc::ptr_eq(kept, &self.cell)) {
            memory.replies.remove(self.call);
        }
    }
}

#[async_trait]
impl Tools for Remembering {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let cell = Arc::clone(self.memory().replies.entry(call.clone()).or_default());
        let under_way = UnderWay { remembering: self, call, cell };
        let reply = under_way.cell.get_or_try_init(|| async {
            let reply = self.tools.call(call).await?;
            self.keep(call, &reply);
            Ok(reply)
        });
        reply.await.cloned()
    }

    async fn operations(&self) -> Result<Vec<ToolOperation>, ToolFault> {
        self.tools.operations().await
    }

    async fn shut_down(&self) {
        self.tools.shut_down().await;
    }
}

/// Estimated memory of an entry in addition to its texts.
const ENTRY: usize = 256;

/// Estimates the memory of a call or a reply.
fn size_of(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len()) + ENTRY
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use lumos_tasks::{ExternalReply, MathsReply};

    use super::*;

    /// Replies after 50 ms. The first call fails if its query is `fails`.
    #[derive(Default)]
    struct Slow {
        calls: AtomicU32,
    }

    #[async_trait]
    impl Tools for Slow {
        async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
            let before = self.calls.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            let ToolCall::Maths { query } = call else { panic!("{call:?}") };
            if query == "fails" && before == 0 {
                return Err(ToolFault { tool: "maths".into(), message: "not now".to_owned() });
            }
            Ok(ToolReply::Maths(MathsReply::One(query.clone())))
        }
    }

    fn maths(query: &str) -> ToolCall {
        ToolCall::Maths { query: query.to_owned() }
    }

    fn remembering() -> (Arc<Slow>, Remembering) {
        let slow = Arc::new(Slow::default());
        (Arc::clone(&slow), Remembering::new(slow))
    }

    #[tokio::test]
    async fn calls_of_other_tools_are_answered_from_a_recording() {
        let call = |city: &str| ToolCall::External {
            name: "weather".to_owned(),
            operation: "forecast".to_owned(),
            arguments: serde_json::json!({ "city": city }),
        };
        let reply = ToolReply::External(ExternalReply::Text("31".to_owned()));
        let case = serde_json::json!({
            "id": "1", "benchmark": "weather", "formulation": "onetime", "item": {}, "script": {}, "prompts": {},
            "tools": [RecordedCall::of(&call("Kyoto"), &reply)],
            "expected": recorded::Expected::default(),
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), case.to_string()).unwrap();
        let backend = format!("recorded:{}", file.path().display());
        let sets = crate::ToolSets::default();
        let tools = sets.backend(&sets.identify("weather", &backend).unwrap()).await.unwrap();
        assert_eq!(tools.call(&call("Kyoto")).await, Ok(reply));
        assert!(tools.call(&call("Oslo")).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn identical_calls_are_made_once() {
        let (slow, tools) = remembering();
        let calls = [maths("1"), maths("2"), maths("1")];
        for _ in 0..2 {
            let replies = join_all(calls.iter().map(|call| tools.call(call))).await;
            assert_eq!(replies[0], replies[2]);
            assert_ne!(replies[0], replies[1]);
        }
        assert_eq!(slow.calls.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_and_calls_that_are_broken_off_are_made_again() {
        let (slow, tools) = remembering();
        let call = maths("fails");
        // Of two concurrent callers, the second one repeats the call after the first has failed.
        let (first, second) = tokio::join!(tools.call(&call), tools.call(&call));
        assert!(first.is_err() && second.is_ok());
        let other = maths("slow");
        let limit = Duration::from_millis(10);
        assert!(tokio::time::timeout(limit, tools.call(&other)).await.is_err());
        assert_eq!(tools.memory().replies.len(), 1, "a cancelled call has no entry");
        assert!(tools.call(&other).await.is_ok());
        assert_eq!(slow.calls.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_replies_are_forgotten() {
        let (slow, mut tools) = remembering();
        tools.most_bytes = 4_000;
        for index in 0..20 {
            tools.call(&maths(&index.to_string())).await.unwrap();
        }
        let memory = tools.memory();
        assert!(memory.bytes <= 4_000 && memory.replies.len() == memory.order.len());
        assert!(!memory.replies.contains_key(&maths("0")) && memory.replies.contains_key(&maths("19")));
        assert_eq!(slow.calls.load(Ordering::SeqCst), 20);
    }
}
