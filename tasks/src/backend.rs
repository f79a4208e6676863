//! Which implementation computes the models of this process.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
    use super::*;

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
