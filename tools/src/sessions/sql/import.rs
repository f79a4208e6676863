//! Imports a MySQL dump into SQLite files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use lumos_environments::sql::dump::{self, Build};
use rusqlite::Connection;
use thiserror::Error;

use super::is_plain;

/// Errors of importing a dump.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A table or rows precede the first database name.
    #[error("the dump has a table before the first database name")]
    NoDatabase,
    /// The name of a database contains characters other than letters, digits and `_`.
    #[error("invalid database name `{0}`: expected letters, digits and `_`")]
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

/// Checks a database name, because it becomes a file name.
pub(super) fn plain(name: &str) -> Result<&str, ImportError> {
    if is_plain(name) { Ok(name) } else { Err(ImportError::Name(name.to_owned())) }
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
        assert!(matches!(into_sqlite("USE `../x`; ", folder.path()), Err(ImportError::Name(_))));
    }
}
