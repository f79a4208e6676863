//! Screenshots of a run's browsers, copied next to the page that shows them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lumos_tasks::UnitId;

/// Folder of the screenshots, in a run's folder and next to a page.
pub(super) const FOLDER: &str = "screenshots";
/// Maximum number of screenshots of a unit.
const PER_UNIT: usize = 1000;

/// Copies screenshots of units from a run to a page.
pub(super) struct ScreenshotFolder {
    from: PathBuf,
    to: PathBuf,
}

impl ScreenshotFolder {
    /// Returns the screenshots of a run, if there are any. `page` is the folder of the page, `position` that of the run
    /// if the page has several, which may have equal units.
    pub(super) fn of(run: &Path, page: &Path, position: Option<usize>) -> Option<Self> {
        let from = run.join(FOLDER);
        let mut to = page.join(FOLDER);
        to.extend(position.map(|position| position.to_string()));
        from.is_dir().then_some(Self { from, to })
    }

    /// The folder next to the page.
    pub(super) fn folder(&self) -> &Path {
        &self.to
    }

    /// Copies the screenshots of a unit, as hard links where possible. Returns their numbers in ascending order.
    /// Other files and links are left out.
    ///
    /// # Errors
    /// If a screenshot cannot be copied.
    pub(super) fn take(&self, unit: &UnitId) -> io::Result<Vec<u32>> {
        let Ok(entries) = fs::read_dir(self.from.join(unit.as_str())) else { return Ok(Vec::new()) };
        let to = self.to.join(unit.as_str());
        let mut numbers = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(number_of).filter(|_| numbers.len() < PER_UNIT);
            let Some(number) = number.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) else {
                continue;
            };
            fs::create_dir_all(&to)?;
            let (from, to) = (entry.path(), to.join(&name));
            if fs::hard_link(&from, &to).is_err() {
                // Only to a new file: an existing one may be a link to a recorded screenshot.
                io::copy(&mut File::open(&from)?, &mut File::create_new(&to)?)?;
            }
            numbers.push(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Reads the number in `0001.png`.
fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".png")?;
    let is_number = digits.len() >= 4 && digits.bytes().all(|digit| digit.is_ascii_digit());
    // The page formats numbers with at least four digits.
    digits.parse().ok().filter(|number| is_number && format!("{number:04}") == digits)
}

#[cfg(test)]
mod tests {
    use lumos_tasks::ContentHash;

    use super::*;

    #[test]
    fn only_pictures_named_by_their_number_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (run, page) = (folder.path().join("run"), folder.path().join("page"));
        assert!(ScreenshotFolder::of(&run, &page, None).is_none());
        let unit = UnitId::new(ContentHash::of_bytes(b"with"));
        let from = run.join(FOLDER).join(unit.as_str());
        fs::create_dir_all(&from).unwrap();
        for name in ["0010.png", "0002.png", "12345.png", "00003.png", "2.png", "x.png", "0004.jpg"] {
            fs::write(from.join(name), name).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc/passwd", from.join("0005.png")).unwrap();
        let screenshots = ScreenshotFolder::of(&run, &page, None).unwrap();
        assert_eq!(screenshots.take(&unit).unwrap(), [2, 10, 12345]);
        assert_eq!(fs::read(page.join(FOLDER).join(unit.as_str()).join("0010.png")).unwrap(), b"0010.png");
        assert_eq!(fs::read_dir(page.join(FOLDER).join(unit.as_str())).unwrap().count(), 3);
        assert!(screenshots.take(&UnitId::new(ContentHash::of_bytes(b"without"))).unwrap().is_empty());
    }

    #[test]
    fn recorded_screenshots_are_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page");
        let unit = UnitId::new(ContentHash::of_bytes(b"unit"));
        let [a, b] = ["a", "b"].map(|name| {
            let run = folder.path().join(name);
            fs::create_dir_all(run.join(FOLDER).join(unit.as_str())).unwrap();
            fs::write(run.join(FOLDER).join(unit.as_str()).join("0001.png"), name).unwrap();
            run
        });
        let take = |run: &Path| ScreenshotFolder::of(run, &page, None).unwrap().take(&unit);
        assert_eq!(take(&a).unwrap(), [1]);
        assert_eq!(take(&b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(take(&a).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(a.join(FOLDER).join(unit.as_str()).join("0001.png")).unwrap(), b"a");
    }
}
