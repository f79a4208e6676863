//! Settings for device and memory of models.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;
use lumos_tasks::{Device, Placement, Role};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::values::ScalarText;

/// A number of bytes, such as `20GiB`, `512MB` or `1000000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MemorySize(pub u64);

/// Smallest memory limit without a unit, in bytes.
const LEAST_WITHOUT_UNIT: u64 = 1 << 20;

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<ByteSize>() {
            Ok(ByteSize(bytes))
                if bytes > 0 && bytes < LEAST_WITHOUT_UNIT && text.trim().parse() == Ok(bytes) =>
            {
                Err(format!("a limit of {bytes} bytes; did you mean {bytes}GB?"))
            }
            Ok(ByteSize(bytes)) if bytes > 0 => Ok(Self(bytes)),
            _ => Err("expected a number of bytes above 0, such as 20GiB or 512MB".to_owned()),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ScalarText::deserialize(deserializer)?.0.parse().map_err(D::Error::custom)
    }
}

/// Deserializes a placement from a string (`planner=cuda:0,grounder=cuda:1`) or a table by role. In a table,
/// `others` is the device of all other roles.
pub(super) fn placement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Placement>, D::Error> {
    struct TextOrTable;

    impl<'de> Visitor<'de> for TextOrTable {
        type Value = Placement;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a device, or a table of devices by role")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Placement, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Placement, A::Error> {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Devices {
                planner: Option<Device>,
                grounder: Option<Device>,
                answerer: Option<Device>,
                qa: Option<Device>,
                judge: Option<Device>,
                others: Option<Device>,
            }
            let devices = Devices::deserialize(MapAccessDeserializer::new(map))?;
            let named: BTreeMap<Role, Device> = [
                (Role::Planner, devices.planner),
                (Role::Grounder, devices.grounder),
                (Role::Answerer, devices.answerer),
                (Role::Qa, devices.qa),
                (Role::Judge, devices.judge),
            ]
            .into_iter()
            .filter_map(|(role, device)| Some((role, device?)))
            .collect();
            Ok(Placement::by_role(named, devices.others.unwrap_or_default()))
        }
    }

    deserializer.deserialize_any(TextOrTable).map(Some)
}

#[cfg(test)]
mod tests {
    use lumos_tasks::Swap;

    use super::*;
    use crate::spec::RunSpec;

    #[test]
    fn numbers_of_bytes_have_units() {
        let read = |text: &str| text.parse::<MemorySize>().map(|size| size.0);
        assert_eq!(read("20GiB"), Ok(20 << 30));
        assert_eq!(read("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(read("1048576"), Ok(1 << 20));
        assert_eq!(read("4 kB"), Ok(4000));
        for wrong in ["", "GiB", "5 parsecs", "0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("24").unwrap_err().ends_with("did you mean 24GB?"));
    }

    #[test]
    fn a_file_names_devices_as_text_or_by_role() {
        let read = |text: &str| RunSpec::from_toml(text, "run.toml", None).map_err(|error| error.to_string());
        let one = read("device = 'cuda:1'\nmemory = '20GiB'\nswap = 'never'\nplaces = 128").unwrap();
        assert_eq!(one.device, Some(Placement::on(Device::Cuda(1))));
        assert_eq!((one.memory, one.swap), (Some(MemorySize(20 << 30)), Some(Swap::Never)));
        assert_eq!(one.concurrency, Some(128));
        assert_eq!(read("memory = 1048576").unwrap().memory, Some(MemorySize(1 << 20)));
        let text = read("device = 'planner=cuda:0,grounder=cuda:1'").unwrap();
        let table = read("[device]\nplanner = 'cuda:0'\ngrounder = 'cuda:1'").unwrap();
        assert_eq!(text, table);
        let others = read("[device]\nplanner = 'cpu'\nothers = 'cuda:0'").unwrap().device.unwrap();
        assert_eq!((others.of(Role::Planner), others.of(Role::Qa)), (Device::Cpu, Device::Cuda(0)));
        let slip = read("[device]\nplaner = 'cpu'").unwrap_err();
        assert!(slip.contains("`device.planer`") && slip.contains("did you mean `planner`?"), "{slip}");
        let unknown = read("device = 'gpu'").unwrap_err();
        assert!(unknown.contains("run.toml:1:") && unknown.contains("unknown device `gpu`"), "{unknown}");
    }
}
