//! The tool `abacus`, with one backend: `--tool abacus=integers`.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_eval::tasks::{ExternalReply, ToolCall, ToolReply};
use lumos_eval::tools::{BackendDescription, BackendError, BackendResources, NamedBackend, ToolFault, Tools};

pub(crate) static INTEGERS: BackendDescription = BackendDescription {
    tool: Some("abacus"),
    forms: &["integers"],
    parse: |_, backend| Ok((backend == "integers").then(|| Box::new(Integers) as Box<dyn NamedBackend>)),
};

/// Sums, differences and products of whole numbers, from left to right.
struct Integers;

impl NamedBackend for Integers {
    fn version(&self) -> u32 {
        1
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Tools for Integers {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::External { arguments, .. } = call else {
            return Err(ToolFault { tool: "abacus".into(), message: "unsupported call".to_owned() });
        };
        let formula = arguments["formula"].as_str().unwrap_or_default();
        // A formula that the tool cannot compute is a mistake of the agent, not a failure of the tool.
        Ok(ToolReply::External(match sum(formula) {
            Some(sum) => ExternalReply::Text(sum.to_string()),
            None => ExternalReply::Refused(format!("cannot compute `{formula}`")),
        }))
    }
}

/// Computes a formula such as `3 + 5 * 2` from left to right, which is 16.
fn sum(formula: &str) -> Option<i64> {
    let mut words = formula.split_whitespace();
    let mut sum: i64 = words.next()?.parse().ok()?;
    while let Some(sign) = words.next() {
        let number: i64 = words.next()?.parse().ok()?;
        sum = match sign {
            "+" => sum.checked_add(number)?,
            "-" => sum.checked_sub(number)?,
            "*" => sum.checked_mul(number)?,
            _ => return None,
        };
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_numbers_and_signs() {
        assert_eq!(sum("3 + 5 - 1"), Some(7));
        assert_eq!(sum("3 + 5 * 2"), Some(16));
        assert_eq!(sum("-3"), Some(-3));
        for wrong in ["", "3 +", "3 / 5", "3+5", "three"] {
            assert_eq!(sum(wrong), None, "{wrong}");
        }
    }
}
