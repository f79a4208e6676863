//! `lumos fetch`: downloads and verifies benchmark data.

use std::io::ErrorKind;

use indicatif::{ProgressBar, ProgressStyle};
use lumos_benchmarks::Benchmark;

use crate::cli::FetchArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::fetch::{Download, FetchError, Fetched, client, fetch};

pub(crate) async fn run(arguments: &FetchArgs, quiet: bool) -> CommandResult {
    let names = crate::settings::named(&arguments.tasks);
    let benchmarks: Vec<&'static dyn Benchmark> =
        names.iter().map(|name| crate::settings::benchmark(name)).collect::<Result<_, _>>()?;
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
            let fetched = fetch(&client, &download, arguments.force, |have, total| {
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(have);
            })
            .await;
            bar.finish_and_clear();
            match fetched.map_err(failure)? {
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
fn failure(error: FetchError) -> Failure {
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
