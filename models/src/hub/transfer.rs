//! Downloads one file, in one process of the host at a time. A download resumes where it stopped, and is
//! verified before it enters the cache. A download that is slower than [`SLOWEST`] ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use lumos_http::{DownloadError, DownloadHash, HttpDownload};
use tokio::sync::Notify;

use super::error::HubError;
use super::layout::Layout;
use super::name::HubName;
use super::site::{Head, Site};

/// Length of a hexadecimal SHA-256, which the hub uses as the ETag of large files.
const SHA256: usize = 64;
/// Interval between log lines about a download's progress.
const TOLD: Duration = Duration::from_secs(10);
/// Minimum rate of a download in bytes per second, on average over [`MEASURED`].
const SLOWEST: u64 = 16 << 10;
const MEASURED: Duration = Duration::from_secs(60);
/// Interval between attempts to acquire the lock.
const POLLED: Duration = Duration::from_millis(100);
/// Interval between warnings about waiting for it.
const WARNED: Duration = Duration::from_secs(30);

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
    let _held = locked(&lock, name, file).await.map_err(HubError::file(&lock))?;
    if !blob.is_file() {
        download(site, layout, name, file, &head).await?;
    }
    layout.link(commit, file, &head.etag).map_err(HubError::file(layout.snapshot(commit)))
}

/// Acquires the lock, waiting while another process holds it.
async fn locked(path: &Path, name: &HubName, file: &str) -> io::Result<File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let began = Instant::now();
    let mut warned: Option<Instant> = None;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if warned.is_none() {
            tracing::info!(repository = name.id(), file, "waiting for another process to download this file");
        }
        if warned.get_or_insert(began).elapsed() >= WARNED {
            warned = Some(Instant::now());
            tracing::warn!(
                "waiting for {} s for another process to download {file} of {}; hint: `fuser -v '{}'` shows the \
                 process; stop it if it does not respond, and this one continues the download",
                began.elapsed().as_secs(),
                name.id(),
                path.display()
            );
        }
        tokio::time::sleep(POLLED).await;
    }
}

/// Rate at which a file arrives. The client limits only pauses, so that a server could send a file byte by byte.
struct Rate {
    /// Start of the measurement, and the bytes that were present then.
    since: Instant,
    before: u64,
    written: u64,
}

impl Rate {
    fn new() -> Self {
        Self { since: Instant::now(), before: 0, written: u64::MAX }
    }

    /// Records the bytes that are present. Returns whether too few arrived within [`MEASURED`].
    fn is_slow(&mut self, now: Instant, written: u64) -> bool {
        let elapsed = now.duration_since(self.since);
        // Without new bytes, an attempt begins. The pause before it does not count.
        let is_start = written <= self.written;
        self.written = written;
        if !is_start && elapsed < MEASURED {
            return false;
        }
        let is_slow = !is_start && written - self.before < SLOWEST * elapsed.as_secs();
        (self.since, self.before) = (now, written);
        is_slow
    }
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
    let etag = head.etag.as_str();
    let hash = if etag.len() == SHA256 { DownloadHash::Sha256(etag) } else { DownloadHash::GitBlob(etag) };
    let download = HttpDownload {
        url: &url,
        partial: &partial,
        destination: &destination,
        bytes: head.bytes,
        hash: Some(hash),
    };
    let mut told: Option<Instant> = None;
    let (mut rate, too_slow) = (Rate::new(), Notify::new());
    let progress = |written: u64, bytes: Option<u64>| {
        if rate.is_slow(Instant::now(), written) {
            too_slow.notify_one();
        }
        if told.is_none_or(|told| told.elapsed() >= TOLD) {
            told = Some(Instant::now());
            tracing::info!(repository = name.id(), file, written, bytes, "downloading");
        }
    };
    let downloaded = tokio::select! {
        downloaded = site.client.download(download, progress) => downloaded,
        () = too_slow.notified() => {
            return Err(HubError::Slow {
                id: name.id().to_owned(),
                file: file.to_owned(),
                host: site.host(),
                least: SLOWEST,
                seconds: MEASURED.as_secs(),
            });
        }
    };
    downloaded.map(|_| ()).map_err(|error| match error {
        // The hub can be reached: it sent the metadata of the file.
        DownloadError::Http(error) if error.again && error.response.is_none() => HubError::Interrupted {
            id: name.id().to_owned(),
            file: file.to_owned(),
            host: site.host(),
            message: error.message,
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_measured_while_bytes_arrive() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut rate = Rate::new();
        assert!(!rate.is_slow(at(0), 500), "a partial file is resumed");
        assert!(!rate.is_slow(at(59), 501));
        assert!(!rate.is_slow(at(60), 500 + 60 * SLOWEST), "just fast enough");
        assert!(!rate.is_slow(at(119), 501 + 60 * SLOWEST));
        assert!(rate.is_slow(at(120), 499 + 120 * SLOWEST));
        // The pause before another attempt does not count, whether it resumes the file or not.
        assert!(!rate.is_slow(at(1000), 499 + 120 * SLOWEST));
        assert!(!rate.is_slow(at(1030), 500 + 120 * SLOWEST));
        assert!(!rate.is_slow(at(2000), 0));
        assert!(!rate.is_slow(at(2059), 1));
        assert!(rate.is_slow(at(2060), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_lock_is_acquired_when_the_other_process_releases_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let name: HubName = "org/model".parse().unwrap();
        let other = locked(&path, &name, "a").await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_secs(90), locked(&path, &name, "a")).await;
        assert!(waiting.is_err(), "the lock is held");
        drop(other);
        locked(&path, &name, "a").await.unwrap();
    }
}
