//! Resolves flags, environment and files into one specification.
//!
//! [`resolve`] merges the layers of `lumos run`. The other functions return the model, engine, device and
//! concurrency settings of commands without a specification.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lumos_benchmarks::task_file::{TaskFamily, TaskFile};
use lumos_benchmarks::{Benchmark, Scoring};
use lumos_coordinator::spec::{
    BatchSize, FailOnError, GenerationSpec, LimitsSpec, ModelSet, Partition, Preset, ResolvedSpec,
    RulePlaces, RunSpec, expand_names, parse_samples, read_task_file,
};
use lumos_engine::{DType, ModelSource, Speculation};
use lumos_http::AccessPolicy;
use lumos_models::ModelName;
use lumos_models::hub::Hub;
use lumos_models::{
    BuiltinDomain, EngineSettings, ModelsSettings, builtin_source, check_prompt_template, locate,
};
use lumos_tasks::{
    BackendChoice, Behaviour, Configuration, Device, Formulation, Placement, PromptFormat, PromptTemplate,
    Role,
};
use lumos_tools::browser::BrowserName;
use lumos_tools::sessions::catalogue::ShopFiles;

use crate::cli::{EngineArgs, FleetArgs, ModelArgs, RunArgs, Switch};
use crate::exit::Failure;

/// Finds a benchmark by name.
pub(crate) fn benchmark(name: &str) -> Result<&'static dyn Benchmark, Failure> {
    lumos_benchmarks::get(name).map_err(Failure::usage)
}

/// Resolves the settings of the file, if there is one, with the flags (which include the environment) on top.
pub(crate) fn resolve(arguments: &RunArgs) -> Result<ResolvedSpec, Failure> {
    let mut file = match arguments.settings_file() {
        Some(path) => RunSpec::from_file(path).map_err(Failure::usage)?,
        None => RunSpec::default(),
    };
    let (tasks, mut files) = task_files(&arguments.selection.tasks)?;
    if tasks.is_empty() {
        (file, files) = with_task_files(file)?;
    }
    let selected: &[String] =
        if tasks.is_empty() { file.tasks.as_deref().unwrap_or_default() } else { &tasks };
    let mut over = flags(arguments, &tasks, selected)?;
    if let Some(name) = over.browser.as_ref().or(file.browser.as_ref()) {
        over.browser = Some(parse::<BrowserName>(name)?.to_string());
    }
    let mut spec = with_model_names(file.merge(over));
    // Of the merged layers: the file may set the shop's backend, data and browser.
    let nouns = arguments.models.pos_nouns.as_deref();
    spec.tools = with_nouns(spec.tools, nouns, spec.data.as_deref(), spec.browser.as_deref())?;
    let spec = spec.resolve_with(&files).map_err(Failure::usage)?;
    check_preset_data(&spec)?;
    Ok(spec)
}

/// Replaces the paths of task files in a specification by the names of their benchmarks, and returns the files.
pub(crate) fn with_task_files(mut spec: RunSpec) -> Result<(RunSpec, Vec<TaskFile>), Failure> {
    let Some(words) = spec.tasks else { return Ok((spec, Vec::new())) };
    let (names, files) = task_files(&words)?;
    spec.tasks = Some(names);
    Ok((spec, files))
}

/// Replaces the paths of task files, and of folders of them, by the names of their benchmarks, and returns the files.
fn task_files(words: &[String]) -> Result<(Vec<String>, Vec<TaskFile>), Failure> {
    let (mut names, mut files) = (Vec::new(), Vec::<TaskFile>::new());
    let words = words.iter().flat_map(|word| word.split(',')).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let path = Path::new(word);
        let is_name = lumos_benchmarks::find(word).is_some() || word == "all";
        let is_path = word.contains(['/', '\\']) || word.ends_with(TASK_FILE) || path.is_dir();
        if is_name || !is_path {
            names.push(word.to_owned());
            continue;
        }
        let paths = if path.is_dir() { task_files_in(path)? } else { vec![path.to_owned()] };
        for path in paths {
            let file = task_file(&path)?;
            let name = &file.definition.name;
            match files.iter().find(|other| other.definition.name == *name) {
                Some(other) if other.path != path => {
                    let (one, two) = (other.path.display(), path.display());
                    return Err(Failure::input(format!("{one} and {two} have the same name `{name}`"))
                        .hint("change `name` in one of them"));
                }
                Some(_) => {}
                None => {
                    names.push(name.clone());
                    files.push(file);
                }
            }
        }
    }
    Ok((names, files))
}

/// Reads a task file.
pub(crate) fn task_file(path: &Path) -> Result<TaskFile, Failure> {
    read_task_file(path).map_err(|error| {
        Failure::usage(error).hint("write an example with `lumos init task DIR`; see docs/guide/own-data.md")
    })
}

/// Ending of the names of task files.
const TASK_FILE: &str = ".toml";

/// Returns the task files in a folder, by name.
fn task_files_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::input(format!("{}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.to_string_lossy().ends_with(TASK_FILE) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Failure::input(format!("no task files (*.toml) in folder `{}`", folder.display()))
            .hint("write an example with `lumos init task DIR`"));
    }
    Ok(paths)
}

/// Returns a model's name as stored in a manifest: adds the backend to an existing folder or GGUF file.
pub(crate) fn model_name(given: String) -> String {
    ModelName::of_path(given.trim()).map_or(given, |name| name.to_string())
}

/// Applies [`model_name`] to all models of a specification.
pub(crate) fn with_model_names(mut spec: RunSpec) -> RunSpec {
    spec.models = spec.models.map(|sets| sets.into_iter().map(|set| set.map_names(model_name)).collect());
    spec
}

/// The paper preset needs the published items, which the built-in samples are not.
fn check_preset_data(spec: &ResolvedSpec) -> Result<(), Failure> {
    if spec.preset != Some(Preset::Paper) || spec.data.is_some() {
        return Ok(());
    }
    let tasks = spec.tasks.iter().map(|task| benchmark(task)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<_> = tasks.iter().map(|task| task.data_file()).collect();
    let (fetched, by_hand): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| !task.downloads().is_empty());
    let names =
        |tasks: &[&&dyn Benchmark]| tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(" ");
    let mut hint = Vec::new();
    if !fetched.is_empty() {
        hint.push(format!("download it with `lumos fetch {} --data data`", names(&fetched)));
    }
    if !by_hand.is_empty() {
        hint.push(format!("see docs/ for how to get the data of {}", names(&by_hand)));
    }
    Err(Failure::input(format!(
        "--preset paper needs the published data, but --data is not set: missing {}",
        files.join(", ")
    ))
    .hint(format!("{}; then add `--data data` to this command", hint.join("; "))))
}

/// Returns the layer of the flags. `selected` are the benchmarks of the run, which may be those of the settings file.
fn flags(arguments: &RunArgs, tasks: &[String], selected: &[String]) -> Result<RunSpec, Failure> {
    let RunArgs { selection, models, output, engine, backend, memory, limits, .. } = arguments;
    Ok(RunSpec {
        name: output.name.clone(),
        preset: selection.preset.as_deref().map(parse::<Preset>).transpose()?,
        tasks: given(tasks),
        formulation: list::<Formulation>(&selection.formulation)?,
        behaviour: list::<Behaviour>(&selection.behaviour)?,
        scoring: list::<Scoring>(&selection.scoring)?,
        models: model_set(models),
        seed: match selection.epochs {
            Some(epochs) => Some((0..epochs).collect()),
            None => given(&selection.seed),
        },
        limit: selection.limit,
        samples: samples(&selection.samples, &named(selected))?,
        partition: selection.partition.as_deref().map(parse::<Partition>).transpose()?,
        data: selection.data.clone(),
        output_path: output.output_path.clone(),
        generation: GenerationSpec {
            temperature: models.temperature,
            top_p: models.top_p,
            top_k: models.top_k,
            max_new_tokens: models.max_new_tokens,
        },
        tools: tools(&models.tools)?,
        batch_size: engine.batch_size.as_deref().map(parse::<BatchSize>).transpose()?,
        device: engine.device.as_deref().map(parse::<Placement>).transpose()?,
        memory: memory.memory,
        swap: memory.swap,
        concurrency: memory.concurrency,
        dtype: engine.dtype.clone(),
        backend: backend.backend,
        limits: LimitsSpec {
            time_limit: limits.time_limit,
            fail_on_error: limits.fail_on_error.as_deref().map(parse::<FailOnError>).transpose()?,
            retry_on_error: limits.retry_on_error,
        },
        skip_invalid: selection.skip_invalid.then_some(true),
        exemplars: models.exemplars.clone(),
        browser: models.browser.clone(),
        prompt_template: models.prompt_template.clone(),
        exemplars_per_prompt: models.exemplars_per_prompt,
        // Rules are in files only.
        exclude: None,
        overrides: None,
        order: None,
        places: RulePlaces::default(),
    })
}

/// Returns how a run's conversations reach its models. Reads the template if it is a file.
pub(crate) fn prompt_format(spec: &ResolvedSpec) -> Result<PromptFormat, Failure> {
    let exemplars = spec.exemplars_per_prompt;
    let template = match spec.prompt_template.as_deref() {
        None => PromptTemplate::default(),
        Some(name) => match PromptTemplate::named(name) {
            Some(template) => template,
            None => PromptTemplate::File(template_file(Path::new(name))?.into()),
        },
    };
    Ok(PromptFormat { template, exemplars })
}

/// Reads and checks a template file.
fn template_file(path: &Path) -> Result<String, Failure> {
    let failed = |why: String| {
        let hint = format!("pass {}, or the path of a Jinja template", PromptTemplate::NAMES.join(", "));
        Failure::input(format!("invalid prompt template `{}`: {why}", path.display())).hint(hint)
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let most = PromptTemplate::MOST_BYTES;
    file.take(most as u64 + 1).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() > most {
        return Err(failed(format!("more than {most} bytes")));
    }
    let text = String::from_utf8(text).map_err(|error| failed(error.to_string()))?;
    check_prompt_template(&text).map_err(failed)?;
    Ok(text)
}

/// Expands a list of benchmarks; see [`expand_names`].
pub(crate) fn named(words: &[String]) -> Vec<String> {
    let known: Vec<&str> = lumos_benchmarks::all().iter().map(|benchmark| benchmark.name()).collect();
    expand_names(words.iter().map(String::as_str), &known)
}

/// Converts a flag's value in seconds.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        Failure::input(format!("invalid value `{value}` for {flag}: expected a number of seconds"))
    })
}

/// Returns `None` for a flag that was not given.
fn given<T: Clone>(values: &[T]) -> Option<Vec<T>> {
    (!values.is_empty()).then(|| values.to_vec())
}

fn parse<T: FromStr<Err: std::fmt::Display>>(word: &str) -> Result<T, Failure> {
    word.trim().parse().map_err(Failure::input)
}

fn list<T: FromStr<Err: std::fmt::Display>>(words: &[String]) -> Result<Option<Vec<T>>, Failure> {
    given(words).map(|words| words.iter().map(|word| parse(word)).collect()).transpose()
}

fn model_set(models: &ModelArgs) -> Option<Vec<ModelSet>> {
    let set = ModelSet {
        model: models.model.clone(),
        planner: models.planner.clone(),
        grounder: models.grounder.clone(),
        answerer: models.answerer.clone(),
        qa: models.qa.clone(),
    };
    (set != ModelSet::default()).then(|| vec![set])
}

/// Parses scorings by name. An empty list means the run's own scorings.
pub(crate) fn scorings(words: &[String]) -> Result<Vec<Scoring>, Failure> {
    Ok(list::<Scoring>(words)?.unwrap_or_default())
}

/// Parses `--samples`: `0-9,15` applies to the only benchmark of the run, `gsm8k=0-9` to the named one.
fn samples(
    given: &[String],
    tasks: &[String],
) -> Result<Option<BTreeMap<String, lumos_coordinator::spec::Selection>>, Failure> {
    let mut all = BTreeMap::new();
    for text in given {
        let text = match (text.contains('='), tasks) {
            (true, _) => text.clone(),
            (false, [task]) => format!("{task}={text}"),
            (false, _) => {
                return Err(Failure::input(format!(
                    "invalid value `{text}` for --samples: missing the benchmark"
                ))
                .hint(format!("with several benchmarks, pass --samples gsm8k={text}")));
            }
        };
        all.extend(parse_samples(&text).map_err(Failure::input)?);
    }
    Ok((!all.is_empty()).then_some(all))
}

fn tools(given: &[String]) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let mut tools = BTreeMap::new();
    for text in given {
        let (tool, backend) = text.split_once('=').ok_or_else(|| {
            Failure::input(format!("invalid value `{text}` for --tool: expected NAME=BACKEND"))
                .hint("for example --tool maths=native")
        })?;
        tools.insert(tool.to_owned(), backend.to_owned());
    }
    Ok((!tools.is_empty()).then_some(tools))
}

/// Adds a file of nouns to the shop's backend, if one is specified.
fn with_nouns(
    tools: Option<BTreeMap<String, String>>,
    nouns: Option<&Path>,
    data: Option<&Path>,
    browser: Option<&str>,
) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let Some(nouns) = nouns else { return Ok(tools) };
    let mut tools = tools.unwrap_or_default();
    let shop = tools.remove("shop").map_or_else(|| usual_shop(data, browser), Ok)?;
    // The nouns of the backend are replaced.
    let shop = shop.split(",nouns=").next().unwrap_or_default();
    tools.insert("shop".to_owned(), ShopFiles::with_nouns(shop, nouns));
    Ok(Some(tools))
}

/// Returns the shop's default backend: the catalogue from which the goals were created, in the browser if one
/// is specified.
pub(crate) fn usual_shop(data: Option<&Path>, browser: Option<&str>) -> Result<String, Failure> {
    let files = ShopFiles { folder: data.map(|folder| folder.join("webshop")), nouns: None };
    Ok(match browser {
        Some(browser) => files.backend_in(&parse::<BrowserName>(browser)?),
        None => files.backend(),
    })
}

/// Returns the devices of the models from the flags.
///
/// # Errors
/// If a device is invalid, or unsupported by this build with the backend.
pub(crate) fn placement(arguments: &EngineArgs, backend: BackendChoice) -> Result<Placement, Failure> {
    let placement = arguments.device.as_deref().map(parse::<Placement>).transpose()?.unwrap_or_default();
    check_devices(&placement, backend)?;
    Ok(placement)
}

/// Returns the engine settings from the flags (`complete`, `serve-model`, `worker`).
pub(crate) fn engine(arguments: &EngineArgs, device: Device) -> Result<EngineSettings, Failure> {
    engine_settings(batch_size(arguments)?, device, arguments.dtype.as_deref(), arguments)
}

/// Where the models of a run are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Computes {
    /// In this process, which needs the devices.
    Here,
    /// By the workers of a queue.
    OnWorkers,
}

impl Computes {
    /// Where a run with these options is computed.
    pub(crate) fn of(fleet: &FleetArgs) -> Self {
        if fleet.queue.url().is_some() { Self::OnWorkers } else { Self::Here }
    }
}

/// Returns the settings of a run's models from its specification, and from those flags that do not affect
/// results.
pub(crate) fn models_of(
    spec: &ResolvedSpec,
    arguments: &EngineArgs,
    computes: Computes,
) -> Result<ModelsSettings, Failure> {
    if computes == Computes::Here {
        check_devices(&spec.device, spec.backend)?;
    }
    let dtype = |role| spec.dtype_on(spec.device.of(role)).map(parse::<DType>).transpose();
    let mut dtypes = BTreeMap::new();
    for role in Role::ALL {
        dtypes.insert(role, dtype(role)?.unwrap_or_default());
    }
    let device = spec.device.of(Role::Planner);
    let engine = engine_settings(spec.batch_size, device, spec.dtype_on(device), arguments)?;
    let engine = EngineSettings { backend: spec.backend, ..engine };
    Ok(ModelsSettings { placement: spec.device.clone(), dtypes, ..ModelsSettings::from(engine) })
}

/// Returns an error for devices that do not exist, or that this build does not support with the backend.
fn check_devices(placement: &Placement, backend: BackendChoice) -> Result<(), Failure> {
    let asked = || placement.devices().into_iter().filter(|device| matches!(device, Device::Cuda(_)));
    let Some(first) = asked().next() else { return Ok(()) };
    let missing = |device: &dyn Display, why: String| {
        Failure::input(format!("device `{device}` not found: {why}"))
            .hint("pass --device cpu, or omit --device; `lumos doctor` lists the GPUs")
    };
    if backend == BackendChoice::CandleTransformers && !cfg!(feature = "candle-cuda") {
        let why = "--backend candle-transformers needs the feature `candle-cuda` for GPUs, which this build does not include";
        return Err(missing(&first, why.to_owned()));
    }
    let gpus = lumos_engine::gpus().map_err(|why| missing(&first, why.to_string()))?;
    let there = |device: &Device| gpus.iter().any(|gpu| gpu.name.to_string() == device.to_string());
    match asked().find(|device| !there(device)) {
        None => Ok(()),
        Some(device) => Err(missing(&device, format!("this machine has {} GPUs", gpus.len()))),
    }
}

fn engine_settings(
    batch_size: BatchSize,
    device: Device,
    dtype: Option<&str>,
    arguments: &EngineArgs,
) -> Result<EngineSettings, Failure> {
    Ok(EngineSettings {
        batch_size: fixed(batch_size),
        threads: arguments.speed.threads,
        dtype: dtype.map(parse::<DType>).transpose()?.unwrap_or_default(),
        backend: BackendChoice::Auto,
        max_sequence_length: None,
        reuse_prefixes: arguments.speed.prefix_cache != Some(Switch::Off),
        speculation: arguments.speed.speculate.unwrap_or(Speculation::Auto),
        device,
        memory: None,
    })
}

/// Concurrency with batch size `auto`: enough to keep every sequence of a batch busy while other episodes
/// wait for tools.
const AUTO_CONCURRENCY: usize = 64;

/// Concurrency with batch size `auto` if GPUs compute: their batches have up to this many sequences.
const GPU_CONCURRENCY: usize = 256;

/// Returns the concurrency from the flags (`worker`).
pub(crate) fn concurrency_of(arguments: &EngineArgs, placement: &Placement) -> Result<usize, Failure> {
    let roles = [Role::Planner, Role::Grounder];
    let on_gpus = roles.iter().all(|role| matches!(placement.of(*role), Device::Cuda(_)));
    let automatic = if on_gpus { GPU_CONCURRENCY } else { AUTO_CONCURRENCY };
    Ok(fixed(batch_size(arguments)?).unwrap_or(automatic))
}

fn batch_size(arguments: &EngineArgs) -> Result<BatchSize, Failure> {
    Ok(arguments.batch_size.as_deref().map(parse::<BatchSize>).transpose()?.unwrap_or_default())
}

/// Returns the number of sequences computed together; `None` for as many as fit.
pub(crate) fn fixed(batch_size: BatchSize) -> Option<usize> {
    match batch_size {
        BatchSize::Auto => None,
        BatchSize::Fixed(size) => usize::try_from(size).ok(),
    }
}

/// Concurrency if models take turns: more waiting requests make longer phases and fewer loads.
const PHASE_CONCURRENCY: usize = 256;

/// Concurrency per core on the CPU: with AVX2, two cores generate a third more tokens per second for 32 sequences than for
/// 16, but few more for 64, and after an interrupt 32 episodes end sooner.
const PER_CORE: usize = 16;

/// Returns the default concurrency.
fn auto_concurrency(spec: &ResolvedSpec, cores: usize) -> usize {
    let device = |(role, name): (&Role, &String)| {
        let elsewhere =
            ["openai:", Configuration::CHAT, "script:"].iter().any(|backend| name.starts_with(backend));
        (!elsewhere).then(|| spec.device.of(*role))
    };
    let devices = || spec.models.iter().flatten().filter_map(device);
    if devices().any(|device| device == Device::Cpu) {
        (cores * PER_CORE).min(AUTO_CONCURRENCY)
    } else if devices().any(|device| matches!(device, Device::Cuda(_))) {
        GPU_CONCURRENCY
    } else {
        AUTO_CONCURRENCY
    }
}

/// Returns the concurrency, depending on whether models take turns in memory.
pub(crate) fn concurrency(spec: &ResolvedSpec, in_phases: bool) -> usize {
    let asked = spec.concurrency.and_then(|concurrency| usize::try_from(concurrency).ok());
    match (asked, fixed(spec.batch_size)) {
        (Some(concurrency), _) => concurrency,
        (None, size) if in_phases => size.unwrap_or(0).max(PHASE_CONCURRENCY),
        (None, Some(size)) => size,
        (None, None) => {
            auto_concurrency(spec, std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        }
    }
}

/// Returns the domain of the built-in pair that fits a benchmark. No pair was trained for the agents of task files; they get the pair
/// for mathematics.
pub(crate) fn builtin_domain(benchmark: &dyn Benchmark) -> BuiltinDomain {
    match benchmark.family() {
        TaskFamily::Qa => BuiltinDomain::Qa,
        TaskFamily::Sql => BuiltinDomain::Sql,
        TaskFamily::Shop | TaskFamily::Web => BuiltinDomain::Web,
        TaskFamily::Maths | TaskFamily::Custom => BuiltinDomain::Maths,
    }
}

/// Returns the source of a model that is computed in this process, for a role.
pub(crate) fn model_source(name: &str, role: Role, formulation: Formulation) -> Result<ModelSource, Failure> {
    let parsed = ModelName::given(name).map_err(Failure::usage)?;
    match parsed {
        ModelName::Candle(path) => located(&path),
        ModelName::Lumos(pair) => {
            let model = pair.resolve(role, formulation).map_err(Failure::input)?;
            located(Path::new(&model.to_string()))
        }
        ModelName::BuiltinTiny => builtin_source(BuiltinDomain::Maths, role, formulation)
            .ok_or_else(|| Failure::input(format!("builtin:tiny has no {role} for {formulation}"))),
        ModelName::OpenAi(_) => Err(Failure::input(format!(
            "unsupported model `{name}`: this command computes models in this process; pass candle:<folder> or \
             builtin:tiny"
        ))),
        ModelName::Added(_) => Err(Failure::input(format!(
            "unsupported model `{name}`: this command computes models of the engine; pass candle:<folder> or builtin:tiny"
        ))),
        ModelName::Script(_) => Err(Failure::input(format!(
            "unsupported model `{name}`: a script cannot generate; pass candle:<folder> or builtin:tiny"
        ))),
    }
}

/// Locates a local model or the hub's model of that name. Blocks during a download.
fn located(path: &Path) -> Result<ModelSource, Failure> {
    locate(path, &Hub::default(), false, &AccessPolicy::default())
        .map(|located| located.source)
        .map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(set: ModelSet, device: Device) -> ResolvedSpec {
        let spec = RunSpec {
            tasks: Some(vec!["gsm8k".to_owned()]),
            models: Some(vec![set]),
            device: Some(Placement::on(device)),
            ..RunSpec::default()
        };
        spec.resolve().unwrap()
    }

    #[test]
    fn as_many_episodes_at_once_as_the_models_can_use() {
        let tiny = spec(ModelSet::of("builtin:tiny"), Device::Cpu);
        assert_eq!(
            [1, 2, 4, 64].map(|cores| auto_concurrency(&tiny, cores)),
            [16, 32, AUTO_CONCURRENCY, AUTO_CONCURRENCY]
        );
        let remote = spec(ModelSet::of("openai:tiny@http://host/v1"), Device::Cpu);
        assert_eq!(auto_concurrency(&remote, 2), AUTO_CONCURRENCY);
        let one = ModelSet { planner: Some("candle:models/plan".to_owned()), ..ModelSet::of("script:cases") };
        assert_eq!(auto_concurrency(&spec(one.clone(), Device::Cpu), 2), 32);
        assert_eq!(auto_concurrency(&spec(one, Device::Cuda(0)), 2), GPU_CONCURRENCY);
        let asked = ResolvedSpec { concurrency: Some(5), ..tiny.clone() };
        assert_eq!((concurrency(&asked, false), concurrency(&tiny, true)), (5, PHASE_CONCURRENCY));
    }

    #[test]
    fn flags_are_completed_by_the_settings_file() {
        use clap::Parser;
        use lumos_coordinator::spec::ItemChoice;

        use crate::cli::{Cli, Command};

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let tools = |text: &str, flags: &[&str]| {
            std::fs::write(&file, format!("tasks = 'webshop'\nmodel = 'builtin:tiny'\n{text}")).unwrap();
            let words = ["lumos", "run", file.to_str().unwrap(), "--samples", "3-4"];
            let cli = Cli::try_parse_from(words.iter().chain(flags).copied()).unwrap();
            let Command::Run(arguments) = cli.command else { panic!("another command") };
            let spec = resolve(&arguments).unwrap();
            let chosen = ItemChoice::Chosen("3-4".parse().unwrap());
            assert_eq!(spec.items, BTreeMap::from([("webshop".to_owned(), chosen)]));
            spec.tools
        };
        let shop = |backend: &str| BTreeMap::from([("shop".to_owned(), backend.to_owned())]);
        let nouns = ["--pos-nouns", "n.jsonl"];
        assert_eq!(tools("", &nouns), shop("memory,nouns=n.jsonl"));
        assert_eq!(tools("data = 'data'", &nouns), shop("memory:data/webshop,nouns=n.jsonl"));
        assert_eq!(tools("tools.shop = 'memory:own'", &nouns), shop("memory:own,nouns=n.jsonl"));
        assert_eq!(
            tools("tools.shop = 'memory:own,nouns=o.jsonl'", &nouns),
            shop("memory:own,nouns=n.jsonl")
        );
        let flag = ["--pos-nouns", "n.jsonl", "--tool", "shop=memory:flag"];
        assert_eq!(tools("tools.shop = 'memory:own'", &flag), shop("memory:flag,nouns=n.jsonl"));
        assert_eq!(tools("tools.shop = 'memory:own'", &[]), shop("memory:own"));
    }

    #[test]
    fn workers_on_gpus_keep_their_batches_full() {
        let concurrency = |placement: &str, batch_size: Option<&str>| {
            let batch_size = batch_size.map(str::to_owned);
            let arguments = EngineArgs { batch_size, ..EngineArgs::default() };
            concurrency_of(&arguments, &placement.parse().unwrap()).unwrap_or_default()
        };
        assert_eq!(["cuda:0", "planner=cuda:0,grounder=cuda:1"].map(|on| concurrency(on, None)), [256; 2]);
        assert_eq!(["cpu", "planner=cuda:0"].map(|on| concurrency(on, None)), [64; 2]);
        assert_eq!((concurrency("cuda:0", Some("5")), concurrency("cuda:0", Some("auto"))), (5, 256));
    }

    #[test]
    fn the_paper_preset_names_the_data_and_how_to_get_it() {
        let tasks = ["gsm8k", "svamp", "webshop"].map(str::to_owned).to_vec();
        let paper = |data: Option<&str>| {
            let spec = RunSpec {
                preset: Some(Preset::Paper),
                tasks: Some(tasks.clone()),
                models: Some(vec![ModelSet::of("builtin:tiny")]),
                data: data.map(Into::into),
                ..RunSpec::default()
            };
            check_preset_data(&spec.resolve().unwrap())
        };
        let failure = paper(None).unwrap_err();
        let message = failure.error.to_string();
        assert!(message.contains("missing gsm8k/test.jsonl, svamp/test.json, webshop/"), "{message}");
        let hint = failure.hint.unwrap();
        assert!(hint.starts_with("download it with `lumos fetch gsm8k svamp --data data`"), "{hint}");
        assert!(hint.contains("webshop") && hint.contains("add `--data data`"), "{hint}");
        assert!(paper(Some("data")).is_ok());
    }
}
