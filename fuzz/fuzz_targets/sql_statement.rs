//! Statements of a model on SQLite, as a worker carries them out: behind the guard, within its limits.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use lumos_benchmarks::{DataSource, find, replay};
use lumos_tasks::{EpisodeUnit, Formulation, ToolCall};
use lumos_worker::Tools;
use lumos_worker::sessions::sql::{SqlTool, SqliteFolder};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(2).build().expect("a runtime")
});
static TOOL: LazyLock<SqlTool> = LazyLock::new(|| {
    let samples = SqliteFolder::open(None).expect("the samples");
    // A worker's statements may take 20 s.
    SqlTool::sqlite(samples.with_longest(Duration::from_millis(500)))
});
static UNIT: LazyLock<EpisodeUnit> = LazyLock::new(|| {
    let benchmark = find("intercode_sql").expect("a known benchmark");
    let item =
        benchmark.open(DataSource::Samples).expect("samples").next().expect("a sample").expect("a sample");
    let configuration = replay::configuration(benchmark, Formulation::TryAgain, Vec::new());
    EpisodeUnit::new(item.id, item.task, item.setup, Arc::new(configuration))
});

fuzz_target!(|text: &str| {
    RUNTIME.block_on(async {
        let session = TOOL.open(&UNIT).await.expect("a session").expect("a session");
        for statement in text.split('\u{1}').take(4) {
            let _ = session.call(&ToolCall::Sql { statement: statement.to_owned() }).await;
        }
        let _ = session.call(&ToolCall::SqlSubmit).await;
        session.close().await;
    });
});
