//! Values of a specification that have several notations.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of requests that a backend computes at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BatchSize {
    /// As many as fit in memory.
    #[default]
    Auto,
    /// This number.
    Fixed(u32),
}

impl FromStr for BatchSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(size) if size > 0 => Ok(Self::Fixed(size)),
                _ => Err(format!("invalid batch size `{text}`: expected auto or a positive integer")),
            },
        }
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Fixed(size) => size.fmt(formatter),
        }
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(size) => serializer.serialize_u32(*size),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = ScalarText::deserialize(deserializer)?;
        text.0.parse().map_err(D::Error::custom)
    }
}

/// Number of faulted items that a run tolerates before it stops.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum FailOnError {
    /// Never stop.
    #[default]
    Never,
    /// Stop at the first faulted item.
    First,
    /// Tolerate this fraction of the planned items.
    Fraction(f64),
    /// Tolerate this number; stop at the next faulted item.
    Count(u64),
}

impl FailOnError {
    /// Whether a run of `planned` units stops when `faulted` of them have no attempts left.
    pub(crate) fn stops(self, faulted: u64, planned: u64) -> bool {
        match self {
            Self::Never => false,
            Self::First => faulted > 0,
            #[expect(clippy::cast_precision_loss, reason = "counts of items are far below 2^52")]
            Self::Fraction(fraction) => faulted > 0 && faulted as f64 > fraction * planned as f64,
            Self::Count(count) => faulted > count,
        }
    }
}

impl FromStr for FailOnError {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "invalid value `{text}` for fail_on_error: expected true, false, a share below 1 or a count"
            )
        };
        match text {
            "true" => return Ok(Self::First),
            "false" => return Ok(Self::Never),
            _ => {}
        }
        let number: f64 = text.parse().map_err(|_| refused())?;
        if number > 0.0 && number < 1.0 {
            Ok(Self::Fraction(number))
        } else {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            let count = number as u64;
            #[expect(clippy::cast_precision_loss, reason = "compared with what it was read from")]
            let whole = number >= 0.0 && number.is_finite() && count as f64 == number;
            if whole { Ok(Self::Count(count)) } else { Err(refused()) }
        }
    }
}

impl fmt::Display for FailOnError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => formatter.write_str("false"),
            Self::First => formatter.write_str("true"),
            Self::Fraction(fraction) => fraction.fmt(formatter),
            Self::Count(count) => count.fmt(formatter),
        }
    }
}

impl Serialize for FailOnError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_bool(false),
            Self::First => serializer.serialize_bool(true),
            Self::Fraction(fraction) => serializer.serialize_f64(*fraction),
            Self::Count(count) => serializer.serialize_u64(*count),
        }
    }
}

impl<'de> Deserialize<'de> for FailOnError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = ScalarText::deserialize(deserializer)?;
        text.0.parse().map_err(D::Error::custom)
    }
}

/// The text of a number, a boolean or a string.
pub(super) struct ScalarText(pub(super) String);

impl<'de> Deserialize<'de> for ScalarText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = ScalarText;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number, a word, true or false")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ScalarText, E> {
                Ok(ScalarText(text.to_owned()))
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<ScalarText, E> {
                Ok(ScalarText(value.to_string()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<ScalarText, E> {
                Ok(ScalarText(value.to_string()))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<ScalarText, E> {
                Ok(ScalarText(value.to_string()))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<ScalarText, E> {
                Ok(ScalarText(value.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// Largest number of seeds.
const MOST_SEEDS: usize = 10_000;

/// Parses seeds: `0-4,7`.
pub(super) fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let refused = || format!("invalid seeds `{text}`: expected whole numbers from 0 on, such as `0-4,7`");
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u64 = first.trim().parse().map_err(|_| refused())?;
        let last: u64 = last.trim().parse().map_err(|_| refused())?;
        if first > last {
            return Err(refused());
        }
        let room = (MOST_SEEDS - seeds.len()) as u64;
        if last - first >= room {
            return Err(format!("invalid seeds `{text}`: more than {MOST_SEEDS}"));
        }
        seeds.extend(first..=last);
    }
    Ok(seeds)
}

/// Deserializes seeds: a list of numbers and ranges, a number, or a string such as `0-4,7`.
pub(super) fn seeds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    struct Seeds(Vec<u64>);

    impl<'de> Deserialize<'de> for Seeds {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct NumberOrRange;
            impl Visitor<'_> for NumberOrRange {
                type Value = Seeds;
                fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                    formatter.write_str("a seed, or a range such as \"0-4\"")
                }
                fn visit_u64<E: Error>(self, seed: u64) -> Result<Seeds, E> {
                    Ok(Seeds(vec![seed]))
                }
                fn visit_i64<E: Error>(self, seed: i64) -> Result<Seeds, E> {
                    let refused =
                        |_| E::custom(format!("invalid seed {seed}: expected a number of at least 0"));
                    u64::try_from(seed).map(|seed| Seeds(vec![seed])).map_err(refused)
                }
                fn visit_str<E: Error>(self, text: &str) -> Result<Seeds, E> {
                    parse_seeds(text).map(Seeds).map_err(E::custom)
                }
            }
            deserializer.deserialize_any(NumberOrRange)
        }
    }

    let listed: Option<Vec<Seeds>> = one_or_many(deserializer)?;
    let seeds: Option<Vec<u64>> = listed.map(|listed| listed.into_iter().flat_map(|one| one.0).collect());
    if seeds.as_ref().is_some_and(|seeds| seeds.len() > MOST_SEEDS) {
        return Err(D::Error::custom(format!("more than {MOST_SEEDS} seeds")));
    }
    Ok(seeds)
}

/// Deserializes a list, a single value, or a string of comma-separated values.
pub(crate) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("one value or a list")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
            text.split(',').map(|part| T::deserialize(part.trim().into_deserializer())).collect()
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<Vec<T>, E> {
            T::deserialize(value.into_deserializer()).map(|value| vec![value])
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Vec<T>, E> {
            T::deserialize(value.into_deserializer()).map(|value| vec![value])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = sequence.next_element()? {
                values.push(value);
            }
            Ok(values)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(|value| vec![value])
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_reads_and_decides() {
        assert!("true".parse::<FailOnError>().unwrap().stops(1, 100));
        assert!(!FailOnError::Never.stops(100, 100));
        assert!(!FailOnError::Fraction(0.1).stops(10, 100));
        assert!(FailOnError::Fraction(0.1).stops(11, 100));
        assert!(!"3".parse::<FailOnError>().unwrap().stops(3, 100));
        assert!("3".parse::<FailOnError>().unwrap().stops(4, 100));
        assert!("-1".parse::<FailOnError>().is_err());
        assert!("1.5".parse::<FailOnError>().is_err());
        for value in
            [FailOnError::Never, FailOnError::First, FailOnError::Fraction(0.25), FailOnError::Count(7)]
        {
            assert_eq!(value.to_string().parse(), Ok(value));
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<FailOnError>(&json).unwrap(), value);
        }
    }

    #[test]
    fn seeds_are_numbers_and_ranges() {
        assert_eq!(parse_seeds("0-2, 7,5"), Ok(vec![0, 1, 2, 7, 5]));
        assert_eq!(parse_seeds("0-9999").map(|seeds| seeds.len()), Ok(MOST_SEEDS));
        let every = format!("0-{}", u64::MAX);
        for (text, why) in
            [("", "whole"), ("3-1", "whole"), ("-1", "whole"), ("a", "whole"), (&every, "more than")]
        {
            let error = parse_seeds(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse_seeds("0-5000,0-5000").unwrap_err().contains("more than 10000"));
    }

    #[test]
    fn batch_sizes_read() {
        assert_eq!("auto".parse(), Ok(BatchSize::Auto));
        assert_eq!("8".parse(), Ok(BatchSize::Fixed(8)));
        assert!("0".parse::<BatchSize>().is_err());
    }
}
