//! `lumos serve RUN…` and `lumos serve --queue …`: runs in progress as a live page, and `/metrics`.
//!
//! ```text
//! folders, queue ─ sources ─→ LiveRun ─ feeds ─→ routes ─→ events of pages, /metrics
//! ```
//! `sources` reads the state of the runs every second, `feeds` keeps the latest one, and each client is sent what has
//! changed since its previous event. A slow client therefore skips states and needs no buffer. `access` decides which
//! requests are accepted. `page/` is the page.

mod access;
mod feeds;
mod files;
mod routes;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lumos_http::{HttpLimits, serve};
use lumos_reports::live::{LiveError, LiveFolder};
use tokio::net::TcpListener;

use crate::cli::ServeRunsArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::fleet::{PATIENCE, connect};
use crate::interrupt::Interrupts;
use crate::pipeline::manifest_failure;
use crate::progress::write_line;

use access::AccessRules;
use feeds::Feeds;
use routes::Shared;
use sources::Sources;

/// How long a server that was stopped waits for clients to receive their last response.
const FAREWELL: Duration = Duration::from_secs(2);

/// `lumos serve`: serves runs until it is interrupted.
pub(crate) async fn serve_runs(arguments: &ServeRunsArgs) -> CommandResult {
    let access = AccessRules::new(arguments.bind, arguments.token.as_deref(), &arguments.allow_host)?;
    let mut folders = Vec::new();
    for run in &arguments.runs {
        let folder = arguments.within.folder(run)?;
        let opened = LiveFolder::open(&folder).map_err(|error| match error {
            LiveError::Manifest(error) => manifest_failure(error),
            error => Failure::usage(error),
        })?;
        folders.push(opened);
    }
    let has_queue = arguments.queue.url().is_some();
    if folders.is_empty() && !has_queue {
        return Err(Failure::input("nothing to serve: pass a run or a queue")
            .hint("lumos serve runs/sample, or lumos serve --queue nats://HOST:4222"));
    }
    let server = match has_queue {
        true => Some(connect(&arguments.queue, "lumos serve", Some(PATIENCE)).await?),
        false => None,
    };
    let listener = TcpListener::bind((arguments.bind, arguments.port)).await.map_err(|error| {
        Failure::usage(error)
            .hint(format!("port {} may be in use: pass --port 0 for a free one", arguments.port))
    })?;
    let address = listener.local_addr()?;
    println!("http://{address}/");
    if access.needs_token() {
        write_line(format_args!("open http://{address}/?token=TOKEN once; the browser then keeps a cookie"));
    }
    let interrupts = Interrupts::watch();
    let drain = interrupts.drain.clone();
    let paths: BTreeMap<_, _> = folders
        .iter()
        .map(|folder| (folder.token().as_str().to_owned(), folder.folder().to_owned()))
        .collect();
    let feeds = Arc::new(Feeds::new(paths.keys()));
    let polling = tokio::spawn(Sources::new(folders, server).poll(Arc::clone(&feeds), drain.clone()));
    let shared = Shared::new(access, feeds, paths, drain.clone());
    let serving = serve(listener, routes::router(shared), HttpLimits::default(), drain.clone());
    // A client that does not read its response must not delay the end.
    let farewell = async {
        drain.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        () = serving => {}
        () = farewell => {}
    }
    polling.abort();
    Ok(Exit::Complete)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[tokio::test]
    async fn only_a_missing_manifest_suggests_the_list_of_runs() {
        let folder = tempfile::tempdir().unwrap();
        let words = ["lumos", "serve", folder.path().to_str().unwrap()];
        let Command::Serve(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let missing = serve_runs(&arguments.live).await.unwrap_err();
        assert_eq!(missing.hint.as_deref(), Some("list the runs: lumos ls"));
        std::fs::write(folder.path().join("manifest.json"), "{\"schema\": 99}").unwrap();
        let other = serve_runs(&arguments.live).await.unwrap_err();
        assert!(other.error.to_string().contains("use the version of lumos that wrote it"));
        assert_eq!((other.exit, other.hint), (Exit::Usage, None));
    }
}
