//! [`Placement`]: the device of each role. [`Swap`]: whether models that do not fit in memory together take
//! turns. [`BackendChoice`]: which implementation computes models in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::request::Role;

/// The device that a model is computed on. It is not part of the model's identity: the same weights in the
/// same type are the same model on every device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The best device of the machine: `auto`.
    Auto,
    /// The CPU: `cpu`.
    #[default]
    Cpu,
    /// A GPU by its number: `cuda:0`.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(number) => write!(formatter, "cuda:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let unknown = || PlacementError::Device(text.to_owned());
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            // Only one spelling is accepted: a sign or a leading zero is likely a typing error.
            Some(("cuda", number)) => match number.parse() {
                Ok(parsed) if format!("{parsed}") == number => Ok(Self::Cuda(parsed)),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

/// The device of every role: one for all, or by role.
///
/// Written `cpu`, `cuda:0`, `planner=cuda:0,grounder=cuda:1`, or `planner=cuda:0,cpu`, in which the device
/// without a role applies to all other roles. Roles without a device are computed on the CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Placement {
    /// Roles whose device differs from the others.
    roles: BTreeMap<Role, Device>,
    others: Device,
}

/// Errors of parsing a placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The device name is unknown.
    #[error("unknown device `{0}`: expected cpu, auto, or cuda:0, cuda:1, … for a GPU")]
    Device(String),
    /// The role name is unknown.
    #[error("unknown role `{0}`: expected planner, grounder, answerer, qa or judge, as in planner=cuda:0")]
    Role(String),
    /// A role, or the default for other roles, has two devices.
    #[error("duplicate device of {0}: expected one device per role")]
    Repeated(String),
    /// An entry, or the whole text, is empty.
    #[error("missing device: expected cpu, or planner=cuda:0,grounder=cuda:1")]
    Missing,
}

impl Placement {
    /// All roles on one device.
    pub fn on(device: Device) -> Self {
        Self { roles: BTreeMap::new(), others: device }
    }

    /// Some roles on their own devices, all others on `others`.
    pub fn by_role(roles: impl IntoIterator<Item = (Role, Device)>, others: Device) -> Self {
        let roles = roles.into_iter().filter(|(_, device)| *device != others).collect();
        Self { roles, others }
    }

    /// The device of a role.
    pub fn of(&self, role: Role) -> Device {
        self.roles.get(&role).copied().unwrap_or(self.others)
    }

    /// The device of all roles, if it is the same.
    pub fn single(&self) -> Option<Device> {
        self.roles.is_empty().then_some(self.others)
    }

    /// Every device that is used, without duplicates.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = self.roles.values().copied().chain([self.others]).collect();
        devices.sort();
        devices.dedup();
        devices
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (role, device) in &self.roles {
            write!(formatter, "{role}={device},")?;
        }
        write!(formatter, "{}", self.others)
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let (mut roles, mut others) = (BTreeMap::new(), None);
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                _ if part.is_empty() => return Err(PlacementError::Missing),
                None if others.is_some() => return Err(PlacementError::Repeated("the others".to_owned())),
                None => others = Some(part.parse()?),
                Some((role, device)) => {
                    let role = role_of(role.trim())?;
                    if roles.insert(role, device.trim().parse()?).is_some() {
                        return Err(PlacementError::Repeated(format!("the {role}")));
                    }
                }
            }
        }
        Ok(Self::by_role(roles, others.unwrap_or_default()))
    }
}

fn role_of(name: &str) -> Result<Role, PlacementError> {
    let found = Role::ALL.into_iter().find(|role| role.name() == name);
    found.ok_or_else(|| PlacementError::Role(name.to_owned()))
}

/// Whether models that share a device take turns in its memory: all pending turns of one model are computed,
/// then all of the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Swap {
    /// If each model fits in the memory limit but all together do not.
    #[default]
    Auto,
    /// Whenever several models share a device.
    Always,
    /// Never: models that do not fit together are rejected.
    Never,
}

impl fmt::Display for Swap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

impl FromStr for Swap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Auto, Self::Always, Self::Never];
        let found = known.into_iter().find(|swap| swap.to_string() == text);
        found.ok_or_else(|| format!("unknown swap mode `{text}`: expected auto, always or never"))
    }
}

macro_rules! strings {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = PlacementError;

            fn try_from(text: String) -> Result<Self, PlacementError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

strings!(Device, Placement);

/// Which implementation computes a model in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendChoice {
    /// The engine if it supports the model's architecture, otherwise candle-transformers if it does.
    #[default]
    Auto,
    /// The engine of this project.
    Native,
    /// The models of the crate candle-transformers.
    CandleTransformers,
}

impl BackendChoice {
    const ALL: [Self; 3] = [Self::Auto, Self::Native, Self::CandleTransformers];
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::CandleTransformers => "candle-transformers",
        })
    }
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.to_string() == text);
        found.ok_or_else(|| format!("unknown backend `{text}`: expected auto, native or candle-transformers"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device() -> impl Strategy<Value = Device> {
        prop_oneof![Just(Device::Auto), Just(Device::Cpu), any::<usize>().prop_map(Device::Cuda)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            roles in proptest::collection::btree_map(proptest::sample::select(&Role::ALL), device(), 0..5),
            others in device(),
        ) {
            let placement = Placement::by_role(roles.clone(), others);
            let text = placement.to_string();
            prop_assert_eq!(text.parse::<Placement>().unwrap(), placement.clone());
            for role in Role::ALL {
                prop_assert_eq!(placement.of(role), roles.get(&role).copied().unwrap_or(others));
            }
            let json = serde_json::to_string(&placement).unwrap();
            prop_assert_eq!(serde_json::from_str::<Placement>(&json).unwrap(), placement);
        }

        #[test]
        fn no_text_is_too_strange_to_be_refused(text in "[a-z=:,0-9 ]{0,24}") {
            if let Ok(placement) = text.parse::<Placement>() {
                prop_assert_eq!(placement.to_string().parse::<Placement>().unwrap(), placement);
            }
        }
    }

    #[test]
    fn roles_that_are_not_named_are_on_the_processor() {
        let placement: Placement = "planner=cuda:0, grounder=cuda:1".parse().unwrap();
        assert_eq!(placement.of(Role::Planner), Device::Cuda(0));
        assert_eq!(placement.of(Role::Grounder), Device::Cuda(1));
        assert_eq!(placement.of(Role::Qa), Device::Cpu);
        assert_eq!(placement.single(), None);
        assert_eq!(placement.devices(), [Device::Cpu, Device::Cuda(0), Device::Cuda(1)]);
        let one: Placement = "cuda:0,planner=cuda:0".parse().unwrap();
        assert_eq!((one.single(), one.to_string()), (Some(Device::Cuda(0)), "cuda:0".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, said) in [
            ("gpu", "unknown device `gpu`: expected cpu, auto, or cuda:0"),
            ("cuda", "unknown device `cuda`"),
            ("cuda:", "unknown device `cuda:`"),
            ("cuda:-1", "unknown device `cuda:-1`"),
            ("cuda:00", "unknown device `cuda:00`"),
            ("planner=", "unknown device ``"),
            ("planer=cpu", "unknown role `planer`: expected planner, grounder"),
            ("planner=cpu,planner=cuda:0", "duplicate device of the planner"),
            ("cpu,cuda:0", "duplicate device of the others"),
            ("planner=cpu,,cpu", "missing device"),
            ("", "missing device: expected cpu"),
        ] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn backends_have_one_name_in_flags_and_files() {
        for choice in BackendChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            assert_eq!(serde_json::to_value(choice).unwrap(), choice.to_string());
        }
        let why = "candle".parse::<BackendChoice>().unwrap_err();
        assert!(why.contains("`candle`") && why.contains("candle-transformers"), "{why}");
    }
}
