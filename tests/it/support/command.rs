//! A command of the program, and what is left when it has ended.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

use serde_json::Value;

use super::{Followed, PATIENCE, Process, send};

/// Returns a command of the program (or of `LUMOS_PROGRAM`), without the caller's settings.
pub(crate) fn lumos() -> Lumos {
    Lumos::of(Command::new(program()))
}

/// Returns a command of the program with a limit on its address space in KiB.
pub(crate) fn limited(kibibytes: u64) -> Lumos {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v $0 && exec \"$@\"", &kibibytes.to_string()]).arg(program());
    Lumos::of(shell)
}

/// Returns the path of the program.
pub(crate) fn program() -> std::ffi::OsString {
    let named = std::env::var_os("LUMOS_PROGRAM").filter(|name| !name.is_empty());
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_lumos").into())
}

/// Splits a text at white space. A part in single quotes may contain white space.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (Vec::new(), false);
    let mut word: Option<String> = None;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            _ if letter.is_whitespace() && !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    assert!(!quoted, "a quote is not closed: {line}");
    words.extend(word);
    words
}

#[test]
fn words_are_split_and_quoted() {
    assert_eq!(words(" run  --tasks\n'a b'c --name '' "), ["run", "--tasks", "a bc", "--name", ""]);
}

/// A command of the program: `lumos().args("run --tasks svamp --limit 2").arg(path).ok()`.
pub(crate) struct Lumos {
    command: Command,
    input: Option<String>,
    secret: Option<&'static str>,
}

impl Lumos {
    fn of(mut command: Command) -> Self {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["LUMOS_", "WOLFRAM_", "OPENAI_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        Self { command, input: None, secret: None }
    }

    /// Adds the words of a text as arguments. Paths stand in single quotes, or are added with [`Lumos::arg`].
    pub(crate) fn args(mut self, line: impl AsRef<str>) -> Self {
        self.command.args(words(line.as_ref()));
        self
    }

    /// Adds an argument, such as a path.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds a folder for runs and the name of the run.
    pub(crate) fn output(self, folder: &Path, name: &str) -> Self {
        self.args("--output-path").arg(folder).args("--name").arg(name)
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Sets the working folder.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the text on standard input.
    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Asserts that a text does not occur in the output.
    pub(crate) fn hiding(mut self, secret: &'static str) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Ended {
        let line = self.to_string();
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        let spawned = self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{line}: {error}"));
        if let (Some(input), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // The program may end before it has read everything.
            std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        }
        let (process, (over, ended)) = (child.id(), channel::<()>());
        let watchdog = std::thread::spawn(move || {
            let hangs = ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if hangs {
                send("-KILL", process);
            }
            hangs
        });
        let output = child.wait_with_output().unwrap();
        drop(over);
        let ended = Ended::of(line, &output, self.secret);
        assert!(!watchdog.join().unwrap(), "it did not end within {} s: {ended}", PATIENCE.as_secs());
        ended
    }

    /// Runs it and asserts exit code 0.
    pub(crate) fn ok(self) -> Ended {
        self.exits(0)
    }

    /// Runs it and asserts the exit code.
    pub(crate) fn exits(self, code: i32) -> Ended {
        self.run().with_code(code)
    }

    /// Starts it to follow its output.
    pub(crate) fn follow(mut self) -> Followed {
        let line = self.to_string();
        Followed::start(&mut self.command, line)
    }

    /// Starts it in the background, with its output in a log.
    pub(crate) fn start(mut self, log: &Path) -> Process {
        Process::start(&mut self.command, log)
    }
}

impl fmt::Display for Lumos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            write!(formatter, "{}={} ", name.display(), value.display())?;
        }
        write!(formatter, "{}", self.command.get_program().display())?;
        self.command.get_args().try_for_each(|argument| write!(formatter, " {}", argument.display()))
    }
}

/// A command that has ended. Prints as the command line, exit code and output.
pub(crate) struct Ended {
    pub(super) line: String,
    /// The exit code; -1 after a signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    fn of(line: String, output: &Output, secret: Option<&str>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let ended = Self { line, code: output.status.code().unwrap_or(-1), stdout, stderr };
        let shown =
            secret.is_some_and(|secret| ended.stdout.contains(secret) || ended.stderr.contains(secret));
        assert!(!shown, "a secret is shown:\n{ended}");
        ended
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Asserts that standard output contains texts.
    #[track_caller]
    pub(crate) fn prints(self, texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for text in texts {
            let text = text.as_ref();
            assert!(self.stdout.contains(text), "`{text}` is missing from standard output of {self}");
        }
        self
    }

    /// Asserts that standard error contains texts.
    #[track_caller]
    pub(crate) fn reports(self, texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for text in texts {
            let text = text.as_ref();
            assert!(self.stderr.contains(text), "`{text}` is missing from standard error of {self}");
        }
        self
    }

    /// Reads standard output as JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self}")))
            .collect()
    }

    /// Reads standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, code, stdout, stderr } = self;
        write!(formatter, "{line}\nexit code {code}\nstandard output:\n{stdout}\nstandard error:\n{stderr}")
    }
}
