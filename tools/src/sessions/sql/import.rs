//! Imports a MySQL dump into SQLite files, or into databases of a server.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use lumos_environments::sql::dump::{self, Build};
use lumos_environments::sql::guard::is_system;
use rusqlite::Connection;
use thiserror::Error;

use super::{MySqlSettings, is_plain};

/// Errors of importing a dump.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A table or rows precede the first database name.
    #[error("the dump has a table before the first database name")]
    NoDatabase,
    /// The name of a database contains characters other than letters, digits and `_`, or is that of a server's own one,
    /// such as `mysql`.
    #[error(
        "invalid database name `{0}`: expected letters, digits and `_`, and none of the server's own databases"
    )]
    Name(String),
    /// A file cannot be written.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// The I/O error.
        source: io::Error,
    },
    /// SQLite rejected a statement.
    #[error("database {database}: {source}")]
    Sqlite {
        /// The database.
        database: String,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The server rejected a statement, or cannot be reached.
    #[error("{address}, database {database}: {source}")]
    MySql {
        /// The address of the server, without user and password.
        address: String,
        /// The database; empty while connecting.
        database: String,
        /// The error of the server or the connection.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This build has no client for MySQL.
    #[error("{0}")]
    NotBuilt(String),
}

/// Number of imported tables by database.
pub type Imported = BTreeMap<String, u64>;

/// Checks a database name, because it becomes a file name, or a database of a server that may be replaced.
fn plain(name: &str) -> Result<&str, ImportError> {
    if is_plain(name) && !is_system(name) { Ok(name) } else { Err(ImportError::Name(name.to_owned())) }
}

/// Creates one SQLite file for each database of a dump: `<folder>/<name>.sqlite`. Files are written under a
/// temporary name and renamed, so that no incomplete file remains. Blocks.
///
/// # Errors
/// See [`ImportError`].
pub fn into_sqlite(dump: &str, folder: &Path) -> Result<Imported, ImportError> {
    let file_error = |file: &Path, source| ImportError::File { file: file.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(|error| file_error(folder, error))?;
    let mut imported = Imported::new();
    let mut open: Option<(String, Connection)> = None;
    let finish = |open: Option<(String, Connection)>| -> Result<(), ImportError> {
        let Some((database, connection)) = open else { return Ok(()) };
        let sqlite = |source| ImportError::Sqlite { database: database.clone(), source };
        connection.execute_batch("COMMIT; VACUUM").map_err(sqlite)?;
        connection.close().map_err(|(_, source)| sqlite(source))?;
        let (aside, file) = places(folder, &database);
        std::fs::rename(&aside, &file).map_err(|error| file_error(&file, error))
    };
    for build in dump::read(dump) {
        match build {
            Build::Database(name) => {
                finish(open.take())?;
                let name = plain(&name)?;
                let (aside, _) = places(folder, name);
                let _ = std::fs::remove_file(&aside);
                let sqlite = |source| ImportError::Sqlite { database: name.to_owned(), source };
                let connection = Connection::open(&aside).map_err(sqlite)?;
                connection
                    .execute_batch("PRAGMA foreign_keys=OFF; PRAGMA synchronous=OFF; BEGIN")
                    .map_err(sqlite)?;
                imported.insert(name.to_owned(), 0);
                open = Some((name.to_owned(), connection));
            }
            Build::Table(table) => {
                let (database, connection) = open.as_ref().ok_or(ImportError::NoDatabase)?;
                let sqlite = |source| ImportError::Sqlite { database: database.clone(), source };
                connection.execute_batch(&table.to_sqlite()).map_err(sqlite)?;
                *imported.entry(database.clone()).or_default() += 1;
            }
            Build::Rows(rows) => {
                let (database, connection) = open.as_ref().ok_or(ImportError::NoDatabase)?;
                let sqlite = |source| ImportError::Sqlite { database: database.clone(), source };
                connection.execute_batch(&dump::rows_to_sqlite(rows)).map_err(sqlite)?;
            }
        }
    }
    finish(open.take())?;
    Ok(imported)
}

fn places(folder: &Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    (folder.join(format!(".{name}.sqlite.part")), folder.join(format!("{name}.sqlite")))
}

/// Creates the databases of a dump on a server. If a database already exists, it is dropped first if
/// `replace` is set; otherwise this is an error.
///
/// # Errors
/// See [`ImportError`].
#[cfg(feature = "mysql")]
pub async fn into_mysql(
    dump: &str,
    settings: &MySqlSettings,
    replace: bool,
) -> Result<Imported, ImportError> {
    use super::mysql::{connect, execute};

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
                let quoted = dump::quoted(&name);
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

/// Reports that this build has no client for MySQL.
///
/// # Errors
/// Always [`ImportError::NotBuilt`].
#[cfg(not(feature = "mysql"))]
pub async fn into_mysql(
    _dump: &str,
    _settings: &MySqlSettings,
    _replace: bool,
) -> Result<Imported, ImportError> {
    Err(ImportError::NotBuilt(crate::tool::not_built_with("mysql")))
}

#[cfg(test)]
mod tests {
    use lumos_environments::sql::LIBRARY;

    use super::*;

    #[test]
    fn a_dump_becomes_files() {
        let folder = tempfile::tempdir().unwrap();
        let imported = into_sqlite(LIBRARY, folder.path()).unwrap();
        assert_eq!(imported, Imported::from([("library".to_owned(), 4)]));
        let file = Connection::open(folder.path().join("library.sqlite")).unwrap();
        let name: String = file
            .query_row("SELECT name FROM author WHERE country = 'IRELAND'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(name, "Lena O'Dwyer");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        for dump in ["USE `../x`; ", "USE mysql;"] {
            assert!(matches!(into_sqlite(dump, folder.path()), Err(ImportError::Name(_))), "{dump}");
        }
    }
}
