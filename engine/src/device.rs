//! Devices: names such as `cpu` and `cuda:0`, and detection of the machine's GPUs.
//!
//! [`DeviceName`] is a device in options and reports. [`gpus`] lists the machine's GPUs as [`Gpu`], or
//! returns the reason ([`NoGpu`]) why none can be used. The CUDA libraries are loaded at run time and not
//! linked.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The device that a model computes on.
///
/// Written as `auto`, `cpu` or `cuda:N`; `cuda` alone means `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// The first supported GPU; the CPU if no GPU is supported.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// The GPU with this number in the CUDA driver's order.
    Cuda(usize),
}

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// The first number of the lowest compute capability whose blocks have as much shared memory as attention needs.
pub(crate) const LOWEST_MAJOR_CAPABILITY: i32 = 7;

impl Gpu {
    /// Whether the engine supports this GPU: its compute capability is 7.0 or later.
    pub fn is_supported(&self) -> bool {
        let major = self.compute_capability.split('.').next().and_then(|major| major.parse::<i32>().ok());
        major.is_some_and(|major| major >= LOWEST_MAJOR_CAPABILITY)
    }
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
    /// A library is of a CUDA version that the driver does not support.
    #[error(
        "{library} is of CUDA {version}, but the driver supports versions from 12.0 up to CUDA {driver}; hint: update the \
         driver, or install the libraries of a version that it supports: `deploy/cuda/build.sh --libraries <FOLDER>`"
    )]
    VersionMismatch {
        /// File name of the library.
        library: &'static str,
        /// Its CUDA version.
        version: String,
        /// The newest CUDA version that the driver supports.
        driver: String,
    },
    /// The driver is installed but fails, or reports no GPU.
    #[error("CUDA driver error: {0}")]
    Driver(String),
}

/// Why the process must end, once a GPU has failed for good. The engines of a process share one context of each GPU, so
/// none of them can use it any more.
static LOST: LazyLock<watch::Sender<Option<String>>> = LazyLock::new(|| watch::Sender::new(None));

/// Records that a GPU failed for good. Returns the message.
pub(crate) fn lose(device: DeviceName, reason: &str) -> String {
    let message = format!(
        "GPU {device} stopped working ({reason}), and every further call of this process to it fails; hint: start the \
         program again; if this is repeated, look for Xid errors in the system's log (`dmesg`) and in `nvidia-smi -q`"
    );
    LOST.send_if_modified(|lost| lost.is_none() && lost.insert(message.clone()) == &message);
    message
}

/// The message about the first GPU that failed for good in this process: an illegal access, an uncorrectable memory
/// error, or a kernel that does not end. `None` if all work.
pub fn lost_gpu() -> Option<String> {
    LOST.borrow().clone()
}

/// Waits until a GPU has failed for good. Returns the message of [`lost_gpu`].
pub async fn until_gpu_lost() -> String {
    let mut changes = LOST.subscribe();
    let found = changes.wait_for(Option::is_some).await.ok().and_then(|lost| lost.clone());
    match found {
        Some(message) => message,
        // The sender lives as long as the process.
        None => std::future::pending().await,
    }
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

    #[test]
    fn gpus_before_compute_capability_7_are_not_supported() {
        let is_supported = |capability: &str| {
            let gpu = Gpu {
                name: DeviceName::Cuda(0),
                model: "Example".to_owned(),
                compute_capability: capability.to_owned(),
                memory_bytes: 8 << 30,
                driver: "12.8".to_owned(),
            };
            gpu.is_supported()
        };
        assert!(!is_supported("5.2") && !is_supported("6.1"));
        assert!(is_supported("7.0") && is_supported("7.5") && is_supported("12.0"));
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
