//! The same shop in memory and in browsers, and requests to both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_environments::shop::{Goal, GoalMode, Stock, draw};
use lumos_tasks::families::shop::{ShopReply, ShopRequest};
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Setup, Task, ToolCall,
    ToolReply, WorkUnit,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::browser::webdriver::tests::support::TestPool;
use crate::sessions::browser_shop::BrowserShop;
use crate::sessions::catalogue::ShopFiles;
use crate::sessions::shop::MemoryShop;
use crate::{ToolFault, Tools};

/// Both shops, and the goals of their catalogue.
pub(crate) struct Shops {
    memory: MemoryShop,
    browser: BrowserShop,
    pub(crate) goals: Vec<Goal>,
    pub(crate) pool: TestPool,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// An episode's session in each shop.
pub(crate) struct Pair {
    memory: Arc<dyn Tools>,
    browser: Arc<dyn Tools>,
}

pub(crate) fn unit(goal: &Goal) -> WorkUnit {
    let configuration = Configuration {
        benchmark: "webshop".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 10,
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b"prompts"),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let goal = serde_json::to_value(goal).unwrap();
    let item = ItemId { content: ContentHash::of_json(&goal), occurrence: 0 };
    let task = Task::Shop { instruction: "Buy it".to_owned(), exemplars: None };
    WorkUnit::new(item, task, Setup::Shop { goal }, Arc::new(configuration))
}

impl Shops {
    /// Opens the shops of a catalogue's folder, or of the built-in catalogue.
    pub(crate) fn open(folder: Option<&Path>, pool: TestPool, screenshots: Option<PathBuf>) -> Self {
        let files = ShopFiles { folder: folder.map(Path::to_owned), nouns: None };
        let stop = CancellationToken::new();
        let lent = pool.pool.clone();
        let (browser, serving) = BrowserShop::open(&files, lent, screenshots, stop.clone()).unwrap();
        let opened =
            |name: &str| std::io::BufReader::new(std::fs::File::open(folder.unwrap().join(name)).unwrap());
        let stock = match folder {
            None => Stock::sample(),
            Some(_) => {
                Stock::from_documents(opened("items_1000_documents.jsonl"), opened("items_ins_v2_1000.json"))
            }
        };
        let (_, goals) = draw(stock.unwrap().for_sale(), GoalMode::Synthetic);
        let memory = MemoryShop::open(&files).unwrap();
        Self { memory, browser, goals, pool, stop, serving: tokio::spawn(serving) }
    }

    pub(crate) async fn pair(&self, goal: &Goal) -> Pair {
        let unit = unit(goal);
        Pair {
            memory: self.memory.open(&unit).await.unwrap().unwrap(),
            browser: self.browser.open(&unit).await.unwrap().unwrap(),
        }
    }

    /// Opens a session only in memory.
    pub(crate) async fn in_memory(&self, goal: &Goal) -> Arc<dyn Tools> {
        self.memory.open(&unit(goal)).await.unwrap().unwrap()
    }

    /// Opens a session only in the browser.
    pub(crate) async fn session(&self, goal: &Goal) -> Arc<dyn Tools> {
        self.browser.open(&unit(goal)).await.unwrap().unwrap()
    }

    /// Ends everything and checks that no browser process is left.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let Self { browser, pool, serving, .. } = self;
        drop(browser);
        let left = tokio::task::spawn_blocking(|| pool.left()).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        tokio::time::timeout(std::time::Duration::from_secs(300), serving).await.unwrap().unwrap();
    }
}

impl Pair {
    /// Sends a request to both shops. Returns their reply, which must be the same.
    pub(crate) async fn ask(&self, request: ShopRequest) -> Result<ShopReply, String> {
        let call = ToolCall::Shop(request.clone());
        let expected = self.memory.call(&call).await.unwrap();
        let found = self.browser.call(&call).await.unwrap();
        assert_eq!(found, expected, "{request:?}");
        match expected {
            ToolReply::Shop(reply) => Ok(reply),
            ToolReply::Raised { message } => Err(message),
            other => panic!("{other:?}"),
        }
    }

    /// Performs one action.
    pub(crate) async fn act(&self, action: &str) -> Result<ShopReply, String> {
        self.ask(ShopRequest { reset: false, replay: Vec::new(), action: action.to_owned() }).await
    }

    pub(crate) async fn close(self) {
        self.memory.close().await;
        self.browser.close().await;
    }
}

pub(crate) async fn ask(session: &dyn Tools, action: &str) -> Result<ToolReply, ToolFault> {
    let request = ShopRequest { reset: false, replay: Vec::new(), action: action.to_owned() };
    session.call(&ToolCall::Shop(request)).await
}
