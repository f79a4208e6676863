//! Reads `quantization_config` of config.json: which packed weights a checkpoint has ([`Packing`]), or why it
//! cannot be loaded.
//!
//! Every method that is not known is refused, because its tensors would be read as something else.

use std::path::Path;

use serde_json::{Map, Value};

use super::packed::{Layout, Packing};
use crate::error::LoadError;

const FIELD: &str = "quantization_config";
const REMEDY: &str = "hint: use the model's unquantized weights, a GGUF file, or AWQ or GPTQ weights";

/// The packed weights that config.json describes; `None` if the weights are plain.
///
/// # Errors
/// Fails if the method is not supported; the message names the file and the field.
pub(super) fn packing(config: &[u8], file: &Path) -> Result<Option<Packing>, LoadError> {
    let config: Map<String, Value> = serde_json::from_slice(config).map_err(LoadError::json(file))?;
    let unsupported = |reason: String| LoadError::Unsupported { file: file.to_owned(), reason };
    if config.get("compression_config").is_some_and(|value| !value.is_null()) {
        return Err(unsupported(format!("compression_config is not supported; {REMEDY}")));
    }
    let fields = match config.get(FIELD) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            let reason = format!("{FIELD} is not an object");
            return Err(LoadError::InvalidConfig { file: file.to_owned(), reason });
        }
    };
    Fields(fields).packing().map(Some).map_err(|reason| unsupported(format!("{reason}; {REMEDY}")))
}

/// The fields of `quantization_config`. Errors name the field and its value.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn packing(&self) -> Result<Packing, String> {
        let method = self.text("quant_method")?.ok_or(format!("{FIELD}.quant_method is missing"))?;
        match method.as_str() {
            "awq" => self.awq(),
            "gptq" => self.gptq(),
            other => Err(format!("{FIELD}.quant_method {other:?} is not supported")),
        }
    }

    fn awq(&self) -> Result<Packing, String> {
        let format = self.one_of(&["version", "checkpoint_format", "format"], &["gemm"])?;
        if format.is_none() {
            return Err(format!("{FIELD}.version is missing: expected \"gemm\""));
        }
        self.bits(&["bits", "w_bit"], &[4])?;
        Ok(Packing { layout: Layout::Awq, group_size: self.group_size(&["group_size", "q_group_size"])? })
    }

    fn gptq(&self) -> Result<Packing, String> {
        let formats = ["gptq", "gptq_v2"];
        let format = self.one_of(&["checkpoint_format", "format"], &formats)?;
        if self.0.get("is_marlin_format") == Some(&Value::Bool(true)) {
            return Err(format!("{FIELD}.is_marlin_format true is not supported"));
        }
        self.one_of(&["pack_dtype"], &["int32", "torch.int32"])?;
        let bits = self.bits(&["bits"], &[4, 8])?;
        let layout = Layout::Gptq { bits, zeros_less_one: format.as_deref() != Some(formats[1]) };
        Ok(Packing { layout, group_size: self.group_size(&["group_size"])? })
    }

    /// A text in lower case.
    fn text(&self, field: &str) -> Result<Option<String>, String> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.to_lowercase())),
            Some(other) => Err(format!("{FIELD}.{field} {other} is not a text")),
        }
    }

    /// The value of the fields, each of which must be missing or one of the allowed texts.
    fn one_of(&self, fields: &[&str], allowed: &[&str]) -> Result<Option<String>, String> {
        let mut found = None;
        for field in fields {
            let Some(text) = self.text(field)? else { continue };
            if !allowed.contains(&text.as_str()) {
                return Err(format!(
                    "{FIELD}.{field} {text:?} is not supported: expected {}",
                    allowed.join(" or ")
                ));
            }
            found = found.or(Some(text));
        }
        Ok(found)
    }

    /// The first of the fields that exists, as an integer.
    fn integer<'a>(&self, fields: &[&'a str]) -> Result<(&'a str, i64), String> {
        let found = fields.iter().find_map(|field| Some((*field, self.0.get(*field)?)));
        let (field, value) = found.ok_or(format!("{FIELD}.{} is missing", fields[0]))?;
        let number = value.as_i64().ok_or(format!("{FIELD}.{field} {value} is not a whole number"))?;
        Ok((field, number))
    }

    fn bits(&self, fields: &[&str], allowed: &[usize]) -> Result<usize, String> {
        let (field, bits) = self.integer(fields)?;
        let found = allowed.iter().copied().find(|allowed| i64::try_from(*allowed) == Ok(bits));
        found.ok_or_else(|| {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            format!("{FIELD}.{field} {bits} is not supported: expected {}", allowed.join(" or "))
        })
    }

    /// Inputs per group; `None` for -1, which stands for all.
    fn group_size(&self, fields: &[&str]) -> Result<Option<usize>, String> {
        match self.integer(fields)? {
            (_, -1) => Ok(None),
            (field, size) => {
                let size = usize::try_from(size).ok().filter(|size| *size > 0);
                size.map(Some).ok_or(format!("{FIELD}.{field} is not positive or -1"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(fields: &Value) -> Result<Option<Packing>, LoadError> {
        let config = json!({"model_type": "llama", FIELD: fields}).to_string();
        packing(config.as_bytes(), Path::new("config.json"))
    }

    fn gptq(bits: usize, zeros_less_one: bool, group_size: Option<usize>) -> Packing {
        Packing { layout: Layout::Gptq { bits, zeros_less_one }, group_size }
    }

    /// As AutoAWQ, AutoGPTQ, GPTQModel and transformers write them.
    #[test]
    fn published_configurations_are_read() {
        let awq = json!({"bits": 4, "group_size": 128, "modules_to_not_convert": null, "quant_method": "awq",
                         "version": "gemm", "zero_point": true});
        assert_eq!(read(&awq).unwrap(), Some(Packing { layout: Layout::Awq, group_size: Some(128) }));
        let own = json!({"quant_method": "awq", "zero_point": true, "q_group_size": -1, "w_bit": 4, "version": "GEMM"});
        assert_eq!(read(&own).unwrap(), Some(Packing { layout: Layout::Awq, group_size: None }));
        let old = json!({"bits": 4, "group_size": 128, "damp_percent": 0.1, "desc_act": true, "sym": true,
                         "true_sequential": true, "quant_method": "gptq"});
        assert_eq!(read(&old).unwrap(), Some(gptq(4, true, Some(128))));
        let new = json!({"bits": 8, "checkpoint_format": "gptq_v2", "desc_act": false, "group_size": -1, "lm_head": false,
                         "meta": {"quantizer": ["gptqmodel:1.4.2"]}, "pack_dtype": "int32", "quant_method": "gptq", "sym": false});
        assert_eq!(read(&new).unwrap(), Some(gptq(8, false, None)));
        assert_eq!(read(&Value::Null).unwrap(), None);
        assert_eq!(packing(b"{}", Path::new("config.json")).unwrap(), None);
    }

    #[test]
    fn others_are_refused_by_field() {
        for (method, field) in [
            (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "quant_method \"bitsandbytes\""),
            (json!({"quant_method": "fp8"}), "quant_method \"fp8\""),
            (json!({"quant_method": "compressed-tensors"}), "quant_method \"compressed-tensors\""),
            (json!({"quant_method": "mxfp4"}), "quant_method \"mxfp4\""),
            (json!({"quant_method": "torchao"}), "quant_method \"torchao\""),
            (json!({"quant_method": 3}), "quant_method 3"),
            (json!({"load_in_8bit": true}), "quant_method is missing"),
            (
                json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"}),
                "version \"gemv\"",
            ),
            (json!({"quant_method": "awq", "bits": 4, "group_size": 128}), "version is missing"),
            (json!({"quant_method": "awq", "bits": 3, "group_size": 128, "version": "gemm"}), "bits 3"),
            (json!({"quant_method": "gptq", "bits": 3, "group_size": 128}), "bits 3"),
            (json!({"quant_method": "gptq", "bits": 4, "group_size": 0}), "group_size is not positive"),
            (json!({"quant_method": "gptq", "bits": 4}), "group_size is missing"),
            (
                json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"}),
                "checkpoint_format \"marlin\"",
            ),
            (
                json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "is_marlin_format": true}),
                "is_marlin_format",
            ),
            (
                json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "pack_dtype": "int16"}),
                "pack_dtype",
            ),
        ] {
            let error = read(&method).unwrap_err();
            assert!(matches!(error, LoadError::Unsupported { .. }), "{error}");
            let message = error.to_string();
            let field = format!("quantization_config.{field}");
            assert!(message.contains("config.json") && message.contains(&field), "{message} lacks {field}");
        }
        assert!(matches!(read(&json!(1)), Err(LoadError::InvalidConfig { .. })));
    }
}
