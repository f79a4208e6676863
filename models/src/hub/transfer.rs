//! Downloads one file, in one process of the host at a time. A download resumes where it stopped, and is
//! verified before it enters the cache.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;

use super::error::HubError;
use super::layout::Layout;
use super::name::HubName;
use super::site::{Attempt, Head, Site};
use crate::files::hash_file;

/// Length of a hexadecimal SHA-256, which the hub uses as the ETag of large files.
const SHA256: usize = 64;
/// Interval between log lines about a download's progress.
const TOLD: Duration = Duration::from_secs(10);
/// Downloads of a file with a wrong checksum before the download fails.
const ROUNDS: usize = 2;

/// Ensures that a file of a commit is in the cache.
pub(super) async fn ensure(site: &Site, layout: &Layout, name: &HubName, file: &str) -> Result<(), HubError> {
    let commit = name.revision();
    if layout.snapshot(commit).join(file).is_file() {
        return Ok(());
    }
    let head = site.head(name, file).await?;
    let blob = layout.blob(&head.etag);
    let lock = layout.lock(&head.etag);
    for path in [&blob, &lock] {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(HubError::file(folder))?;
        }
    }
    // Held until it is dropped. The operating system releases it if this process dies.
    let _held = locked(&lock, file).map_err(HubError::file(&lock))?;
    if !blob.is_file() {
        download(site, layout, name, file, &head).await?;
    }
    layout.link(commit, file, &head.etag).map_err(HubError::file(layout.snapshot(commit)))
}

/// Acquires the lock, waiting while another process holds it.
fn locked(path: &Path, file: &str) -> io::Result<File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            tracing::info!(file, "waiting for another process to download this file");
            lock.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(lock)
}

async fn download(
    site: &Site,
    layout: &Layout,
    name: &HubName,
    file: &str,
    head: &Head,
) -> Result<(), HubError> {
    let (partial, blob) = (layout.partial(&head.etag), layout.blob(&head.etag));
    let mut damaged = None;
    for _ in 0..ROUNDS {
        site.patiently(|| go_on(site, name, file, head, &partial)).await?;
        match wrong(&partial, head).map_err(HubError::file(&partial))? {
            None => return fs::rename(&partial, &blob).map_err(HubError::file(&blob)),
            Some(found) => {
                fs::remove_file(&partial).map_err(HubError::file(&partial))?;
                damaged = Some(found);
            }
        }
    }
    Err(HubError::Damaged {
        id: name.id().to_owned(),
        file: file.to_owned(),
        found: damaged.unwrap_or_default(),
        expected: head.etag.clone(),
    })
}

/// Verifies a downloaded file. Returns its SHA-256 if it differs from the announced one, or a description if
/// only the length is known and differs.
fn wrong(partial: &Path, head: &Head) -> io::Result<Option<String>> {
    if head.etag.len() == SHA256 {
        let found = hash_file(partial)?.as_str().to_owned();
        return Ok(Some(found).filter(|found| *found != head.etag));
    }
    let bytes = fs::metadata(partial)?.len();
    Ok(head.bytes.filter(|announced| *announced != bytes).map(|_| format!("unknown, {bytes} bytes")))
}

/// Downloads the missing rest of the partial file.
async fn go_on(site: &Site, name: &HubName, file: &str, head: &Head, partial: &Path) -> Result<(), Attempt> {
    let have = fs::metadata(partial).map_or(0, |metadata| metadata.len());
    if head.bytes == Some(have) && have > 0 {
        return Ok(());
    }
    let mut response = site.file(name, file, have).await?;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        // The partial file is already as long as the file, or longer. The hash check decides.
        return Ok(());
    }
    let resumes = response.status() == StatusCode::PARTIAL_CONTENT
        && response
            .headers()
            .get(CONTENT_RANGE)
            .and_then(|range| range.to_str().ok())
            .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
    let unwritable = |source: io::Error| {
        Attempt::last(match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                HubError::DiskFull { path: partial.to_owned(), bytes: head.bytes.unwrap_or_default() }
            }
            _ => HubError::File { path: partial.to_owned(), source },
        })
    };
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(resumes).truncate(!resumes);
    let mut out = options.open(partial).map_err(unwritable)?;
    let mut written = if resumes { have } else { 0 };
    let mut progress = Progress::new(name, file, head.bytes, written);
    while let Some(piece) = response.chunk().await.map_err(|error| site.broken(error, name))? {
        written += piece.len() as u64;
        if head.bytes.is_some_and(|bytes| written > bytes) {
            return Err(Attempt::last(site.answer("file exceeds its announced size")));
        }
        out.write_all(&piece).map_err(unwritable)?;
        progress.at(written);
    }
    out.sync_all().map_err(unwritable)?;
    if head.bytes.is_some_and(|bytes| written < bytes) {
        return Err(Attempt::again(site.answer("connection closed before the end of the file")));
    }
    Ok(())
}

/// Logs the progress of a download.
struct Progress<'a> {
    name: &'a HubName,
    file: &'a str,
    bytes: Option<u64>,
    told: Instant,
}

impl<'a> Progress<'a> {
    fn new(name: &'a HubName, file: &'a str, bytes: Option<u64>, from: u64) -> Self {
        tracing::info!(model = name.id(), file, from, bytes, "downloading");
        Self { name, file, bytes, told: Instant::now() }
    }

    fn at(&mut self, written: u64) {
        if self.told.elapsed() >= TOLD {
            self.told = Instant::now();
            tracing::info!(
                model = self.name.id(),
                file = self.file,
                written,
                bytes = self.bytes,
                "downloading"
            );
        }
    }
}
