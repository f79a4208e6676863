//! Parses and validates `config.json` of BERT-family encoders.

use std::path::Path;

use serde::Deserialize;

use crate::error::LoadError;

/// Maximum sequence length of the published reader and cross-encoders.
const LONGEST: usize = 512;

/// The shape of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EncoderConfig {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) norm_epsilon: f32,
    /// Rows of the position embedding.
    pub(super) positions: usize,
    /// Rows of the token type embedding; 0 if there is none.
    pub(super) token_types: usize,
    /// The padding id.
    pub(super) padding: u32,
    pub(super) family: Family,
}

/// Differences between the supported encoder families.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Family {
    /// BERT (Devlin et al. 2018): positions count from 0, and padding is not attended to.
    Bert,
    /// RoBERTa (Liu et al. 2019): positions count from one above the padding id and skip padding.
    Roberta,
    /// DeBERTa of the second or third version (He et al. 2021): distances between tokens instead of
    /// positions.
    Deberta(Distances),
}

/// How distances between tokens map to buckets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distances {
    /// Number of distance buckets, in both directions together: half of them cover one distance each, the
    /// further ones are logarithmic. Zero: each distance has its own.
    pub(super) buckets: usize,
    /// The largest distance of the furthest bucket.
    pub(super) furthest: usize,
    /// Whether the embedding of distances is normalized.
    pub(super) normed: bool,
}

impl Distances {
    /// Half of the rows of the distance embedding.
    pub(super) fn span(&self) -> usize {
        if self.buckets > 0 { self.buckets } else { self.furthest }
    }

    /// The row of the embedding for a distance, `query - key` in tokens (`make_log_bucket_position` of
    /// transformers' `modeling_deberta_v2.py`).
    pub(super) fn row(&self, distance: isize) -> usize {
        let (span, size) = (self.span(), distance.unsigned_abs());
        let middle = self.buckets / 2;
        let size = if self.buckets == 0 || size <= middle {
            size
        } else {
            let logarithm = (size as f32 / middle as f32).ln();
            let whole = ((self.furthest - 1) as f32 / middle as f32).ln();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let further = (logarithm / whole * (middle - 1) as f32).ceil() as usize;
            middle + further
        };
        if distance < 0 { span.saturating_sub(size) } else { (span + size).min(2 * span - 1) }
    }
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f64,
    max_position_embeddings: usize,
    #[serde(default = "usual_token_types")]
    type_vocab_size: usize,
    #[serde(default)]
    pad_token_id: u32,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    #[serde(default)]
    projection_dim: usize,
    embedding_size: Option<usize>,
    #[serde(default)]
    relative_attention: bool,
    #[serde(default)]
    share_att_key: bool,
    #[serde(default)]
    position_biased_input: Option<bool>,
    #[serde(default)]
    position_buckets: i64,
    #[serde(default)]
    max_relative_positions: i64,
    #[serde(default)]
    pos_att_type: PositionAttention,
    norm_rel_ebd: Option<String>,
    #[serde(default)]
    conv_kernel_size: i64,
    pooler_hidden_act: Option<String>,
}

/// The `pos_att_type` setting, as a list or joined by bars.
#[derive(Deserialize)]
#[serde(untagged)]
enum PositionAttention {
    Joined(String),
    Listed(Vec<String>),
}

impl Default for PositionAttention {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl PositionAttention {
    /// Whether it contains exactly content-to-position and position-to-content.
    fn is_both(&self) -> bool {
        let mut parts: Vec<String> = match self {
            Self::Joined(joined) => {
                joined.to_lowercase().split('|').map(|part| part.trim().to_owned()).collect()
            }
            Self::Listed(parts) => parts.iter().map(|part| part.to_lowercase()).collect(),
        };
        parts.sort_unstable();
        parts == ["c2p", "p2c"]
    }
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn usual_token_types() -> usize {
    2
}

impl EncoderConfig {
    /// Parses config.json; `file` is its path in error messages.
    pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Self, LoadError> {
        let raw: RawConfig = serde_json::from_slice(bytes).map_err(LoadError::json(file))?;
        let invalid = |reason: String| LoadError::InvalidConfig { file: file.to_owned(), reason };
        let is_deberta = raw.model_type.as_deref() == Some("deberta-v2");
        for (name, value) in [
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", raw.num_attention_heads),
            ("max_position_embeddings", raw.max_position_embeddings),
            ("type_vocab_size", if is_deberta { raw.type_vocab_size + 1 } else { raw.type_vocab_size }),
        ] {
            if value == 0 || value > 1 << 20 {
                return Err(invalid(format!("{name} is {value}")));
            }
        }
        if !raw.hidden_size.is_multiple_of(raw.num_attention_heads) {
            let (hidden, heads) = (raw.hidden_size, raw.num_attention_heads);
            return Err(invalid(format!("hidden_size {hidden} is not a multiple of {heads} heads")));
        }
        if !matches!(raw.hidden_act.as_deref(), None | Some("gelu")) {
            return Err(invalid("hidden_act is not gelu".to_owned()));
        }
        if !matches!(raw.position_embedding_type.as_deref(), None | Some("absolute")) {
            return Err(invalid("position_embedding_type is not absolute".to_owned()));
        }
        if raw.projection_dim != 0 {
            return Err(invalid("projection_dim is not 0, which no published reader has".to_owned()));
        }
        if !(raw.layer_norm_eps.is_finite() && raw.layer_norm_eps > 0.0) {
            return Err(invalid(format!("layer_norm_eps is {}", raw.layer_norm_eps)));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let norm_epsilon = raw.layer_norm_eps as f32;
        Ok(Self {
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            norm_epsilon,
            positions: raw.max_position_embeddings,
            token_types: raw.type_vocab_size,
            padding: raw.pad_token_id,
            family: match raw.model_type.as_deref() {
                Some("roberta") => Family::Roberta,
                Some("deberta-v2") => Family::Deberta(raw.distances().map_err(invalid)?),
                _ => Family::Bert,
            },
        })
    }

    /// Maximum sequence length in tokens; longer input is truncated.
    pub(super) fn longest(&self) -> usize {
        let positions = match self.family {
            Family::Bert | Family::Deberta(_) => self.positions,
            Family::Roberta => self.positions.saturating_sub(self.padding as usize + 1),
        };
        positions.min(LONGEST)
    }
}

impl RawConfig {
    /// The distance settings of a DeBERTa, or the setting that is not supported.
    fn distances(&self) -> Result<Distances, String> {
        for (name, is_wrong) in [
            ("relative_attention is not true", !self.relative_attention),
            ("share_att_key is not true", !self.share_att_key),
            ("position_biased_input is not false", self.position_biased_input != Some(false)),
            ("type_vocab_size is not 0", self.type_vocab_size != 0),
            ("pos_att_type is not p2c and c2p", !self.pos_att_type.is_both()),
            ("conv_kernel_size is not 0", self.conv_kernel_size > 0),
            ("embedding_size differs from hidden_size", {
                self.embedding_size.is_some_and(|size| size != self.hidden_size)
            }),
            ("pooler_hidden_act is not gelu", {
                !matches!(self.pooler_hidden_act.as_deref(), None | Some("gelu"))
            }),
        ] {
            if is_wrong {
                return Err(name.to_owned());
            }
        }
        let normed = match self.norm_rel_ebd.as_deref() {
            None | Some("none") => false,
            Some("layer_norm") => true,
            Some(other) => return Err(format!("norm_rel_ebd is {other:?}")),
        };
        let furthest = match usize::try_from(self.max_relative_positions) {
            Ok(furthest) if furthest > 0 => furthest,
            _ => self.max_position_embeddings,
        };
        let buckets = usize::try_from(self.position_buckets).unwrap_or(0);
        if furthest > 1 << 16
            || buckets == 1
            || buckets > 1 << 16
            || (buckets > 0 && furthest <= buckets / 2 + 1)
        {
            return Err(format!("position_buckets is {buckets} for distances up to {furthest}"));
        }
        Ok(Distances { buckets, furthest, normed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#""hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
        "num_attention_heads":4,"max_position_embeddings":512"#;

    fn parse(more: &str) -> Result<EncoderConfig, LoadError> {
        EncoderConfig::parse(format!("{{{BASE}{more}}}").as_bytes(), Path::new("config.json"))
    }

    #[test]
    fn what_is_not_computed_is_refused() {
        let config = parse("").unwrap();
        assert_eq!((config.token_types, config.padding, config.norm_epsilon), (2, 0, 1e-12));
        for more in [
            r#","hidden_act":"relu""#,
            r#","position_embedding_type":"relative_key""#,
            r#","projection_dim":128"#,
            r#","layer_norm_eps":0"#,
            r#","type_vocab_size":0"#,
        ] {
            let error = parse(more).unwrap_err().to_string();
            assert!(error.contains("config.json"), "{error}");
        }
    }

    const DEBERTA: &str = r#","model_type":"deberta-v2","relative_attention":true,"share_att_key":true,
        "position_biased_input":false,"type_vocab_size":0,"norm_rel_ebd":"layer_norm","position_buckets":256"#;

    #[test]
    fn a_deberta_that_is_not_computed_is_refused() {
        let joined = parse(&format!(r#"{DEBERTA},"pos_att_type":"p2c|c2p""#)).unwrap();
        let listed = parse(&format!(r#"{DEBERTA},"pos_att_type":["c2p","p2c"]"#)).unwrap();
        assert_eq!(joined, listed);
        assert_eq!(joined.family, Family::Deberta(Distances { buckets: 256, furthest: 512, normed: true }));
        for more in [
            r#","pos_att_type":"c2p""#,
            r#","pos_att_type":"p2c|c2p","conv_kernel_size":3"#,
            r#","pos_att_type":"p2c|c2p","embedding_size":32"#,
            r#","pos_att_type":"p2c|c2p","max_relative_positions":100"#,
        ] {
            let error = parse(&format!("{DEBERTA}{more}")).unwrap_err().to_string();
            assert!(error.contains("config.json"), "{error}");
        }
    }

    #[test]
    fn near_distances_have_a_row_each_and_far_ones_share() {
        let distances = Distances { buckets: 256, furthest: 512, normed: true };
        let rows = [0, 1, -1, 128, 129, -128, 511, -511, 600, -600];
        let expected = [256, 257, 255, 384, 385, 128, 511, 1, 511, 0];
        for (distance, row) in rows.into_iter().zip(expected) {
            assert_eq!(distances.row(distance), row, "{distance}");
        }
        let each = Distances { buckets: 0, furthest: 4, normed: false };
        let rows: Vec<usize> = (-6..=6).map(|distance| each.row(distance)).collect();
        assert_eq!(rows, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]);
    }
}
