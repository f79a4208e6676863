//! The module `mcp` of a build without the feature `mcp`: every use is an error.

use crate::backend::{BackendDescription, BackendError};
use crate::tool::not_built_with;

/// `NAME=mcp:…`.
pub(crate) const BACKEND: BackendDescription = BackendDescription {
    tool: None,
    forms: &[],
    parse: |_, backend| match backend.starts_with("mcp:") {
        true => Err(BackendError::Unusable(not_built_with("mcp"))),
        false => Ok(None),
    },
};
