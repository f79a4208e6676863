//! The command line in a backend's name: `python3 weather.py --units metric`.

use std::io;
use std::path::{Path, PathBuf};

use lumos_models::hash_file;
use lumos_tasks::ContentHash;

use crate::backend::BackendError;

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

    /// Returns the hash of the command. Words that name a file are replaced by the file's content, so the same program in
    /// another folder has the same hash. A program without a folder, such as `python3`, is found on `PATH`; only its name
    /// is hashed, because machines have different builds of it.
    ///
    /// # Errors
    /// If a file cannot be read, or the program is a path and does not exist.
    pub(super) fn hash(&self) -> io::Result<ContentHash> {
        let program = if self.is_path() {
            hash_file(Path::new(&self.program))?.to_string()
        } else {
            self.program.clone()
        };
        let mut words = vec![(self.is_path(), program)];
        for word in &self.arguments {
            let is_file = Path::new(word).is_file();
            let content = if is_file { hash_file(Path::new(word))?.to_string() } else { word.clone() };
            words.push((is_file, content));
        }
        Ok(ContentHash::of_json(&words))
    }

    /// Finds the program as a shell does.
    pub(super) fn found(&self) -> Option<PathBuf> {
        if self.is_path() {
            return Some(PathBuf::from(&self.program)).filter(|path| path.is_file());
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(&self.program)).find(|file| file.is_file())
    }

    /// Checks that the program exists on this host.
    ///
    /// # Errors
    /// A message if it does not.
    pub(super) fn check_host(&self) -> Result<(), String> {
        let program = &self.program;
        self.found().map(drop).ok_or_else(|| format!("cannot be used on this host: {program} not found"))
    }

    fn is_path(&self) -> bool {
        self.program.contains('/')
    }
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
            CommandLine::parse(&format!("python3 '{}'{rest}", path.display())).unwrap().hash().unwrap()
        };
        let first = hash("a.py", "one", "");
        assert_eq!(first, hash("b.py", "one", ""));
        assert_ne!(first, hash("a.py", "two", ""));
        assert_ne!(first, hash("a.py", "one", " --fast"));
        let program = |text: String| CommandLine::parse(&text).unwrap();
        let here = program(format!("'{}/b.py'", folder.path().display()));
        assert!(here.hash().is_ok() && here.found().is_some());
        let absent = program(format!("'{}/none'", folder.path().display()));
        assert!(absent.hash().is_err() && absent.found().is_none());
        assert!(program("sh".to_owned()).found().is_some());
        assert!(program("no-such-program-here".to_owned()).found().is_none());
    }
}
