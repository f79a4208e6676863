//! Executes a model's statements on SQLite like a worker, with the guard and its limits.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use lumos_benchmarks::{DataSource, find, replay};
use lumos_tasks::{Formulation, ToolCall, WorkUnit};
use lumos_tools::Tools;
use lumos_tools::sessions::sql::SqlTool;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(2).build().expect("failed to start the runtime")
});
static TOOL: LazyLock<SqlTool> = LazyLock::new(|| {
    // The default limit of a worker is 20 s.
    SqlTool::sqlite(None, Some(Duration::from_millis(500))).expect("failed to open the samples")
});
static UNIT: LazyLock<WorkUnit> = LazyLock::new(|| {
    let benchmark = find("intercode_sql").expect("unknown benchmark");
    let item =
        benchmark.open(DataSource::Samples).expect("samples").next().expect("a sample").expect("a sample");
    let configuration = replay::configuration(benchmark, Formulation::TryAgain, Vec::new());
    WorkUnit::new(item.id, item.task, item.setup, Arc::new(configuration))
});

fuzz_target!(|text: &str| {
    RUNTIME.block_on(async {
        let session = TOOL.open(&UNIT).await.expect("failed to open").expect("no session");
        for statement in text.split('\u{1}').take(4) {
            let _ = session.call(&ToolCall::Sql { statement: statement.to_owned() }).await;
        }
        let _ = session.call(&ToolCall::SqlSubmit).await;
        session.close().await;
    });
});
