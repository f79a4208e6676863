//! A small file system for a test, which can be filled, enlarged and made read-only. Requires permission to
//! mount.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lumos_capabilities::{Capability, skip};

/// A file system in memory, unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: PathBuf,
    covered: bool,
}

impl SmallDisk {
    /// Mounts a file system with a size in KiB. If it cannot be mounted, skips the test and returns `None`.
    pub(crate) fn mount(folder: &Path, kibibytes: u64) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        // A server that runs as another user also writes to it.
        let options = format!("size={kibibytes}k,mode=777");
        if !mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], folder) {
            skip(Capability::Mount, "a small file system cannot be mounted");
            return None;
        }
        Some(Self { folder: folder.to_owned(), covered: false })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    /// Fills the free space. If it is called again, it fills the space that others have freed meanwhile.
    pub(crate) fn fill(&self) {
        let Ok(mut filler) = std::fs::OpenOptions::new().create(true).append(true).open(self.filler()) else {
            return;
        };
        let piece = vec![0; 1 << 12];
        while filler.write_all(&piece).is_ok() {}
    }

    /// Frees the space used by [`SmallDisk::fill`].
    pub(crate) fn free(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    /// Enlarges the file system.
    pub(crate) fn grow(&self) {
        assert!(mount(&["-o", "remount,size=200m"], &self.folder));
    }

    /// Makes it read-only for files opened from now on, or writable again. Open files stay writable: the
    /// kernel makes no file system read-only while a file is open for writing.
    pub(crate) fn read_only(&mut self, read_only: bool) {
        if read_only == self.covered {
            return;
        }
        if read_only {
            let folder = self.folder.display().to_string();
            // The second step fails if a file is opened for writing between the two steps.
            self.covered = (0..50).any(|_| {
                let covered = mount(&["--bind", &folder], &self.folder);
                let made = covered && mount(&["-o", "remount,bind,ro"], &self.folder);
                if covered && !made {
                    unmount(&self.folder);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                made
            });
            assert!(self.covered, "{folder} cannot be made read-only");
        } else {
            unmount(&self.folder);
            self.covered = false;
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.read_only(false);
        unmount(&self.folder);
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(folder).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).status();
}
