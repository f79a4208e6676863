//! [`Speculation`]: whether drafts are verified. [`DraftUsage`]: what they saved.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::device::DeviceName;
use crate::error::LoadError;

/// Whether drafts of the next tokens are verified together. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// One token per sequence and pass.
    #[default]
    Off,
    /// Drafts from earlier occurrences of a sequence's last tokens, whenever there is one.
    Lookup,
    /// The same as `Lookup` where it saves time, by the measured duration of passes and the share of accepted tokens.
    Auto,
}

impl Speculation {
    /// All values, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lookup, Self::Auto];

    /// The setting on a device. GPUs do not verify drafts, because a step predicts one token of each sequence there:
    /// `Auto` is `Off`.
    ///
    /// # Errors
    /// [`LoadError::InvalidOption`] for `Lookup` on a GPU.
    pub(crate) fn on(self, device: DeviceName) -> Result<Self, LoadError> {
        match (self, device) {
            (Self::Lookup, DeviceName::Cuda(_)) => Err(LoadError::InvalidOption {
                reason: format!(
                    "speculation `lookup` is not supported on {device}, where a step predicts one token of each \
                     sequence; hint: pass --speculate auto or off, or --device cpu"
                ),
            }),
            (Self::Auto, DeviceName::Cuda(_)) => Ok(Self::Off),
            _ => Ok(self),
        }
    }
}

impl fmt::Display for Speculation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Off => "off",
            Self::Lookup => "lookup",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Speculation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        named.ok_or_else(|| format!("unknown speculation `{text}`: expected off, lookup or auto"))
    }
}

/// Counts of lookup decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftUsage {
    /// Tokens drafted and computed.
    pub drafted: u64,
    /// Drafted tokens that equal the chosen ones. Each saves one pass of its sequence.
    pub accepted: u64,
}

impl AddAssign for DraftUsage {
    fn add_assign(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in Speculation::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("on".parse::<Speculation>().unwrap_err().contains("off, lookup or auto"));
    }

    #[test]
    fn gpus_do_not_verify_drafts() {
        let gpu = DeviceName::Cuda(1);
        for mode in Speculation::ALL {
            assert_eq!(mode.on(DeviceName::Cpu).unwrap(), mode);
        }
        assert_eq!(Speculation::Off.on(gpu).unwrap(), Speculation::Off);
        assert_eq!(Speculation::Auto.on(gpu).unwrap(), Speculation::Off);
        let error = Speculation::Lookup.on(gpu).unwrap_err().to_string();
        assert!(error.contains("`lookup`") && error.contains("cuda:1") && error.contains("hint"), "{error}");
    }
}
