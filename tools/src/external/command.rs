//! The command line in a backend's name: `python3 weather.py --units metric`.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lumos_models::hash_file;
use lumos_tasks::ContentHash;

use crate::backend::{BackendError, hash_suffix};

/// Message about a command whose hash is another one than before.
const CHANGED: &str = "the program's files have changed since the tool was set up; hint: restore the old \
                       files to continue, or start another run with --name NAME";

/// A program and its arguments. No shell reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The program.
    pub(super) program: String,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
}

impl CommandLine {
    /// Splits a text at blanks. Words with blanks stand in single or double quotes.
    ///
    /// # Errors
    /// If there is no word, or a quote is not closed.
    pub(super) fn parse(text: &str) -> Result<Self, BackendError> {
        let mut words = words(text)?;
        if words.is_empty() {
            return Err(BackendError::Invalid("expected a program after the colon".to_owned()));
        }
        let program = words.remove(0);
        Ok(Self { program, arguments: words })
    }

    /// Returns for each word whether it names a file.
    fn names_file(&self) -> Vec<bool> {
        let arguments = self.arguments.iter().map(|word| Path::new(word).is_file());
        std::iter::once(self.is_path()).chain(arguments).collect()
    }

    /// Returns the hash of the command, given which words name a file. They are replaced by the file's content, so the
    /// same program in another folder has the same hash. A program without a folder, such as `python3`, is found on
    /// `PATH`; only its name is hashed, because machines have different builds of it.
    fn hash_of(&self, names_file: &[bool]) -> io::Result<ContentHash> {
        let all = std::iter::once(&self.program).chain(&self.arguments);
        let mut words = Vec::new();
        for (word, &is_file) in all.zip(names_file) {
            let content = if is_file { hash_file(Path::new(word))?.to_string() } else { word.clone() };
            words.push((is_file, content));
        }
        Ok(ContentHash::of_json(&words))
    }

    /// Finds the program as a shell does.
    pub(super) fn found(&self) -> Option<PathBuf> {
        if self.is_path() {
            return Some(PathBuf::from(&self.program)).filter(|path| is_program(path));
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(&self.program)).find(|file| is_program(file))
    }

    /// Checks that the program exists on this host and can be executed.
    ///
    /// # Errors
    /// A message if not.
    pub(super) fn check_host(&self) -> Result<(), String> {
        let program = &self.program;
        let message = || format!("cannot be used on this host: `{program}` not found or not executable");
        self.found().map(drop).ok_or_else(message)
    }

    fn is_path(&self) -> bool {
        self.program.contains('/')
    }
}

/// A command line as named by a run. Its files are hashed once, so that the tool checks the hash that identifies it.
#[derive(Debug)]
pub(super) struct NamedCommand {
    line: CommandLine,
    hashed: OnceLock<HashedCommand>,
}

impl NamedCommand {
    /// As [`CommandLine::parse`].
    pub(super) fn parse(text: &str) -> Result<Self, BackendError> {
        Ok(Self { line: CommandLine::parse(text)?, hashed: OnceLock::new() })
    }

    /// As [`HashedCommand::new`]. Blocks.
    pub(super) fn hashed(&self) -> io::Result<&HashedCommand> {
        if let Some(hashed) = self.hashed.get() {
            return Ok(hashed);
        }
        let hashed = HashedCommand::new(self.line.clone())?;
        Ok(self.hashed.get_or_init(|| hashed))
    }

    /// Returns the suffix of its name in a configuration. Blocks.
    pub(super) fn content(&self) -> io::Result<String> {
        Ok(hash_suffix(self.hashed()?.hash.clone()))
    }

    /// As [`CommandLine::check_host`].
    pub(super) fn check_host(&self) -> Result<(), String> {
        self.line.check_host()
    }
}

/// A command line with the hash that it had when its tool was set up.
#[derive(Debug, Clone)]
pub(super) struct HashedCommand {
    /// The command line.
    pub(super) line: CommandLine,
    /// Which words named a file then. Files that the program creates later are not hashed.
    names_file: Vec<bool>,
    hash: ContentHash,
}

impl HashedCommand {
    /// Hashes a command line. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read, or the program is a path and does not exist.
    pub(super) fn new(line: CommandLine) -> io::Result<Self> {
        let names_file = line.names_file();
        Ok(Self { hash: line.hash_of(&names_file)?, line, names_file })
    }

    /// Checks that the files of the command are still the same.
    ///
    /// # Errors
    /// A message if not.
    pub(super) async fn check(&self) -> Result<(), String> {
        let (line, names_file) = (self.line.clone(), self.names_file.clone());
        let hashed = tokio::task::spawn_blocking(move || line.hash_of(&names_file)).await;
        match hashed.map_err(io::Error::other).flatten() {
            Ok(hash) if hash == self.hash => Ok(()),
            Ok(_) => Err(CHANGED.to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(CHANGED.to_owned()),
            Err(error) => Err(format!("failed to start {}: {error}", self.line.program)),
        }
    }
}

/// Whether a path leads to a file that can be executed.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && is_executable(&metadata))
}

#[cfg(unix)]
fn is_executable(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;

    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &Metadata) -> bool {
    true
}

fn words(text: &str) -> Result<Vec<String>, BackendError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None if character == '"' || character == '\'' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(character),
        }
    }
    if let Some(quote) = quote {
        return Err(BackendError::Invalid(format!("a quote ({quote}) is not closed")));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_stand_in_quotes() {
        let words = |text: &str| super::words(text).ok();
        let of = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(" python3  weather.py\t-v "), of(&["python3", "weather.py", "-v"]));
        assert_eq!(words(r#""my tools/a" --name='x y'"#), of(&["my tools/a", "--name=x y"]));
        assert_eq!(words("a '' b\"c\"d"), of(&["a", "", "bcd"]));
        assert_eq!(words("it's"), None);
        assert!(CommandLine::parse("  ").is_err());
    }

    #[test]
    fn a_command_is_known_by_the_content_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let hash = |name: &str, content: &str, rest: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let line = CommandLine::parse(&format!("python3 '{}'{rest}", path.display())).unwrap();
            HashedCommand::new(line).unwrap().hash
        };
        let first = hash("a.py", "one", "");
        assert_eq!(first, hash("b.py", "one", ""));
        assert_ne!(first, hash("a.py", "two", ""));
        assert_ne!(first, hash("a.py", "one", " --fast"));
        let program = |text: String| CommandLine::parse(&text).unwrap();
        let absent = program(format!("'{}/none'", folder.path().display()));
        assert!(absent.found().is_none() && HashedCommand::new(absent).is_err());
        assert!(program("sh".to_owned()).found().is_some());
        assert!(program("no-such-program-here".to_owned()).found().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_program_must_be_executable() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let command = CommandLine::parse(&format!("'{}'", path.display())).unwrap();
        for (mode, is_program) in [(0o644, false), (0o755, true), (0o100, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(command.found().is_some(), is_program, "{mode:o}");
            assert_eq!(command.check_host().is_ok(), is_program, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let message = command.check_host().unwrap_err();
        assert!(message.ends_with("weather` not found or not executable"), "{message}");
        assert!(HashedCommand::new(command).is_ok());
        let folder = CommandLine::parse(&format!("'{}'", folder.path().display())).unwrap();
        assert!(folder.found().is_none(), "a folder is not a program");
    }

    #[tokio::test]
    async fn changes_of_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather.py");
        std::fs::write(&path, "one").unwrap();
        let line = CommandLine::parse(&format!("python3 '{}'", path.display())).unwrap();
        let command = HashedCommand::new(line).unwrap();
        assert_eq!(command.check().await, Ok(()));
        std::fs::write(&path, "two").unwrap();
        assert!(command.check().await.unwrap_err().contains("files have changed"));
        std::fs::remove_file(&path).unwrap();
        assert!(command.check().await.unwrap_err().contains("files have changed"));
    }

    #[tokio::test]
    async fn a_named_command_keeps_its_first_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather.py");
        std::fs::write(&path, "one").unwrap();
        let command = NamedCommand::parse(&format!("python3 '{}'", path.display())).unwrap();
        let content = command.content().unwrap();
        std::fs::write(&path, "two").unwrap();
        assert_eq!(command.content().unwrap(), content);
        assert!(command.hashed().unwrap().check().await.unwrap_err().contains("files have changed"));
    }

    #[tokio::test]
    async fn a_file_that_the_program_creates_is_not_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("notes.log");
        let line = CommandLine::parse(&format!("sh --log '{}'", log.display())).unwrap();
        let command = HashedCommand::new(line).unwrap();
        std::fs::write(&log, "started\n").unwrap();
        assert_eq!(command.check().await, Ok(()));
    }
}
