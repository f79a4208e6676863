//! Imports a MySQL dump into databases of a server.

use lumos_environments::sql::dump::{self, Build, quoted};

use super::connect::{connect, execute};
use crate::sessions::sql::import::plain;
use crate::sessions::sql::{ImportError, Imported, MySqlSettings};

/// Creates the databases of a dump on a server. If a database already exists, it is dropped first if
/// `replace` is set; otherwise this is an error.
///
/// # Errors
/// See [`ImportError`].
pub async fn into_mysql(
    dump: &str,
    settings: &MySqlSettings,
    replace: bool,
) -> Result<Imported, ImportError> {
    let failed = |database: &str, source: sqlx::Error| ImportError::MySql {
        address: settings.address(),
        database: database.to_owned(),
        source: source.into(),
    };
    let mut connection = connect(settings, settings.options()).await.map_err(|error| failed("", error))?;
    let checks = "SET SESSION foreign_key_checks=0, unique_checks=0, sql_mode='NO_AUTO_VALUE_ON_ZERO'";
    execute(&mut connection.sql, checks.to_owned()).await.map_err(|error| failed("", error))?;
    let mut imported = Imported::new();
    let mut database = None;
    for build in dump::read(dump) {
        let (name, statements) = match build {
            Build::Database(name) => {
                let name = plain(&name)?.to_owned();
                imported.insert(name.clone(), 0);
                database = Some(name.clone());
                let quoted = quoted(&name);
                let mut statements = vec![
                    format!("CREATE DATABASE {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
                    format!("USE {quoted}"),
                ];
                if replace {
                    statements.insert(0, format!("DROP DATABASE IF EXISTS {quoted}"));
                }
                (name, statements)
            }
            Build::Table(table) => {
                let name = database.clone().ok_or(ImportError::NoDatabase)?;
                *imported.entry(name.clone()).or_default() += 1;
                // MariaDB does not support the collations of MySQL 8; these two are equivalent here.
                (name, vec![table.statement.replace("utf8mb4_0900_ai_ci", "utf8mb4_general_ci")])
            }
            Build::Rows(rows) => (database.clone().ok_or(ImportError::NoDatabase)?, vec![rows.to_owned()]),
        };
        for statement in statements {
            execute(&mut connection.sql, statement).await.map_err(|error| failed(&name, error))?;
        }
    }
    connection.close().await;
    Ok(imported)
}
