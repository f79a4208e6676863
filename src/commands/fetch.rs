//! `lumos fetch`: benchmark data, verified.

use indicatif::{ProgressBar, ProgressStyle};
use lumos_benchmarks::Benchmark;

use crate::cli::FetchArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::fetch::{Download, Fetched, client, fetch};

pub(crate) async fn run(arguments: &FetchArgs, quiet: bool) -> Outcome {
    let names = arguments.tasks.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
    let benchmarks: Vec<&'static dyn Benchmark> =
        names.map(crate::settings::benchmark).collect::<Result<_, _>>()?;
    let client = client()?;
    for benchmark in benchmarks {
        if benchmark.downloads().is_empty() {
            let name = benchmark.name();
            return Err(Failure::input(format!("the files of {name} are given out by their authors only"))
                .hint(format!("docs/{name}.md says how to get them and where to put them")));
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
            match fetched.map_err(|error| {
                Failure::from(error).hint(
                    "the same command goes on where the download broke off; --mirror URL takes the files from elsewhere",
                )
            })? {
                Fetched::Present => println!("{}: present, sha256 verified", download.destination.display()),
                Fetched::Downloaded { bytes } => {
                    println!("{}: {bytes} bytes, sha256 verified", download.destination.display());
                }
            }
        }
    }
    Ok(Exit::Complete)
}
