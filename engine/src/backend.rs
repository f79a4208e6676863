//! Selects where a loaded model computes: the CPU or a GPU.
//!
//! [`Backend`] holds the weights on that device. It estimates their size, reads them, lays out KV cache pages
//! and starts the [`LanguageModel`] that the scheduler drives.

use lumos_kernels::{DType, QuantizedFormat};

use crate::cache::{PageLayout, Storage};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::load::block::ModelConfig;
use crate::load::weights::Weights;
use crate::machine::{MachineLimits, machine_limits};
use crate::model::{Decoder, LanguageModel, Matrices, Runner, attention_storage};
use crate::options::{LoadOptions, thread_pool};
use crate::scheduler::Limits;

/// A model's weights on the device that computes with them.
pub(crate) enum Backend {
    Cpu(Box<Decoder>),
    #[cfg(feature = "cuda")]
    Cuda(Box<crate::cuda::DeviceLlama<crate::cuda::driver::CudaDevice>>, DeviceName),
}

impl Backend {
    /// The size of the weights on the device, in bytes.
    pub(crate) fn weight_bytes(
        device: DeviceName,
        config: &ModelConfig,
        rows: usize,
        dtype: DType,
        matrices: &Matrices,
    ) -> u64 {
        if matches!(device, DeviceName::Cuda(_)) {
            return crate::cuda::weight_bytes(config, rows, dtype, matrices.total_bytes);
        }
        // Norms and biases are float32 for every `dtype`.
        (matrices.total_bytes + matrices.embedding + config.vector_values() * size_of::<f32>()) as u64
    }

    /// Reads the weights. `weight_bytes` is their size, which must fit in a GPU's free memory.
    pub(crate) fn load(
        config: &ModelConfig,
        weights: &Weights,
        options: &LoadOptions,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] weight_bytes: u64,
    ) -> Result<Self, LoadError> {
        match options.device {
            DeviceName::Auto | DeviceName::Cpu => {
                let threads = thread_pool(options.threads, "lumos-load")?;
                Ok(Self::Cpu(Box::new(threads.install(|| Decoder::load(config, weights, options.dtype))?)))
            }
            #[cfg(feature = "cuda")]
            device @ DeviceName::Cuda(ordinal) => {
                use crate::cuda::{DeviceLlama, driver::CudaDevice};
                let failed = |error: crate::cuda::DeviceError| device_error(device, &error);
                let cuda = CudaDevice::open(ordinal, options.dtype).map_err(failed)?;
                let (free, _) = cuda.memory().map_err(failed)?;
                if weight_bytes > free {
                    let what = "weights";
                    return Err(LoadError::TooLargeForDevice { device, what, needed: weight_bytes, free });
                }
                let model = DeviceLlama::load(cuda, config, weights, options.dtype, failed)?;
                Ok(Self::Cuda(Box::new(model), device))
            }
            #[cfg(not(feature = "cuda"))]
            device @ DeviceName::Cuda(_) => Err(not_built(device)),
        }
    }

    /// Measures the peak rates of a device (the CPU with `threads` threads) for weights of `format`, or of
    /// `dtype` if `format` is `None`.
    pub(crate) fn limits(
        device: DeviceName,
        threads: usize,
        dtype: DType,
        format: Option<QuantizedFormat>,
    ) -> Result<MachineLimits, LoadError> {
        match device {
            #[cfg(feature = "cuda")]
            DeviceName::Cuda(ordinal) => {
                let cuda = crate::cuda::driver::CudaDevice::open(ordinal, dtype);
                cuda.and_then(|cuda| cuda.limits()).map_err(|error| device_error(device, &error))
            }
            #[cfg(not(feature = "cuda"))]
            DeviceName::Cuda(_) => Err(not_built(device)),
            DeviceName::Auto | DeviceName::Cpu => machine_limits(threads, dtype, format),
        }
    }

    /// Where a device stores keys and values, and as which type. On the CPU, bfloat16 for models with weights of that
    /// type if the processor multiplies matrices of it; widening it to float32 is slower than reading float32.
    pub(crate) fn storage(device: DeviceName, dtype: DType, format: Option<QuantizedFormat>) -> Storage {
        match (device, format) {
            (DeviceName::Cuda(_), _) => Storage::Device { width: dtype.width() },
            (_, None) => attention_storage(dtype),
            (_, Some(_)) => Storage::F32,
        }
    }

    /// The layout of pages of `positions` positions each. `format`: the block format of most weights, if any have one.
    pub(crate) fn layout(
        config: &ModelConfig,
        options: &LoadOptions,
        format: Option<QuantizedFormat>,
    ) -> PageLayout {
        let storage = Self::storage(options.device, options.dtype, format);
        PageLayout { shape: config.key_values(), positions: options.page_size, storage }
    }

    /// Size in bytes of a GPU's buffers for steps of the options. On the CPU, that of the logits of a step with drafts;
    /// without drafts 0, because its other buffers are small.
    pub(crate) fn buffer_bytes(config: &ModelConfig, vocabulary: usize, options: &LoadOptions) -> u64 {
        if !matches!(options.device, DeviceName::Cuda(_)) {
            return options.draft_logit_bytes(vocabulary);
        }
        let sequences = options.most_sequences();
        let rows = options.step_limits().1.max(sequences);
        crate::cuda::buffer_bytes(config, vocabulary, options.dtype, (rows, sequences))
    }

    /// Free memory of a GPU in bytes; `None` on the CPU.
    pub(crate) fn free_memory(&self) -> Result<Option<u64>, LoadError> {
        match self {
            Self::Cpu(_) => Ok(None),
            #[cfg(feature = "cuda")]
            Self::Cuda(model, device) => {
                let memory = model.device().memory().map_err(|error| device_error(*device, &error))?;
                Ok(Some(memory.0))
            }
        }
    }

    /// Converts the backend into a model that a scheduler with `pages` pages can drive.
    pub(crate) fn start(
        self,
        config: &ModelConfig,
        options: &LoadOptions,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] pages: usize,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] limits: &Limits,
    ) -> Result<Box<dyn LanguageModel>, LoadError> {
        match self {
            Self::Cpu(model) => Ok(Box::new(Runner::new(*model, config, options.threads)?)),
            #[cfg(feature = "cuda")]
            Self::Cuda(model, device) => {
                let sizes = (limits.max_step_tokens, limits.max_batch);
                let pages = (pages, options.page_size);
                let model = crate::cuda::DeviceModel::new(*model, device, config, pages, sizes);
                Ok(Box::new(model.map_err(|error| device_error(device, &error))?))
            }
        }
    }
}

/// The free memory of a GPU that engines may use, in bytes. Blocks while its driver starts.
///
/// # Errors
/// Fails if `device` is not a GPU or cannot be used.
pub fn free_gpu_memory(device: DeviceName) -> Result<u64, LoadError> {
    match device {
        #[cfg(feature = "cuda")]
        DeviceName::Cuda(ordinal) => {
            let free = crate::cuda::driver::free_memory(ordinal);
            free.map(crate::memory::usable).map_err(|error| device_error(device, &error))
        }
        #[cfg(not(feature = "cuda"))]
        DeviceName::Cuda(_) => Err(not_built(device)),
        DeviceName::Auto | DeviceName::Cpu => {
            Err(LoadError::Device { device, reason: "not a GPU".to_owned() })
        }
    }
}

#[cfg(feature = "cuda")]
fn device_error(device: DeviceName, error: &crate::cuda::DeviceError) -> LoadError {
    let reason = match error {
        crate::cuda::DeviceError::Failed(reason) => reason.clone(),
        crate::cuda::DeviceError::Lost(reason) => crate::device::lose(device, reason),
    };
    LoadError::Device { device, reason }
}

#[cfg(not(feature = "cuda"))]
fn not_built(device: DeviceName) -> LoadError {
    let reason = "this build does not include the feature `cuda`; hint: build with `--features cuda`, or use \
        the device cpu";
    LoadError::Device { device, reason: reason.to_owned() }
}
