//! A small file system of a test's own, which can be filled, enlarged and made read-only. Needs the right to mount.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lumos_capabilities::{Capability, skip};

/// A file system in memory; unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: PathBuf,
    covered: bool,
}

impl SmallDisk {
    /// Mounts one of so many KiB; `None`, and the test is skipped, if it cannot be mounted.
    pub(crate) fn mount(folder: &Path, kibibytes: u64) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        // A server that runs as somebody else writes there as well.
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

    /// Uses up all that is left.
    pub(crate) fn fill(&self) {
        let Ok(mut filler) = std::fs::File::create(self.filler()) else { return };
        let piece = vec![0; 1 << 12];
        while filler.write_all(&piece).is_ok() {}
    }

    /// Frees what [`SmallDisk::fill`] used.
    pub(crate) fn free(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    /// Makes it large.
    pub(crate) fn grow(&self) {
        assert!(mount(&["-o", "remount,size=200m"], &self.folder));
    }

    /// Makes it read-only for everything that is opened from now on, or writable again. What is open stays writable:
    /// the kernel makes no file system read-only while a file is open for writing.
    pub(crate) fn read_only(&mut self, read_only: bool) {
        if read_only == self.covered {
            return;
        }
        if read_only {
            let folder = self.folder.display().to_string();
            // A file that is opened for writing between the two steps keeps the second from succeeding.
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
