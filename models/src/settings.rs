//! Settings for finding and loading a worker's models, and for loading the engines among them.

use std::collections::BTreeMap;
use std::time::Duration;

use lumos_engine::{DType, DeviceName, LoadOptions, MemoryBudget, Speculation};
use lumos_http::AccessPolicy;
use lumos_tasks::{BackendChoice, Device, Placement, Role};

use crate::hub::HubSettings;
use crate::openai::OpenAiSettings;

/// Settings for finding and loading models. Only the engine's precision is part of a model's identity.
#[derive(Debug, Clone, Default)]
pub struct ModelsSettings {
    /// How engines are loaded.
    pub engine: EngineSettings,
    /// Device of each role's models.
    pub placement: Placement,
    /// Data type of the weights by role, if it differs from the engine's.
    pub dtypes: BTreeMap<Role, DType>,
    /// Settings of model servers; from the environment if `None`.
    pub openai: Option<OpenAiSettings>,
    /// Settings of the hub; from the environment if `None`.
    pub hub: Option<HubSettings>,
    /// Whether hub models are only accepted at a commit, as in planned runs, so that a missing local folder
    /// on a worker's host is not looked up on the hub.
    pub pinned_only: bool,
    /// Duration of each recorded reply. Simulates slow models in rehearsals of a fleet.
    pub script_latency: Option<Duration>,
    /// Names that differ on this host, from the name a run was planned with to the local name.
    pub names: BTreeMap<String, String>,
    /// Which files and servers models may be loaded from, except those in [`ModelsSettings::names`].
    pub access: AccessPolicy,
}

impl From<EngineSettings> for ModelsSettings {
    fn from(engine: EngineSettings) -> Self {
        Self { placement: Placement::on(engine.device), engine, ..Self::default() }
    }
}

impl ModelsSettings {
    /// Returns the settings for loading the engine of a role.
    pub(super) fn engine_of(&self, role: Role) -> EngineSettings {
        let dtype = self.dtypes.get(&role).copied().unwrap_or(self.engine.dtype);
        EngineSettings { dtype, device: self.placement.of(role), ..self.engine }
    }

    /// Returns the name on this host for a planned name.
    pub(super) fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.get(name).map_or(name, String::as_str)
    }
}

/// Settings for loading engines, the same for all models of a worker.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// Maximum sequences in a batch. If `None`, the engine's default on the CPU, and as many as fit on a GPU.
    pub batch_size: Option<usize>,
    /// Compute threads; all cores if `None`.
    pub threads: Option<usize>,
    /// Which implementation computes the models.
    pub backend: BackendChoice,
    /// Maximum sequence length in tokens; the model's context length if `None`. Runs do not set it, and it is not part
    /// of identities.
    pub max_sequence_length: Option<usize>,
    /// Data type of the weights in memory.
    pub dtype: DType,
    /// Whether prompts reuse the prefix cache. Does not change results.
    pub reuse_prefixes: bool,
    /// Whether the engine verifies drafts of the next tokens. Does not change results, and is not part of a model's
    /// identity.
    pub speculation: Speculation,
    /// Device that runs the engine. Whether it is a GPU is part of a model's identity, its number is not.
    pub device: Device,
    /// The engine's share of a memory limit; the machine's own limit if `None`.
    pub memory: Option<MemoryShare>,
}

/// An engine's share of a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShare {
    /// Bytes for weights, buffers and KV cache.
    pub bytes: u64,
    /// Bytes of these for the KV cache.
    pub cache_bytes: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            batch_size: None,
            threads: None,
            backend: BackendChoice::Auto,
            max_sequence_length: None,
            dtype: DType::F32,
            reuse_prefixes: true,
            speculation: Speculation::Auto,
            device: Device::Cpu,
            memory: None,
        }
    }
}

/// The engine's name of a device.
pub(super) fn device_name(device: Device) -> DeviceName {
    match device {
        Device::Auto => DeviceName::Auto,
        Device::Cpu => DeviceName::Cpu,
        Device::Cuda(number) => DeviceName::Cuda(number),
    }
}

/// The concrete device: resolves [`Device::Auto`] for this machine. Blocks while the driver of a GPU starts.
pub(super) fn resolved(device: Device) -> Device {
    match device_name(device).resolved() {
        DeviceName::Auto | DeviceName::Cpu => Device::Cpu,
        DeviceName::Cuda(number) => Device::Cuda(number),
    }
}

/// Marks that rotary frequencies are computed in full precision. It is part of every identity: earlier
/// versions rounded the frequencies of half-precision folders by default, and omitted the mark if they did.
const FULL_ROTARY: &str = "+full-rotary";

/// Marks that lines end at the text of a newline, because several tokens of the vocabulary contain one. Earlier versions
/// stopped only at the token of a newline.
const NEWLINE_TEXT: &str = "+newline-text";

/// Marks that a GPU computes. It adds in another order than a CPU, and with half precision it also rounds embeddings, keys,
/// values and the inputs of products.
const GPU: &str = "+cuda";

/// Marks that candle-transformers computes, and precedes its version.
const CANDLE_TRANSFORMERS: &str = "+candle-transformers-";

/// Version of candle-transformers in this program.
#[cfg(feature = "candle-transformers")]
const REFERENCE_VERSION: Option<&str> = Some("0.11.1");
#[cfg(not(feature = "candle-transformers"))]
const REFERENCE_VERSION: Option<&str> = None;

/// The error of a program without candle-transformers.
pub(super) const REFERENCE_MISSING: &str = concat!(
    "this program was built without `candle-transformers`; ",
    "hint: build it with `--features candle-transformers`",
);

impl EngineSettings {
    /// Returns what a model's results depend on besides its files, as recorded in its identity:
    /// `f32+full-rotary`, `f16+full-rotary+cuda`, or `f32+candle-transformers-0.11.1`. The backend must be resolved. `newline_is_unique`: whether
    /// lines end at a single token of the vocabulary.
    ///
    /// # Errors
    /// If this program was built without the backend. The error is a message.
    pub(super) fn computed_in(&self, newline_is_unique: bool) -> Result<String, &'static str> {
        let line_ends = if newline_is_unique { "" } else { NEWLINE_TEXT };
        let gpu = if self.is_on_gpu() { GPU } else { "" };
        Ok(match self.backend {
            BackendChoice::Auto | BackendChoice::Native => {
                format!("{}{FULL_ROTARY}{gpu}{line_ends}", self.dtype)
            }
            BackendChoice::CandleTransformers => {
                let version = REFERENCE_VERSION.ok_or(REFERENCE_MISSING)?;
                format!("{}{CANDLE_TRANSFORMERS}{version}{gpu}{line_ends}", self.dtype)
            }
        })
    }

    /// Whether a GPU computes.
    pub(super) fn is_on_gpu(&self) -> bool {
        resolved(self.device) != Device::Cpu
    }

    /// Checks that an identity was planned with the rule for the ends of lines that this version uses.
    ///
    /// # Errors
    /// Otherwise. The error is a message.
    pub(super) fn check_line_ends(computed_in: Option<&str>, newline_is_unique: bool) -> Result<(), String> {
        if computed_in.is_none_or(|text| text.ends_with(NEWLINE_TEXT) != newline_is_unique) {
            return Ok(());
        }
        Err("planned by a version that stops replies of this model at other tokens than this one: the vocabulary has \
             several tokens with a newline; hint: start a new run with `lumos run --name <NAME>`"
            .to_owned())
    }

    /// Returns these settings with the data type that an identity records.
    ///
    /// # Errors
    /// If this version cannot compute the model in that way, because its results would be mixed with
    /// different ones.
    pub(super) fn computing_in(self, computed_in: Option<&str>) -> Result<Self, String> {
        let Some(text) = computed_in else { return Ok(self) };
        let text = text.strip_suffix(NEWLINE_TEXT).unwrap_or(text);
        let (text, on_gpu) = text.strip_suffix(GPU).map_or((text, false), |text| (text, true));
        if on_gpu != self.is_on_gpu() {
            let (planned, own, flag) =
                if on_gpu { ("a GPU", "the CPU", "cuda") } else { ("the CPU", "a GPU", "cpu") };
            return Err(format!(
                "planned to be computed by {planned}, but computed here by {own}; their results differ, and the two are not \
                 mixed in a run; hint: pass --device {flag} to this worker, or start a new run with `lumos run --name <NAME>`"
            ));
        }
        if let Some((dtype, version)) = text.split_once(CANDLE_TRANSFORMERS) {
            if REFERENCE_VERSION != Some(version) {
                let own = REFERENCE_VERSION.map_or_else(
                    || "this program was built without candle-transformers".to_owned(),
                    |own| format!("this program has version {own}, and the two are not mixed in a run"),
                );
                return Err(format!(
                    "planned with candle-transformers {version}; {own}; hint: use the program that started the run, or \
                     start a new run with `lumos run --name <NAME>`"
                ));
            }
            return Ok(Self { dtype: dtype.parse()?, backend: BackendChoice::CandleTransformers, ..self });
        }
        let Some(dtype) = text.strip_suffix(FULL_ROTARY) else {
            return Err(format!(
                "planned by an earlier version that could round rotary frequencies (recorded as `{text}`); \
                 this version computes them in full precision, and the two are not mixed in a run; hint: \
                 start a new run with `lumos run --name <NAME>`"
            ));
        };
        Ok(Self { dtype: dtype.parse()?, backend: BackendChoice::Native, ..self })
    }

    /// Returns the engine's load options.
    pub fn options(&self) -> LoadOptions {
        let mut options = LoadOptions {
            dtype: self.dtype,
            threads: self.threads,
            reuse_prefixes: self.reuse_prefixes,
            speculation: self.speculation,
            // The files are already hashed for the manifest's identity.
            hash_weights: false,
            max_sequence_length: self.max_sequence_length,
            memory: self.memory.map(|share| MemoryBudget::new(share.bytes)),
            device: device_name(self.device),
            kv_cache_bytes: self.memory.and_then(|share| usize::try_from(share.cache_bytes).ok()),
            ..LoadOptions::default()
        };
        match self.batch_size {
            Some(batch_size) => options.max_batch = batch_size.max(1),
            None if self.is_on_gpu() => options.max_batch = LoadOptions::AUTO_BATCH,
            None => {}
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_records_how_to_compute() {
        for (dtype, speculation) in [DType::F32, DType::Bf16, DType::F16].into_iter().zip(Speculation::ALL) {
            let settings = EngineSettings { dtype, speculation, ..EngineSettings::default() };
            // Drafts do not change results.
            let plain = EngineSettings { speculation: Speculation::Off, ..settings };
            assert_eq!(settings.computed_in(true), plain.computed_in(true));
            for is_unique in [true, false] {
                let recorded = settings.computed_in(is_unique).unwrap();
                let read = EngineSettings::default().computing_in(Some(&recorded)).unwrap();
                assert_eq!((read.dtype, read.backend), (dtype, BackendChoice::Native));
                assert!(EngineSettings::check_line_ends(Some(&recorded), is_unique).is_ok());
                assert!(EngineSettings::check_line_ends(Some(&recorded), !is_unique).is_err());
            }
        }
        assert_eq!(EngineSettings::default().computed_in(true).unwrap(), "f32+full-rotary");
        let gpu = EngineSettings { device: Device::Cuda(1), dtype: DType::F16, ..EngineSettings::default() };
        assert_eq!(gpu.computed_in(true).unwrap(), "f16+full-rotary+cuda");
        assert_eq!(gpu.computed_in(false).unwrap(), "f16+full-rotary+cuda+newline-text");
        assert_eq!(EngineSettings::default().computed_in(false).unwrap(), "f32+full-rotary+newline-text");
    }

    #[test]
    fn a_gpu_computes_as_many_sequences_as_fit() {
        let most = |device, batch_size| {
            let settings = EngineSettings { device, batch_size, ..EngineSettings::default() };
            settings.options().most_sequences()
        };
        assert_eq!((most(Device::Cpu, None), most(Device::Cuda(0), None)), (32, 256));
        assert_eq!((most(Device::Cpu, Some(5)), most(Device::Cuda(0), Some(5))), (5, 5));
    }

    /// Numbers of GPUs may differ between workers, but a CPU and a GPU do not continue each other's runs.
    #[test]
    fn devices_of_two_kinds_are_not_mixed() {
        let on = |device| EngineSettings { device, ..EngineSettings::default() };
        let (cpu, gpu) = (on(Device::Cpu), on(Device::Cuda(0)));
        for is_unique in [true, false] {
            let [on_cpu, on_gpu] = [cpu, gpu].map(|settings| settings.computed_in(is_unique).unwrap());
            assert_ne!(on_cpu, on_gpu);
            assert!(on(Device::Cuda(3)).computing_in(Some(&on_gpu)).is_ok());
            let refused = gpu.computing_in(Some(&on_cpu)).unwrap_err();
            assert!(refused.contains("by the CPU") && refused.contains("--device cpu"), "{refused}");
            let refused = cpu.computing_in(Some(&on_gpu)).unwrap_err();
            assert!(refused.contains("by a GPU") && refused.contains("--device cuda"), "{refused}");
        }
    }

    #[cfg(feature = "candle-transformers")]
    #[test]
    fn backends_have_different_identities_whatever_the_own_setting_is() {
        let reference =
            EngineSettings { backend: BackendChoice::CandleTransformers, ..EngineSettings::default() };
        assert_eq!(reference.computed_in(true).unwrap(), "f32+candle-transformers-0.11.1");
        assert_eq!(reference.computed_in(false).unwrap(), "f32+candle-transformers-0.11.1+newline-text");
        let package = "name = \"candle-transformers\"\nversion = \"0.11.1\"\n";
        let lock = include_str!("../../Cargo.lock");
        assert!(lock.contains(package), "the identity of results names another version of the crate");
        let native = EngineSettings { backend: BackendChoice::Native, ..EngineSettings::default() };
        for is_unique in [true, false] {
            let recorded = reference.computed_in(is_unique).unwrap();
            let read = native.computing_in(Some(&recorded)).unwrap();
            assert_eq!((read.dtype, read.backend), (DType::F32, BackendChoice::CandleTransformers));
            assert!(EngineSettings::check_line_ends(Some(&recorded), is_unique).is_ok());
            assert!(EngineSettings::check_line_ends(Some(&recorded), !is_unique).is_err());
        }
        assert_eq!(reference.computing_in(Some("f32+full-rotary")).unwrap().backend, BackendChoice::Native);
        let other = native.computing_in(Some("f32+candle-transformers-0.9.2")).unwrap_err();
        assert!(other.contains("0.9.2") && other.contains("hint"), "{other}");
    }

    #[test]
    fn rounded_frequencies_of_earlier_versions_are_refused() {
        for recorded in ["f32", "bf16", "f16", "f8+full-rotary", "f32+newline-text", ""] {
            assert!(EngineSettings::default().computing_in(Some(recorded)).is_err(), "{recorded}");
        }
    }
}
