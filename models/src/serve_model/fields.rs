//! Fields of a request object. They are removed one by one, so that unsupported fields remain and can be
//! reported.

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;

/// Fields that have not been read yet.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let wrong = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self::of(fields)),
            Ok(_) => Err(wrong("The body of the request must be a JSON object".to_owned())),
            Err(error) => Err(wrong(format!("The body of the request is not valid JSON: {error}"))),
        }
    }

    /// Returns the fields of an object. A `null` field counts as absent.
    pub(super) fn of(mut fields: Map<String, Value>) -> Self {
        fields.retain(|_, value| !value.is_null());
        Self(fields)
    }

    /// Takes an optional field. `what` describes its type in error messages.
    pub(super) fn take<T: DeserializeOwned>(
        &mut self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        match serde_json::from_value(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(ApiError {
                code: Some("invalid_type"),
                ..ApiError::invalid(name, format!("`{name}` must be {what}"))
            }),
        }
    }

    /// Takes a required field.
    pub(super) fn require<T: DeserializeOwned>(&mut self, name: &str, what: &str) -> Result<T, ApiError> {
        self.take(name, what)?.ok_or_else(|| ApiError {
            code: Some("missing_required_parameter"),
            ..ApiError::invalid(name, format!("`{name}` is missing; it must be {what}"))
        })
    }

    /// Removes a field that is unsupported except for values without effect.
    pub(super) fn only(&mut self, name: &str, asks_nothing: impl Fn(&Value) -> bool) -> Result<(), ApiError> {
        match self.0.remove(name) {
            Some(value) if !asks_nothing(&value) => {
                Err(ApiError::unsupported(name, format!("This server does not support `{name}`")))
            }
            _ => Ok(()),
        }
    }

    /// Removes fields that never affect a reply.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.0.retain(|name, _| !names.contains(&name.as_str()));
    }

    /// Fails if fields are left.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(ApiError {
                code: Some("unknown_parameter"),
                ..ApiError::unsupported(name, format!("Unrecognized request argument supplied: {name}"))
            }),
        }
    }
}
