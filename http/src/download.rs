//! Downloads a file: resumes a partial one, verifies its size and checksum, and moves it into place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use sha1::{Digest as _, Sha1};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::retries::Retries;
use crate::{HttpClient, HttpError, HttpRequest};

/// Downloads of a file with the wrong content before the download fails. The first may have resumed an old partial
/// file.
const ROUNDS: usize = 2;
/// Bytes by which the file must grow to restart the count of retries. With a smaller value, a server that closes each
/// connection early would be retried almost without limit.
const PROGRESS: u64 = if cfg!(test) { 1 } else { 1 << 20 };

/// Hash of a file's content in lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadHash<'a> {
    /// SHA-256.
    Sha256(&'a str),
    /// Hash by which git identifies the content (`git hash-object`): SHA-1 of its size and itself.
    GitBlob(&'a str),
}

impl<'a> DownloadHash<'a> {
    /// Returns the digits.
    pub fn digits(self) -> &'a str {
        match self {
            Self::Sha256(digits) | Self::GitBlob(digits) => digits,
        }
    }

    /// Returns the digits of the same kind of hash of a file.
    fn of_file(self, path: &Path) -> io::Result<String> {
        match self {
            Self::Sha256(_) => sha256_of_file(path),
            Self::GitBlob(_) => git_blob_of_file(path),
        }
    }
}

/// A file to download.
#[derive(Clone, Copy)]
pub struct HttpDownload<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Path of the partial file, which is kept if the download is interrupted.
    pub partial: &'a Path,
    /// Path of the complete file, in the same existing folder.
    pub destination: &'a Path,
    /// Size in bytes, if it is known.
    pub bytes: Option<u64>,
    /// Hash of the content, if it is known.
    pub hash: Option<DownloadHash<'a>>,
}

/// Error of a download.
#[derive(Debug, Error)]
pub enum DownloadError {
    /// The server did not send the file.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A local file cannot be read or written. Not retried.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content is not the expected one. The file was deleted.
    #[error("the file has the hash {found}")]
    Damaged {
        /// Hash of the content, or a description with its size if only the size is known.
        found: String,
    },
}

impl DownloadError {
    /// Converts the error of a local file or folder.
    pub fn local(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Local { path: path.to_owned(), source }
    }
}

impl HttpClient {
    /// Downloads a file, with retries that resume where the last attempt ended. The count of retries restarts whenever
    /// the file has grown by 1 MiB since the last restart. `progress` gets the number of bytes present, and the total
    /// if it is known. Returns the size in bytes.
    ///
    /// Files are written and hashed on the calling thread, which must not be one of a runtime with other tasks.
    ///
    /// # Errors
    /// See [`DownloadError`].
    pub async fn download(
        &self,
        file: HttpDownload<'_>,
        mut progress: impl FnMut(u64, Option<u64>),
    ) -> Result<u64, DownloadError> {
        let HttpDownload { url, partial, destination, .. } = file;
        let mut damaged = String::new();
        for _ in 0..ROUNDS {
            let mut retries = Retries::new(self, url, false);
            // Length at the last restart. A server that does not resume sends the same beginning each time, which is
            // no growth.
            let mut counted_from = length(partial);
            while let Err(error) = self.resume(file, &mut progress).await {
                let DownloadError::Http(error) = error else { return Err(error) };
                let have = length(partial);
                if have >= counted_from + PROGRESS {
                    counted_from = have;
                    retries = Retries::new(self, url, false);
                }
                retries.pause(error).await?;
            }
            let bytes = fs::metadata(partial).map_err(DownloadError::local(partial))?.len();
            let (is_right, found) = match file.hash {
                Some(hash) => {
                    let found = hash.of_file(partial).map_err(DownloadError::local(partial))?;
                    (found == hash.digits(), found)
                }
                None => {
                    let is_right = file.bytes.is_none_or(|expected| expected == bytes);
                    (is_right, format!("unknown, {bytes} bytes"))
                }
            };
            if is_right {
                fs::rename(partial, destination).map_err(DownloadError::local(destination))?;
                return Ok(bytes);
            }
            fs::remove_file(partial).map_err(DownloadError::local(partial))?;
            damaged = found;
        }
        Err(DownloadError::Damaged { found: damaged })
    }

    /// Downloads the missing rest of the partial file.
    async fn resume(
        &self,
        HttpDownload { url, partial, bytes, .. }: HttpDownload<'_>,
        progress: &mut impl FnMut(u64, Option<u64>),
    ) -> Result<(), DownloadError> {
        let have = length(partial);
        if have > 0 && bytes == Some(have) {
            return Ok(());
        }
        let request = HttpRequest { from: have, ..HttpRequest::get(url) };
        let (mut response, _permit) = self.open(&request).await?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            // The partial file is already as long as the file, or longer. The hash decides.
            return Ok(());
        }
        if !response.status().is_success() {
            return Err(self.read(response, false).await?.rejected().into());
        }
        let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let resumes = response.status() == StatusCode::PARTIAL_CONTENT
            && range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        let mut written = if resumes { have } else { 0 };
        let total = bytes.or_else(|| Some(written + response.content_length()?));
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(resumes).truncate(!resumes);
        let mut out = options.open(partial).map_err(DownloadError::local(partial))?;
        progress(written, total);
        while let Some(chunk) = response.chunk().await.map_err(HttpError::network)? {
            written += chunk.len() as u64;
            if total.is_some_and(|total| written > total) {
                return Err(HttpError::last("the file is longer than announced").into());
            }
            out.write_all(&chunk).map_err(DownloadError::local(partial))?;
            progress(written, total);
        }
        out.sync_all().map_err(DownloadError::local(partial))?;
        if total.is_some_and(|total| written < total) {
            return Err(HttpError::again("the connection was closed before the end of the file").into());
        }
        Ok(())
    }
}

/// Returns the length of a file, or 0 if it cannot be read.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns git's hash of a file in hexadecimal digits.
fn git_blob_of_file(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let mut hasher = Sha1::new_with_prefix(format!("blob {}\0", file.metadata()?.len()));
    let mut file = BufReader::new(file);
    loop {
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(read);
        let length = read.len();
        file.consume(length);
    }
}

/// Returns the SHA-256 of a file in hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hex::encode(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::extract::State;
    use axum::http::{HeaderMap, Response};
    use axum::routing::get;
    use futures::StreamExt;
    use reqwest::header::RANGE;
    use tempfile::TempDir;

    use super::*;
    use crate::HttpSettings;

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
        let start: usize = headers
            .get(RANGE)
            .filter(|_| server.ranges)
            .and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
            .unwrap_or(0);
        if start > 0 && start >= CONTENT.len() {
            return Response::builder().status(416).body(Body::empty()).unwrap();
        }
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

    /// A download to an empty folder.
    struct Fixture {
        server: Server,
        client: HttpClient,
        url: String,
        sha256: String,
        folder: TempDir,
    }

    async fn start(server: Server) -> Fixture {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let app = Router::new().route("/file", get(serve)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let sha256 = hex::encode(Sha256::digest(CONTENT));
        let folder = tempfile::tempdir().unwrap();
        Fixture { server, client: client(HttpSettings::default().retries), url, sha256, folder }
    }

    fn client(retries: usize) -> HttpClient {
        let first_pause = Duration::from_millis(5);
        let settings = HttpSettings { timeout: None, retries, first_pause, ..HttpSettings::default() };
        HttpClient::new(settings).unwrap()
    }

    impl Fixture {
        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        async fn download(&self) -> Result<u64, DownloadError> {
            self.download_with(DownloadHash::Sha256(&self.sha256)).await
        }

        async fn download_with(&self, hash: DownloadHash<'_>) -> Result<u64, DownloadError> {
            let file = HttpDownload {
                url: &self.url,
                partial: &self.path("file.part"),
                destination: &self.path("file"),
                bytes: None,
                hash: Some(hash),
            };
            let mut last = 0;
            let downloaded = self.client.download(file, |written, _| last = written).await;
            assert!(downloaded.as_ref().is_ok_and(|bytes| *bytes == last) || downloaded.is_err());
            downloaded
        }

        fn requests(&self) -> u32 {
            self.server.requests.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_broken_download_is_resumed() {
        let site = start(Server { broken: 2, ranges: true, ..Server::default() }).await;
        assert_eq!(site.download().await.unwrap(), 20);
        assert_eq!(fs::read(site.path("file")).unwrap(), CONTENT);
        assert!(site.server.resumed.load(Ordering::SeqCst) >= 1, "the next attempt resumes");
        assert!(!site.path("file.part").exists());
    }

    #[tokio::test]
    async fn a_server_without_ranges_is_asked_from_the_start() {
        let site = start(Server { broken: 1, ranges: false, ..Server::default() }).await;
        site.download().await.unwrap();
        assert_eq!(fs::read(site.path("file")).unwrap(), CONTENT);
    }

    #[tokio::test]
    async fn retries_are_counted_from_the_last_progress() {
        // 10, 15, 17, 18 and 19 bytes, then all.
        let server = Server { broken: 5, ranges: true, ..Server::default() };
        let site = Fixture { client: client(1), ..start(server).await };
        assert_eq!(site.download().await.unwrap(), 20);
        assert_eq!(fs::read(site.path("file")).unwrap(), CONTENT);
        // The same 10 bytes each time.
        let server = Server { broken: u32::MAX, ranges: false, ..Server::default() };
        let site = Fixture { client: client(1), ..start(server).await };
        let error = site.download().await.unwrap_err();
        assert!(matches!(error, DownloadError::Http(_)), "{error}");
        assert_eq!(site.requests(), 2);
    }

    #[tokio::test]
    async fn a_partial_file_that_is_complete_or_wrong_is_detected() {
        let site = start(Server { ranges: true, ..Server::default() }).await;
        fs::write(site.path("file.part"), &CONTENT[..15]).unwrap();
        site.download().await.unwrap();
        assert_eq!((site.requests(), site.server.resumed.load(Ordering::SeqCst)), (1, 1));
        fs::write(site.path("file.part"), b"the content of an earlier version").unwrap();
        site.download().await.unwrap();
        assert_eq!(site.requests(), 3, "the old partial file, then the whole file");
        assert_eq!(fs::read(site.path("file")).unwrap(), CONTENT);
    }

    #[tokio::test]
    async fn a_file_is_verified_by_its_git_hash() {
        let site = start(Server { ranges: true, ..Server::default() }).await;
        // As `git hash-object` prints it.
        let digits = "4b96cf430e4f0dbd471328a114783194b4482731";
        fs::write(site.path("file.part"), "an earlier version").unwrap();
        site.download_with(DownloadHash::GitBlob(digits)).await.unwrap();
        assert_eq!(site.requests(), 2, "the old partial file, then the whole file");
        assert_eq!(fs::read(site.path("file")).unwrap(), CONTENT);
        let other = "0".repeat(40);
        let error = site.download_with(DownloadHash::GitBlob(&other)).await.unwrap_err();
        assert!(matches!(&error, DownloadError::Damaged { found } if found == digits), "{error}");
    }

    #[tokio::test]
    async fn a_file_with_another_hash_is_not_kept() {
        let site = Fixture { sha256: "0".repeat(64), ..start(Server::default()).await };
        let error = site.download().await.unwrap_err();
        let DownloadError::Damaged { found } = error else { panic!("{error}") };
        assert_eq!(found, hex::encode(Sha256::digest(CONTENT)));
        assert_eq!(site.requests(), 2);
        assert!(!site.path("file").exists() && !site.path("file.part").exists());
    }

    #[tokio::test]
    async fn what_does_not_pass_is_not_retried() {
        let mut site = start(Server::default()).await;
        let url = site.url.clone();
        site.url = url.replace("/file", "/other");
        let error = site.download().await.unwrap_err();
        assert!(error.to_string().contains("404"), "{error}");
        site.url = "no address".to_owned();
        let error = site.download().await.unwrap_err();
        assert!(error.to_string().contains("invalid address"), "{error}");
        site.url = url;
        fs::create_dir(site.path("file.part")).unwrap();
        let error = site.download().await.unwrap_err();
        assert!(
            matches!(&error, DownloadError::Local { path, .. } if *path == site.path("file.part")),
            "{error}"
        );
    }
}
