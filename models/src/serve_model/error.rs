//! Errors in OpenAI's format: a status and `{"error": {"message", "type", "param", "code"}}`
//! (<https://platform.openai.com/docs/guides/error-codes>).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lumos_engine::GenerateError;
use serde_json::{Value, json};

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field of the request that caused the error.
    pub(super) param: Option<String>,
    /// Machine-readable code.
    pub(super) code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: Some(code) }
    }

    /// A field has an invalid value.
    pub(super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).about(param)
    }

    /// A field requests an unsupported feature.
    pub(super) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).about(param)
    }

    fn about(self, param: &str) -> Self {
        Self { param: Some(param.to_owned()), ..self }
    }

    /// The server has no model with this name.
    pub(super) fn no_such_model(name: &str, known: &[&str]) -> Self {
        let known = known.join("`, `");
        let message = format!("The model `{name}` does not exist; this server has `{known}`");
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message).about("model")
    }

    /// Returns OpenAI's `type` of the error.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// Returns the body of the response.
    pub(super) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl From<GenerateError> for ApiError {
    fn from(error: GenerateError) -> Self {
        let message = error.to_string();
        match error {
            GenerateError::PromptTooLong { tokens, limit } => {
                let message = format!(
                    "This model's maximum context length is {limit} tokens, prompt and completion together; the \
                     prompt has {tokens} tokens. Shorten the prompt"
                );
                Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
            }
            GenerateError::TextTooLong { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about("prompt")
            }
            GenerateError::TooLargeForMemory { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about("max_tokens")
            }
            GenerateError::EmptyPrompt | GenerateError::UnknownToken { .. } | GenerateError::Tokenizer(_) => {
                Self::invalid("prompt", message)
            }
            GenerateError::InvalidSampling(_) => Self::invalid("temperature", message),
            GenerateError::InvalidStop(_) => Self::invalid("stop", message),
            GenerateError::ShutDown => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "The server is shutting down")
            }
            GenerateError::DeviceLost(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "gpu_lost", message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "generation_failed", message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_openai_s_form() {
        let error = ApiError::from(GenerateError::PromptTooLong { tokens: 30, limit: 16 });
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        let body = error.body();
        assert_eq!(body["error"]["code"], "context_length_exceeded");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert!(body["error"]["message"].as_str().unwrap().contains("maximum context length is 16 tokens"));
        let error = ApiError::no_such_model("gpt-5", &["a", "b"]);
        assert_eq!(
            error.body().to_string(),
            r#"{"error":{"message":"The model `gpt-5` does not exist; this server has `a`, `b`","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        let text = GenerateError::TextTooLong { bytes: 2000, limit: 1000, expansion: 16_384 };
        let error = ApiError::from(text);
        let found = (error.status.as_u16(), error.code, error.param.as_deref());
        assert_eq!(found, (400, Some("context_length_exceeded"), Some("prompt")));
        assert!(error.message.contains("2000 bytes") && error.message.contains("at most 1000"));
        let failed = ApiError::from(GenerateError::NotFinite { position: 1 });
        assert_eq!((failed.status.as_u16(), failed.kind()), (500, "server_error"));
        let lost = ApiError::from(GenerateError::DeviceLost("GPU cuda:0 stopped working".to_owned()));
        assert_eq!((lost.status.as_u16(), lost.kind()), (503, "server_error"));
    }
}
