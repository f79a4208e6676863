//! Measures the agent loop in items per second. Drives recorded episodes with a random model that is forced
//! to generate the recorded replies, so that the cost is that of a trained model of the same shape.
//!
//! `cargo bench --bench agent_loop -- --write cases.jsonl [--data gsm8k/test.jsonl] [--items 200]` creates
//! episodes from GSM8K's worked solutions. `cargo bench --bench agent_loop -- --cases cases.jsonl --tokenizer
//! tokenizer.json [--shape 110m] [--dtype f32]` measures these or any other recorded cases. Prints one JSON
//! object and asserts no figures. `benches/peers/loop.py` runs it alternately with the original's procedure.

mod rationale;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use clap::Parser;
use futures::{StreamExt, stream};
use lumos_benchmarks::replay::read_cases;
use lumos_benchmarks::{Benchmark, DataSource};
use lumos_engine::{
    DType, DraftUsage, Engine, GenerateRequest, LoadOptions, ModelSource, Prompt, RandomShape,
    SamplingParams, Speculation, StopCondition, Tokenizer,
};
use lumos_models::{ModelBackend, ModelError, ModelRegistry};
use lumos_tasks::{
    Behaviour, Completion, Configuration, Finish, Formulation, GenerationSettings, Item, Request, Role,
    WorkUnit,
};
use lumos_tools::ToolSets;
use lumos_worker::activity::EpisodeProgress;
use lumos_worker::{Backends, EpisodeLimits, drive};

use rationale::Rationales;

#[derive(Debug, Parser)]
struct Arguments {
    /// Recorded cases of one benchmark and formulation.
    #[arg(long)]
    cases: Option<PathBuf>,
    /// Write cases to this file and measure nothing.
    #[arg(long)]
    write: Option<PathBuf>,
    /// GSM8K's test.jsonl, for --write. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Number of items, for --write.
    #[arg(long, default_value_t = 200)]
    items: usize,
    /// tokenizer.json of the simulated model.
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// Shape of the planner and of the grounder, which are separate models.
    #[arg(long, default_value = "110m")]
    shape: RandomShape,
    /// Data type of the weights.
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// Maximum number of sequences per batch.
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Number of concurrent episodes.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Number of compute threads.
    #[arg(long)]
    threads: Option<usize>,
    /// Compute every prompt completely, without prefix reuse.
    #[arg(long)]
    no_reuse: bool,
    /// Verify drafts of the next tokens: off, lookup or auto.
    #[arg(long, default_value_t)]
    speculate: Speculation,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns recorded replies. For each, an engine performs the work of generating it.
struct Forced {
    script: Arc<dyn ModelBackend>,
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    newline: u32,
}

#[async_trait]
impl ModelBackend for Forced {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let failed = |error: lumos_engine::GenerateError| ModelError::Failed(error.to_string());
        let text = request.prompt().to_owned();
        let completion = self.script.complete(request).await?;
        let prompt = self.tokenizer.encode(&text).map_err(failed)?;
        // Tokenized together with the prompt, as a model trained on whole conversations generates it, so that
        // the next turn's prompt has the same tokens.
        let whole = self.tokenizer.encode(&format!("{text}{}", completion.text)).map_err(failed)?;
        let mut forced = match whole.strip_prefix(&prompt[..]) {
            Some(rest) => rest.to_vec(),
            None => self.tokenizer.encode(&completion.text).map_err(failed)?,
        };
        forced.push(self.newline);
        let request = GenerateRequest {
            input: Prompt::Tokens(prompt),
            stop: StopCondition::Tokens(vec![self.newline]),
            max_new_tokens: 512,
            sampling: SamplingParams::GREEDY,
            ignore_eos: true,
            first_logits: 0,
            forced,
            deadline: None,
        };
        let usage = self.engine.generate(request).await.map_err(failed)?.usage;
        let count = |tokens: usize| u32::try_from(tokens).ok();
        Ok(Completion {
            prompt_tokens: count(usage.prompt_tokens),
            completion_tokens: count(usage.completion_tokens),
            cached_tokens: count(usage.cached_tokens),
            finish: Finish::Stop,
            ..completion
        })
    }
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start");
    if let Some(path) = &arguments.write {
        runtime.block_on(write(&arguments, path));
        return;
    }
    let (Some(cases), Some(tokenizer)) = (&arguments.cases, &arguments.tokenizer) else {
        println!(
            "--cases and --tokenizer are required; see the module documentation in benches/agent_loop/main.rs"
        );
        return;
    };
    runtime.block_on(run(&arguments, cases, tokenizer));
}

async fn run(arguments: &Arguments, cases: &Path, tokenizer: &Path) {
    let bytes = std::fs::read(tokenizer).expect("failed to read the tokenizer");
    let tokenizer = Arc::new(Tokenizer::from_json(&bytes, tokenizer).expect("failed to parse the tokenizer"));
    let newline = tokenizer.newline().expect("the tokenizer has no newline token");
    let (benchmark, formulation, items) = items(cases);
    let tools = ToolSets::default();
    let configuration =
        configuration(benchmark, formulation, &tools, &format!("recorded:{}", cases.display()));
    let scripts = ModelRegistry::new(lumos_models::EngineSettings::default());
    let mut models: BTreeMap<Role, Arc<dyn ModelBackend>> = BTreeMap::new();
    let mut engines = Vec::new();
    for (seed, role) in [(1, Role::Planner), (2, Role::Grounder)] {
        let name = format!("script:{}", cases.display());
        let identity = scripts.identify(&name, role, formulation).expect("unknown script").identity;
        let script = scripts.get(&identity, role, &configuration).await.expect("failed to read the script");
        let options = LoadOptions {
            dtype: arguments.dtype,
            threads: arguments.threads,
            max_batch: arguments.batch_size,
            max_sequence_length: Some(2048),
            reuse_prefixes: !arguments.no_reuse,
            speculation: arguments.speculate,
            ..LoadOptions::default()
        };
        let source = ModelSource::Random { shape: arguments.shape, seed };
        let engine = Engine::load(source, options).expect("failed to load the random model");
        engines.push(engine.clone());
        models.insert(role, Arc::new(Forced { script, engine, tokenizer: Arc::clone(&tokenizer), newline }));
    }
    let backends = Backends { models, tools: tools.of(&configuration).await.expect("failed to open") };
    let configuration = Arc::new(configuration);
    let units: Vec<WorkUnit> = items
        .into_iter()
        .map(|item| WorkUnit::new(item.id, item.task, item.setup, Arc::clone(&configuration)))
        .collect();
    let count = units.len();
    let start = Instant::now();
    let outcomes: Vec<_> = stream::iter(&units)
        .map(|unit| async {
            drive(unit, &backends, EpisodeLimits::default(), &EpisodeProgress::default()).await
        })
        .buffer_unordered(arguments.concurrency)
        .collect()
        .await;
    let seconds = start.elapsed().as_secs_f64();
    let faults = outcomes.iter().filter(|(outcome, _)| outcome.is_fault()).count();
    let tokens = outcomes.iter().map(|(outcome, _)| outcome.tokens());
    let (read, written) = tokens.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let cached: u64 = outcomes.iter().map(|(_, telemetry)| telemetry.cached_tokens).sum();
    let steps: u64 = engines.iter().map(|engine| engine.statistics().steps).sum();
    let sum =
        |of: fn(DraftUsage) -> u64| engines.iter().map(|engine| of(engine.statistics().drafts)).sum::<u64>();
    let (drafted, accepted) = (sum(|drafts| drafts.drafted), sum(|drafts| drafts.accepted));
    println!(
        "{}",
        serde_json::json!({
            "drafted_tokens": drafted, "accepted_tokens": accepted,
            "items": count, "faults": faults, "seconds": seconds, "items_per_second": count as f64 / seconds,
            "prompt_tokens": read, "cached_tokens": cached, "written_tokens": written, "steps": steps,
        })
    );
}

fn configuration(
    benchmark: &dyn Benchmark,
    formulation: Formulation,
    tools: &ToolSets,
    maths: &str,
) -> Configuration {
    Configuration {
        benchmark: benchmark.name().to_owned(),
        formulation,
        behaviour: Behaviour::Paper,
        max_rounds: benchmark.max_rounds(Behaviour::Paper),
        models: BTreeMap::new(),
        tools: vec![tools.identify("maths", maths).expect("failed to identify the tool")],
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: benchmark.prompts_hash(),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    }
}

/// Writes episodes of worked solutions as recorded cases.
async fn write(arguments: &Arguments, path: &Path) {
    let benchmark = lumos_benchmarks::find("gsm8k").expect("unknown benchmark");
    let source = arguments.data.clone().map_or(DataSource::Samples, DataSource::File);
    let items = benchmark.open(source).expect("failed to read the items");
    let items = items.filter_map(Result::ok).take(arguments.items).collect();
    let (rationales, items) = Rationales::of(items);
    let rationales: Arc<dyn ModelBackend> = Arc::new(rationales);
    let tools = ToolSets::default();
    let configuration = Arc::new(configuration(benchmark, Formulation::Iterative, &tools, "native"));
    let models =
        [Role::Planner, Role::Grounder].map(|role| (role, Arc::clone(&rationales))).into_iter().collect();
    let backends = Backends { models, tools: tools.of(&configuration).await.expect("failed to open") };
    let mut file = std::fs::File::create(path).expect("failed to create the file");
    for item in items {
        let Item { id, task, setup, .. } = item.clone();
        let unit = WorkUnit::new(id, task, setup, Arc::clone(&configuration));
        let (outcome, _) =
            drive(&unit, &backends, EpisodeLimits::default(), &EpisodeProgress::default()).await;
        let case = lumos_benchmarks::replay::record(&item, &unit, &outcome).expect("the episode faulted");
        writeln!(file, "{}", serde_json::to_string(&case).expect("JSON")).expect("failed to write the case");
    }
}

/// Returns the benchmark, the formulation and the items of a file of cases, which must have the same
/// benchmark.
fn items(cases: &Path) -> (&'static dyn Benchmark, Formulation, Vec<Item>) {
    let mut lines = tempfile::NamedTempFile::new().expect("failed to create a temporary file");
    let mut kind = None;
    for case in read_cases(cases).expect("failed to read the cases") {
        let Ok(row) = case else { continue };
        let Some(case) = row.case() else { continue };
        assert!(kind.get_or_insert((case.benchmark.clone(), case.formulation)).0 == case.benchmark);
        writeln!(lines, "{}", case.item).expect("failed to write the item");
    }
    let (benchmark, formulation) = kind.expect("the file contains no cases");
    let benchmark = lumos_benchmarks::find(&benchmark).expect("unknown benchmark");
    let items = benchmark.open(DataSource::File(lines.path().to_owned())).expect("failed to read the items");
    (benchmark, formulation, items.map(|item| item.expect("failed to read an item")).collect())
}
