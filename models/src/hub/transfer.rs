//! Downloads one file, in one process of the host at a time. A download resumes where it stopped, and is
//! verified before it enters the cache.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use lumos_http::{DownloadError, HttpDownload};

use super::error::HubError;
use super::layout::Layout;
use super::name::HubName;
use super::site::{Head, Site};

/// Length of a hexadecimal SHA-256, which the hub uses as the ETag of large files.
const SHA256: usize = 64;
/// Interval between log lines about a download's progress.
const TOLD: Duration = Duration::from_secs(10);

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
    let url = site.file_url(name, file);
    let (partial, destination) = (layout.partial(&head.etag), layout.blob(&head.etag));
    let download = HttpDownload {
        url: &url,
        partial: &partial,
        destination: &destination,
        bytes: head.bytes,
        sha256: Some(head.etag.as_str()).filter(|etag| etag.len() == SHA256),
    };
    let mut told: Option<Instant> = None;
    let progress = |written, bytes| {
        if told.is_none_or(|told| told.elapsed() >= TOLD) {
            told = Some(Instant::now());
            tracing::info!(repository = name.id(), file, written, bytes, "downloading");
        }
    };
    let downloaded = site.client.download(download, progress).await;
    downloaded.map(|_| ()).map_err(|error| match error {
        DownloadError::Http(error) => site.error(error, name, file),
        DownloadError::Local { path, source }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            HubError::DiskFull { path, bytes: head.bytes.unwrap_or_default() }
        }
        DownloadError::Local { path, source } => HubError::File { path, source },
        DownloadError::Damaged { found } => HubError::Damaged {
            id: name.id().to_owned(),
            file: file.to_owned(),
            found,
            expected: head.etag.clone(),
        },
    })
}
