//! Screenshots as files.

use std::path::{Path, PathBuf};

use super::pages::fault;
use crate::tools::ToolFault;

/// The most characters of a unit's name in a file's.
const MOST: usize = 64;

/// What the picture of a step is called: the unit and the step, counted from 1.
pub(super) fn file_name(unit: &str, step: u32) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let unit: String =
        unit.chars().take(MOST).map(|character| if plain(character) { character } else { '_' }).collect();
    format!("{unit}-step-{:02}.png", u64::from(step) + 1)
}

/// Writes a picture; its folder is made where it is not there. An older one of the same name is replaced.
///
/// # Errors
/// If it cannot be written.
pub(super) async fn write(file: PathBuf, picture: Vec<u8>) -> Result<(), ToolFault> {
    let written = tokio::task::spawn_blocking(move || {
        let result = write_now(&file, &picture);
        result.map_err(|error| format!("the screenshot {}: {error}", file.display()))
    });
    written.await.map_err(|error| fault(error.to_string()))?.map_err(fault)
}

fn write_now(file: &Path, picture: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(file_name("0123abc", 0), "0123abc-step-01.png");
        assert_eq!(file_name("../a/b\u{0}.", 11), "___a_b__-step-12.png");
        assert!(file_name(&"é/".repeat(1000), u32::MAX).len() < 100);
    }
}
