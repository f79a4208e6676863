//! Devices: names such as `cpu` and `cuda:0`, and detection of the machine's GPUs.
//!
//! [`DeviceName`] is a device in options and reports. [`gpus`] lists the machine's GPUs as [`Gpu`], or
//! returns the reason ([`NoGpu`]) why none can be used. The CUDA libraries are loaded at run time and not
//! linked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The device that a model computes on.
///
/// Written as `auto`, `cpu` or `cuda:N`; `cuda` alone means `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// The first usable GPU, or the CPU if there is none.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// The GPU with this number in the CUDA driver's order.
    Cuda(usize),
}

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The device name, such as `cuda:0`.
    pub name: DeviceName,
    /// The product name.
    pub model: String,
    /// Compute capability, such as 9.0.
    pub compute_capability: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The newest CUDA version that the driver supports, such as 13.0.
    pub driver: String,
}

/// Reasons why no GPU can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGpu {
    /// The binary was built without GPU support.
    #[error("this build does not include the feature `cuda`")]
    NotBuilt,
    /// A library was not found in the system's library folders.
    #[error("{library} not found; hint: install {remedy}, or add its folder to LD_LIBRARY_PATH")]
    LibraryMissing {
        /// File name of the library.
        library: &'static str,
        /// What to install.
        remedy: &'static str,
    },
    /// The driver is installed but fails, or reports no GPU.
    #[error("CUDA driver error: {0}")]
    Driver(String),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(ordinal) => write!(formatter, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("unknown device {text:?}: expected auto, cpu or cuda:N, where N counts from 0");
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            // A number with a sign or leading zeros is a second spelling of another name.
            other => {
                let number = other.strip_prefix("cuda:").ok_or_else(unknown)?;
                let ordinal = number.parse().map_err(|_| unknown())?;
                let device = Self::Cuda(ordinal);
                if device.to_string() == other { Ok(device) } else { Err(unknown()) }
            }
        }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(device: DeviceName) -> Self {
        device.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_and_refused() {
        assert_eq!("auto".parse(), Ok(DeviceName::Auto));
        assert_eq!("cpu".parse(), Ok(DeviceName::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceName::Cuda(3)));
        for wrong in [
            "",
            "gpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:01",
            "cuda: 1",
            "cuda:99999999999999999999",
        ] {
            let error = wrong.parse::<DeviceName>().unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("cuda:N"), "{error}");
        }
        assert_eq!(serde_json::to_string(&DeviceName::Cuda(1)).unwrap(), "\"cuda:1\"");
        assert!(serde_json::from_str::<DeviceName>("\"tpu\"").is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(ordinal in any::<usize>(), kind in 0u8..3) {
            let device = match kind {
                0 => DeviceName::Auto,
                1 => DeviceName::Cpu,
                _ => DeviceName::Cuda(ordinal),
            };
            prop_assert_eq!(device.to_string().parse(), Ok(device));
        }
    }
}
