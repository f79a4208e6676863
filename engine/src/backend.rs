//! What a loaded model computes with: the processor, or a GPU.

use crate::bench::{MachineLimits, machine_limits};
use crate::cache::{PageLayout, Storage};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::load::config::ModelConfig;
use crate::load::weights::Weights;
use crate::memory::Reservation;
use crate::model::{LanguageModel, Llama, Matrices, QuantizedFormat, Runner};
use crate::options::{DType, LoadOptions};
use crate::scheduler::Limits;

/// A model's weights where they are computed with.
pub(crate) enum Backend {
    Cpu(Llama),
    #[cfg(feature = "cuda")]
    Cuda(Box<crate::cuda::DeviceLlama<crate::cuda::driver::CudaDevice>>, DeviceName),
}

impl Backend {
    /// Bytes that the weights will take on a device.
    pub(crate) fn weight_bytes(
        device: DeviceName,
        config: &ModelConfig,
        rows: usize,
        dtype: DType,
        matrices: &Matrices,
    ) -> u64 {
        if matches!(device, DeviceName::Cuda(_)) {
            return crate::cuda::weight_bytes(config, rows, dtype, matrices.bytes);
        }
        // Embeddings and norms are float32 whatever the type.
        let vectors = config.hidden_size * (rows + 2 * config.layers + 1);
        (matrices.bytes + vectors * size_of::<f32>()) as u64
    }

    /// Takes a part of the budget, which is one of the machine's memory, unless the part lies on a device.
    pub(crate) fn reserve(
        options: &LoadOptions,
        what: &'static str,
        bytes: u64,
    ) -> Result<Option<Reservation>, LoadError> {
        match options.device {
            DeviceName::Cuda(_) => Ok(None),
            DeviceName::Auto | DeviceName::Cpu => options.reserve(what, bytes),
        }
    }

    /// Reads the weights, of which there are so many bytes.
    pub(crate) fn load(
        config: &ModelConfig,
        weights: &Weights,
        options: &LoadOptions,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] weight_bytes: u64,
    ) -> Result<Self, LoadError> {
        match options.device {
            DeviceName::Auto | DeviceName::Cpu => Ok(Self::Cpu(Llama::load(config, weights, options.dtype)?)),
            #[cfg(feature = "cuda")]
            device @ DeviceName::Cuda(ordinal) => {
                use crate::cuda::{DeviceLlama, driver::CudaDevice};
                let failed = |error: crate::cuda::DeviceError| device_error(device, &error);
                let cuda = CudaDevice::open(ordinal, options.dtype).map_err(failed)?;
                let (free, total) = cuda.memory().map_err(failed)?;
                if weight_bytes > free {
                    return Err(LoadError::TooLargeForMemory {
                        what: "weights",
                        needed: weight_bytes,
                        free,
                        total,
                    });
                }
                let model = DeviceLlama::load(cuda, config, weights, options.dtype, failed)?;
                Ok(Self::Cuda(Box::new(model), device))
            }
            #[cfg(not(feature = "cuda"))]
            device @ DeviceName::Cuda(_) => Err(not_built(device)),
        }
    }

    /// The best rates of a device, the processor with so many threads, for weights of a format or else of a type.
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

    /// How pages of so many positions look.
    pub(crate) fn layout(&self, positions: usize) -> PageLayout {
        match self {
            Self::Cpu(model) => PageLayout { shape: model.key_values(), positions, storage: Storage::Memory },
            #[cfg(feature = "cuda")]
            Self::Cuda(model, _) => {
                PageLayout { shape: model.key_values(), positions, storage: model.storage() }
            }
        }
    }

    /// Bytes that a device's memory has left.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        match self {
            Self::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            Self::Cuda(model, _) => model.device().memory().ok().map(|(free, _)| free),
        }
    }

    /// Makes it ready for a scheduler with so many pages.
    pub(crate) fn start(
        self,
        config: &ModelConfig,
        options: &LoadOptions,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] pages: usize,
        #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] limits: &Limits,
    ) -> Result<Box<dyn LanguageModel>, LoadError> {
        match self {
            Self::Cpu(model) => Ok(Box::new(Runner::new(model, config, options.threads)?)),
            #[cfg(feature = "cuda")]
            Self::Cuda(model, device) => {
                let sizes = (limits.max_step_tokens, limits.max_batch);
                let model = crate::cuda::DeviceModel::new(*model, config, (pages, options.page_size), sizes);
                Ok(Box::new(model.map_err(|error| device_error(device, &error))?))
            }
        }
    }
}

#[cfg(feature = "cuda")]
fn device_error(device: DeviceName, error: &crate::cuda::DeviceError) -> LoadError {
    LoadError::Device { device, reason: error.to_string() }
}

#[cfg(not(feature = "cuda"))]
fn not_built(device: DeviceName) -> LoadError {
    let reason = "this build does not include the feature `cuda`; hint: build with `--features cuda`, or use \
        the device cpu";
    LoadError::Device { device, reason: reason.to_owned() }
}
