//! How models are computed: devices, settings of the engine, concurrency and the sources of local models.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use lumos_benchmarks::Benchmark;
use lumos_benchmarks::task_file::TaskFamily;
use lumos_coordinator::spec::{BatchSize, ResolvedSpec};
use lumos_engine::{DType, ModelSource, Speculation};
use lumos_http::AccessPolicy;
use lumos_models::hub::Hub;
use lumos_models::{BuiltinDomain, EngineSettings, ModelName, ModelsSettings, builtin_source, locate};
use lumos_tasks::{BackendChoice, Configuration, Device, Formulation, Placement, Role};

use super::parse;
use crate::cli::{EngineArgs, FleetArgs, Switch};
use crate::exit::Failure;

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
    use lumos_coordinator::spec::{ModelSet, RunSpec};

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
}
