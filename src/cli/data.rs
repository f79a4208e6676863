//! The command line of `lumos data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `data`.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Build databases of a MySQL dump: SQLite files, or databases of a MySQL or MariaDB server
    ImportSql(ImportSqlArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  lumos fetch intercode_sql && lumos data import-sql data/intercode_sql/ic_spider_dbs.sql
  LUMOS_SQL_URL=mysql://root:…@127.0.0.1:3306 lumos data import-sql data/intercode_sql/ic_spider_dbs.sql --to mysql

Of the dump only databases, tables and rows are taken: accounts and rights that it sets are not.";

/// Options of `data import-sql`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportSqlArgs {
    /// The dump, or `samples` for the database of the shipped samples.
    #[arg(value_name = "DUMP")]
    pub(crate) dump: PathBuf,
    /// Where to: sqlite (files beside the dump), sqlite:<folder>, mysql (LUMOS_SQL_URL), mysql://<host>:<port>
    /// (LUMOS_SQL_USER, LUMOS_SQL_PASSWORD).
    #[arg(long, value_name = "BACKEND", default_value = "sqlite")]
    pub(crate) to: String,
    /// Drop databases of the same name on the server first.
    #[arg(long)]
    pub(crate) replace: bool,
}
