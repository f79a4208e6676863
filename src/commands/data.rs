//! `lumos fetch` and `lumos data`: download benchmark data and convert it into lumos's data format.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use lumos_benchmarks::Benchmark;
use lumos_http::{DownloadError, DownloadHash, HttpClient, HttpDownload, HttpSettings, sha256_of_file};
use lumos_tasks::shell::quoted_path;
use lumos_tools::sessions::sql::{Imported, MySqlSettings, SAMPLES, into_mysql, into_sqlite};

use crate::cli::{DataArgs, DataCommand, FetchArgs, ImportSqlArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::write_line;
use crate::settings;

/// `lumos fetch`: downloads and verifies benchmark data.
pub(crate) async fn fetch(arguments: &FetchArgs, quiet: bool) -> CommandResult {
    let names = settings::named(&arguments.tasks);
    let benchmarks: Vec<&'static dyn Benchmark> =
        names.iter().map(|name| settings::benchmark(name)).collect::<Result<_, _>>()?;
    let is_named =
        |name: &str| arguments.tasks.iter().flat_map(|names| names.split(',')).any(|one| one.trim() == name);
    let client = HttpClient::new(HttpSettings {
        timeout: None,
        retries: 5,
        first_pause: Duration::from_millis(300),
        redirects: Some(Box::new(|_| true)),
        ..HttpSettings::default()
    })
    .map_err(anyhow::Error::msg)?;
    let mut next = Vec::new();
    for benchmark in benchmarks {
        if benchmark.downloads().is_empty() {
            let name = benchmark.name();
            // A pattern selects only benchmarks that can be downloaded.
            if benchmark.definition().is_some() {
                if is_named(name) {
                    let message = format!(
                        "cannot download {name}: the program that adds it has no address for its data"
                    );
                    return Err(Failure::input(message).hint("put the file into the data folder"));
                }
                write_line(format_args!("skipped {name}: it has no address for its data"));
                continue;
            }
            if !is_named(name) {
                write_line(format_args!(
                    "skipped {name}: its authors distribute the files themselves (see docs/{name}.md)"
                ));
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
            let destination = arguments.data.join(source.file);
            let file = HttpDownload {
                url: &url,
                partial: &destination.with_added_extension("part"),
                destination: &destination,
                bytes: None,
                hash: Some(DownloadHash::Sha256(source.sha256)),
            };
            let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
            if let Ok(style) =
                ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            {
                bar.set_style(style);
            }
            bar.set_message(source.file);
            let fetched = download(&client, file, arguments.force, |have, total| {
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(have);
            })
            .await;
            bar.finish_and_clear();
            match fetched.map_err(|error| download_failure(error, file))? {
                None => println!("{}: present, sha256 verified", destination.display()),
                Some(bytes) => println!("{}: {bytes} bytes, sha256 verified", destination.display()),
            }
            next.extend(next_step(benchmark.name(), &destination));
        }
    }
    for command in next {
        println!("next: {command}");
    }
    Ok(Exit::Complete)
}

/// Returns the command that a downloaded file needs before a run can use it: InterCode SQL's dump is imported.
fn next_step(benchmark: &str, file: &Path) -> Option<String> {
    let is_dump =
        benchmark == "intercode_sql" && file.extension().is_some_and(|extension| extension == "sql");
    is_dump.then(|| format!("lumos data import-sql {}", quoted_path(file)))
}

/// Downloads a file unless it exists with the right content. Returns its size in bytes if it was downloaded.
async fn download(
    client: &HttpClient,
    file: HttpDownload<'_>,
    force: bool,
    progress: impl FnMut(u64, Option<u64>),
) -> Result<Option<u64>, DownloadError> {
    let destination = file.destination;
    if let Some(folder) = destination.parent() {
        fs::create_dir_all(folder).map_err(DownloadError::local(folder))?;
    }
    if !force && destination.try_exists().map_err(DownloadError::local(destination))? {
        let found = sha256_of_file(destination).map_err(DownloadError::local(destination))?;
        if file.hash == Some(DownloadHash::Sha256(&found)) {
            return Ok(None);
        }
    }
    client.download(file, progress).await.map(Some)
}

/// Converts the error. The hint for a local write error is a writable folder, because retrying does not help.
fn download_failure(error: DownloadError, file: HttpDownload<'_>) -> Failure {
    let url = file.url;
    let failed = match error {
        DownloadError::Local { path, source } if source.kind() == ErrorKind::StorageFull => {
            return Failure::from(
                anyhow::Error::new(source).context(format!("cannot write to `{}`", path.display())),
            );
        }
        DownloadError::Local { path, source } => {
            return Failure::input(format!("cannot write to `{}`: {source}", path.display()))
                .hint("set a writable folder with --data PATH (LUMOS_DATA)");
        }
        DownloadError::Http(error) => anyhow!("failed to download `{url}`: {error}"),
        DownloadError::Damaged { found } => anyhow!(
            "`{url}` has SHA-256 {found}, expected {}: the downloaded file was deleted; the source may have changed",
            file.hash.map_or("", DownloadHash::digits)
        ),
    };
    Failure::from(failed)
        .hint("run the same command again to continue the download, or use a mirror with --mirror URL")
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
        fs::read_to_string(&dump)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn only_the_dump_of_databases_has_a_next_step() {
        let next = lumos_benchmarks::all().iter().flat_map(|benchmark| {
            let files = benchmark.downloads().iter().map(|source| Path::new("my data").join(source.file));
            files.filter_map(|file| next_step(benchmark.name(), &file))
        });
        let expected = ["lumos data import-sql 'my data/intercode_sql/ic_spider_dbs.sql'"];
        assert_eq!(next.collect::<Vec<_>>(), expected);
        assert_eq!(next_step("stamps", Path::new("stamps.sql")), None);
    }

    #[tokio::test]
    async fn a_right_file_is_left_alone_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
        let client = HttpClient::new(HttpSettings::default()).unwrap();
        let path = folder.path().join("sub/file");
        let partial = folder.path().join("sub/file.part");
        let file = HttpDownload {
            url: &url,
            partial: &partial,
            destination: &path,
            bytes: None,
            hash: Some(DownloadHash::Sha256(SHA256)),
        };
        let error = download(&client, file, false, |_, _| {}).await.unwrap_err();
        let failure = download_failure(error, file);
        assert_eq!(failure.error.to_string(), format!("failed to download `{url}`: status 404 Not Found"));
        assert!(failure.hint.is_some_and(|hint| hint.contains("--mirror")));
        fs::write(&path, "abc").unwrap();
        assert_eq!(download(&client, file, false, |_, _| {}).await.unwrap(), None);
        assert!(download(&client, file, true, |_, _| {}).await.is_err(), "--force downloads it again");
        let damaged = DownloadError::Damaged { found: "0".repeat(64) };
        let message = download_failure(damaged, file).error.to_string();
        assert!(message.contains(SHA256) && message.contains("was deleted"), "{message}");
    }
}
