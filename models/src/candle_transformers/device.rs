//! [`OpenedDevice`]: the CPU, or a GPU with the feature `candle-cuda`, for which candle needs nvcc when it is compiled.
//!
//! Without the feature, `auto` is the CPU and GPUs are refused by the name of the feature. candle loads its kernels when
//! a GPU is opened.

use candle_core::Device;
use lumos_engine::{DeviceName, LoadError};

/// Where a model computes.
pub(super) struct OpenedDevice {
    pub(super) name: DeviceName,
    pub(super) device: Device,
}

impl OpenedDevice {
    /// Opens a device. `auto` is the first GPU, or the CPU on a machine without GPUs.
    ///
    /// # Errors
    /// [`LoadError::Device`] for GPUs that cannot be used.
    pub(super) fn open(name: DeviceName) -> Result<Self, LoadError> {
        let name = match name {
            DeviceName::Auto if cfg!(feature = "candle-cuda") => name.resolved(),
            DeviceName::Auto => DeviceName::Cpu,
            name => name,
        };
        let device = match name {
            DeviceName::Auto | DeviceName::Cpu => Device::Cpu,
            DeviceName::Cuda(ordinal) => open_gpu(name, ordinal)?,
        };
        Ok(Self { name, device })
    }

    /// Free and total memory of a GPU in bytes; `None` for the CPU.
    ///
    /// # Errors
    /// If the driver does not report it.
    pub(super) fn memory(&self) -> Result<Option<(u64, u64)>, LoadError> {
        match &self.device {
            Device::Cpu => Ok(None),
            device => gpu_memory(self.name, device).map(Some),
        }
    }
}

#[cfg(feature = "candle-cuda")]
fn open_gpu(name: DeviceName, ordinal: usize) -> Result<Device, LoadError> {
    // A driver that lacks the GPU is reported with the hints of the engine.
    lumos_engine::gpus().map_err(|error| device_error(name, error.to_string()))?;
    Device::new_cuda(ordinal).map_err(|error| device_error(name, super::message(error)))
}

#[cfg(feature = "candle-cuda")]
fn gpu_memory(name: DeviceName, device: &Device) -> Result<(u64, u64), LoadError> {
    let cuda = device.as_cuda_device().map_err(|error| device_error(name, super::message(error)))?;
    let (free, total) = cuda
        .cuda_stream()
        .context()
        .mem_get_info()
        .map_err(|error| device_error(name, format!("CUDA driver error: {error}")))?;
    Ok((free as u64, total as u64))
}

#[cfg(feature = "candle-cuda")]
fn device_error(device: DeviceName, reason: String) -> LoadError {
    LoadError::Device { device, reason }
}

#[cfg(not(feature = "candle-cuda"))]
fn open_gpu(device: DeviceName, _: usize) -> Result<Device, LoadError> {
    Err(not_built(device))
}

#[cfg(not(feature = "candle-cuda"))]
fn gpu_memory(device: DeviceName, _: &Device) -> Result<(u64, u64), LoadError> {
    Err(not_built(device))
}

#[cfg(not(feature = "candle-cuda"))]
fn not_built(device: DeviceName) -> LoadError {
    let reason = "this build does not include the feature `candle-cuda`, without which candle-transformers computes on \
                  the CPU; hint: build with `--features candle-cuda`, or pass --device cpu";
    LoadError::Device { device, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_has_no_limit_of_a_gpu() {
        let opened = OpenedDevice::open(DeviceName::Cpu).unwrap();
        assert!(
            opened.name == DeviceName::Cpu && opened.device.is_cpu() && opened.memory().unwrap().is_none()
        );
    }

    #[cfg(not(feature = "candle-cuda"))]
    #[test]
    fn gpus_are_refused_by_the_name_of_the_feature() {
        let refused = OpenedDevice::open(DeviceName::Cuda(1)).err().unwrap().to_string();
        for part in ["cuda:1", "`candle-cuda`", "--device cpu"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(OpenedDevice::open(DeviceName::Auto).unwrap().name, DeviceName::Cpu);
    }
}
