//! `lumos fetch` and `lumos data`: download benchmark data and convert it into lumos's data format.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use lumos_benchmarks::Benchmark;
use lumos_tools::sessions::sql::{Imported, MySqlSettings, SAMPLES, into_mysql, into_sqlite};

use crate::cli::{DataArgs, DataCommand, FetchArgs, ImportSqlArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::fetch::{self, Download, FetchError, Fetched, client};
use crate::settings;

/// `lumos fetch`: downloads and verifies benchmark data.
pub(crate) async fn fetch(arguments: &FetchArgs, quiet: bool) -> CommandResult {
    let names = settings::named(&arguments.tasks);
    let benchmarks: Vec<&'static dyn Benchmark> =
        names.iter().map(|name| settings::benchmark(name)).collect::<Result<_, _>>()?;
    let is_named =
        |name: &str| arguments.tasks.iter().flat_map(|names| names.split(',')).any(|one| one.trim() == name);
    let client = client()?;
    for benchmark in benchmarks {
        if benchmark.downloads().is_empty() {
            let name = benchmark.name();
            // A pattern selects only benchmarks that can be downloaded.
            if !is_named(name) {
                eprintln!("skipped {name}: its authors distribute the files themselves (see docs/{name}.md)");
                continue;
            }
            return Err(Failure::input(format!(
                "cannot download {name}: only its authors distribute the files"
            ))
            .hint(format!("see docs/{name}.md for how to get the files and where to put them")));
        }
        for source in benchmark.downloads() {
            let url = match &arguments.mirror {
                Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), source.file),
                None => source.url.to_owned(),
            };
            let download = Download {
                url,
                destination: arguments.data.join(source.file),
                sha256: source.sha256.to_owned(),
            };
            let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
            if let Ok(style) =
                ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            {
                bar.set_style(style);
            }
            bar.set_message(source.file);
            let fetched = fetch::fetch(&client, &download, arguments.force, |have, total| {
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(have);
            })
            .await;
            bar.finish_and_clear();
            match fetched.map_err(download_failure)? {
                Fetched::Present => println!("{}: present, sha256 verified", download.destination.display()),
                Fetched::Downloaded { bytes } => {
                    println!("{}: {bytes} bytes, sha256 verified", download.destination.display());
                }
            }
        }
    }
    Ok(Exit::Complete)
}

/// Converts the error. The hint for a local write error is a writable folder, because retrying does not help.
fn download_failure(error: FetchError) -> Failure {
    match error {
        FetchError::Local { path, source } if source.kind() == ErrorKind::StorageFull => {
            Failure::from(anyhow::Error::new(source).context(format!("cannot write to `{}`", path.display())))
        }
        FetchError::Local { path, source } => {
            Failure::input(format!("cannot write to `{}`: {source}", path.display()))
                .hint("set a writable folder with --data PATH (LUMOS_DATA)")
        }
        FetchError::Download(error) => Failure::from(error)
            .hint("run the same command again to continue the download, or use a mirror with --mirror URL"),
    }
}

/// `lumos data`: converts downloaded files into lumos's data format.
pub(crate) async fn convert(arguments: DataArgs) -> CommandResult {
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
