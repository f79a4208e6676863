//! Downloads a file, verifies its checksum and moves it into place.
//!
//! [`fetch`] resumes a partial download. Errors of local files ([`FetchError::Local`]) are not retried.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use backon::{ExponentialBuilder, Retryable};
use futures::StreamExt;
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, StatusCode};
use sha2::{Digest, Sha256};
use tokio::fs::{self, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A file to download, and its checksum.
#[derive(Debug, Clone)]
pub(crate) struct Download {
    pub(crate) url: String,
    pub(crate) destination: PathBuf,
    /// 64 lowercase hexadecimal digits.
    pub(crate) sha256: String,
}

/// Result of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The file already existed with the right content.
    Present,
    /// It was downloaded.
    Downloaded {
        /// Size in bytes.
        bytes: u64,
    },
}

/// Error of a download.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// A local file or folder cannot be read or written; retrying does not help.
    Local {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The download failed.
    Download(anyhow::Error),
}

impl FetchError {
    fn local(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Local { path: path.to_owned(), source }
    }
}

/// Error of a single attempt.
#[derive(Debug)]
struct Attempt {
    error: FetchError,
    again: bool,
}

impl Attempt {
    fn again(error: impl Into<anyhow::Error>) -> Self {
        Self { error: FetchError::Download(error.into()), again: true }
    }

    fn last(error: impl Into<anyhow::Error>) -> Self {
        Self { error: FetchError::Download(error.into()), again: false }
    }

    fn local(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self { error: FetchError::Local { path: path.to_owned(), source }, again: false }
    }
}

/// Creates an HTTP client for downloads.
pub(crate) fn client() -> anyhow::Result<Client> {
    Ok(Client::builder()
        .user_agent(concat!("lumos-eval/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(20))
        .read_timeout(Duration::from_secs(60))
        .build()?)
}

/// Downloads a file unless it exists with the right content. Calls `progress` with the number of bytes
/// present and the total.
pub(crate) async fn fetch(
    client: &Client,
    download: &Download,
    force: bool,
    progress: impl Fn(u64, Option<u64>),
) -> Result<Fetched, FetchError> {
    let destination = &download.destination;
    if let Some(folder) = destination.parent() {
        fs::create_dir_all(folder).await.map_err(FetchError::local(folder))?;
    }
    let exists = fs::try_exists(destination).await.map_err(FetchError::local(destination))?;
    if !force && exists && hash(destination).await? == download.sha256 {
        return Ok(Fetched::Present);
    }
    let partial = destination.with_added_extension("part");
    let schedule = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(300))
        .with_max_times(5)
        .with_jitter();
    let attempt = || continue_download(client, download, &partial, &progress);
    attempt.retry(schedule).when(|attempt| attempt.again).await.map_err(|attempt| match attempt.error {
        FetchError::Download(error) => {
            FetchError::Download(error.context(format!("failed to download `{}`", download.url)))
        }
        local => local,
    })?;
    let found = hash(&partial).await?;
    if found != download.sha256 {
        fs::remove_file(&partial).await.map_err(FetchError::local(&partial))?;
        return Err(FetchError::Download(anyhow!(
            "`{}` has SHA-256 {found}, expected {}: the downloaded file was deleted; the source may have changed",
            download.url,
            download.sha256
        )));
    }
    let bytes = fs::metadata(&partial).await.map_err(FetchError::local(&partial))?.len();
    fs::rename(&partial, destination).await.map_err(FetchError::local(destination))?;
    Ok(Fetched::Downloaded { bytes })
}

/// Appends the missing bytes to the partial file.
async fn continue_download(
    client: &Client,
    download: &Download,
    partial: &Path,
    progress: &impl Fn(u64, Option<u64>),
) -> Result<(), Attempt> {
    let have = fs::metadata(partial).await.map_or(0, |metadata| metadata.len());
    let mut request = client.get(&download.url);
    if have > 0 {
        request = request.header(RANGE, format!("bytes={have}-"));
    }
    let response = request.send().await.map_err(Attempt::again)?;
    let status = response.status();
    let resumes = status == StatusCode::PARTIAL_CONTENT
        && response
            .headers()
            .get(CONTENT_RANGE)
            .and_then(|range| range.to_str().ok())
            .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
    if status == StatusCode::RANGE_NOT_SATISFIABLE {
        // The partial file has the full length or more; its hash is checked next.
        return Ok(());
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Err(Attempt::again(anyhow::anyhow!("the server returned {status}")));
    }
    if !status.is_success() {
        return Err(Attempt::last(anyhow::anyhow!("the server returned {status}")));
    }
    let mut written = if resumes { have } else { 0 };
    let total = response.content_length().map(|rest| written + rest);
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .append(resumes)
        .truncate(!resumes)
        .open(partial)
        .await
        .map_err(Attempt::local(partial))?;
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => {
                file.write_all(&chunk).await.map_err(Attempt::local(partial))?;
                written += chunk.len() as u64;
                progress(written, total);
            }
            Err(error) => {
                file.flush().await.map_err(Attempt::local(partial))?;
                return Err(Attempt::again(error));
            }
        }
    }
    file.sync_all().await.map_err(Attempt::local(partial))?;
    if total.is_some_and(|total| written < total) {
        return Err(Attempt::again(anyhow::anyhow!("the connection was closed early")));
    }
    Ok(())
}

async fn hash(path: &Path) -> Result<String, FetchError> {
    let mut file = fs::File::open(path).await.map_err(FetchError::local(path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).await.map_err(FetchError::local(path))?;
        if count == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::extract::State;
    use axum::http::{HeaderMap, Response};
    use axum::routing::get;

    use super::*;

    const CONTENT: &[u8] = b"twenty bytes of data";

    #[derive(Clone, Default)]
    struct Server {
        requests: Arc<AtomicU32>,
        resumed: Arc<AtomicU32>,
        /// Number of requests that fail halfway.
        broken: u32,
        ranges: bool,
    }

    async fn serve(State(server): State<Server>, headers: HeaderMap) -> Response<Body> {
        let request = server.requests.fetch_add(1, Ordering::SeqCst);
        let start = headers
            .get(RANGE)
            .filter(|_| server.ranges)
            .and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
            .unwrap_or(0);
        let rest = &CONTENT[start..];
        let builder = Response::builder().header("content-length", rest.len());
        let builder = if start > 0 {
            server.resumed.fetch_add(1, Ordering::SeqCst);
            builder
                .status(206)
                .header("content-range", format!("bytes {start}-{}/{}", CONTENT.len() - 1, CONTENT.len()))
        } else {
            builder
        };
        if request < server.broken {
            let half = Bytes::from_static(&rest[..rest.len() / 2]);
            // The first half arrives before the connection breaks.
            let broken = futures::stream::iter([Ok(half)]).chain(futures::stream::once(async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Err(std::io::Error::other("the line broke"))
            }));
            return builder.body(Body::from_stream(broken)).unwrap();
        }
        builder.body(Body::from(rest)).unwrap()
    }

    async fn start(server: Server) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/file", get(serve)).with_state(server);
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}/file")
    }

    fn download(url: String, folder: &Path) -> Download {
        Download {
            url,
            destination: folder.join("sub/file.json"),
            sha256: hex::encode(Sha256::digest(CONTENT)),
        }
    }

    #[tokio::test]
    async fn a_broken_download_is_resumed_and_a_right_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server { broken: 2, ranges: true, ..Server::default() };
        let download = download(start(server.clone()).await, folder.path());
        let client = client().unwrap();
        let first = fetch(&client, &download, false, |_, _| {}).await.unwrap();
        assert_eq!(first, Fetched::Downloaded { bytes: 20 });
        assert_eq!(std::fs::read(&download.destination).unwrap(), CONTENT);
        assert!(
            server.resumed.load(Ordering::SeqCst) >= 1,
            "the second attempt went on where the first ended"
        );
        let requests = server.requests.load(Ordering::SeqCst);
        assert_eq!(fetch(&client, &download, false, |_, _| {}).await.unwrap(), Fetched::Present);
        assert_eq!(server.requests.load(Ordering::SeqCst), requests);
    }

    #[tokio::test]
    async fn a_server_without_ranges_is_asked_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server { broken: 1, ranges: false, ..Server::default() };
        let download = download(start(server).await, folder.path());
        fetch(&client().unwrap(), &download, false, |_, _| {}).await.unwrap();
        assert_eq!(std::fs::read(&download.destination).unwrap(), CONTENT);
    }

    #[tokio::test]
    async fn a_file_with_another_hash_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut download = download(start(Server::default()).await, folder.path());
        download.sha256 = "0".repeat(64);
        let error = fetch(&client().unwrap(), &download, false, |_, _| {}).await.unwrap_err();
        let FetchError::Download(error) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains("was deleted"), "{error}");
        assert!(!download.destination.exists());
    }

    #[tokio::test]
    async fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let url = start(Server::default()).await.replace("/file", "/other");
        let error = fetch(&client().unwrap(), &download(url.clone(), folder.path()), false, |_, _| {})
            .await
            .unwrap_err();
        let FetchError::Download(error) = error else { panic!("{error:?}") };
        assert!(format!("{error:#}").contains(&url) && format!("{error:#}").contains("404"), "{error:#}");
    }
}
