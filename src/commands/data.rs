//! `lumos data`: converts downloaded files into lumos's data format.

use std::path::{Path, PathBuf};

use lumos_tools::sessions::sql::{Imported, MySqlSettings, SAMPLES, into_mysql, into_sqlite};

use crate::cli::{DataArgs, DataCommand, ImportSqlArgs};
use crate::exit::{CommandResult, Exit, Failure};

pub(crate) async fn run(arguments: DataArgs) -> CommandResult {
    match arguments.command {
        DataCommand::ImportSql(arguments) => import(arguments).await,
    }
}

async fn import(ImportSqlArgs { dump, to, replace }: ImportSqlArgs) -> CommandResult {
    let text = if dump == Path::new("samples") {
        SAMPLES.to_owned()
    } else {
        std::fs::read_to_string(&dump)
            .map_err(|error| Failure::input(format!("failed to read `{}`: {error}", dump.display())))?
    };
    let (imported, place) = if let Some(folder) = sqlite_folder(&to, &dump) {
        let place = folder.display().to_string();
        let imported = tokio::task::spawn_blocking(move || into_sqlite(&text, &folder)).await?;
        (imported.map_err(Failure::usage)?, place)
    } else {
        let settings = MySqlSettings::named(&to)
            .map_err(|why| Failure::input(format!("invalid value for --to: {why}")))?;
        (into_mysql(&text, &settings, replace).await.map_err(Failure::usage)?, settings.address())
    };
    told(&imported, &place);
    Ok(if imported.is_empty() { Exit::NothingSelected } else { Exit::Complete })
}

/// Returns the folder for SQLite files, or `None` if the target is a server.
fn sqlite_folder(to: &str, dump: &Path) -> Option<PathBuf> {
    match to.split_once(':') {
        None if to == "sqlite" => Some(dump.parent().unwrap_or(Path::new("")).join("sqlite")),
        Some(("sqlite", folder)) => Some(PathBuf::from(folder)),
        _ => None,
    }
}

fn told(imported: &Imported, place: &str) {
    for (database, tables) in imported {
        println!("{database}: {tables} tables");
    }
    println!("{}: {} databases", place, imported.len());
}
