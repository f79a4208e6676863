//! The module `mysql` of a build without the feature: every use is an error.

use super::{Databases, ImportError, Imported, MySqlSettings};
use crate::tool::not_built_with;

/// Reports that this build has no client for MySQL.
pub(super) fn databases(_: MySqlSettings) -> Result<Box<dyn Databases>, String> {
    Err(not_built_with("mysql"))
}

/// Reports that this build has no client for MySQL.
///
/// # Errors
/// Always [`ImportError::NotBuilt`].
pub async fn into_mysql(
    _dump: &str,
    _settings: &MySqlSettings,
    _replace: bool,
) -> Result<Imported, ImportError> {
    Err(ImportError::NotBuilt(not_built_with("mysql")))
}
