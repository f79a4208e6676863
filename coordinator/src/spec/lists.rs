//! Expands the lists of a settings file before it is deserialized: path patterns and list files become entries.
//!
//! ```text
//! models = ["checkpoints/*", { file = "models.txt" }]
//!        → ["checkpoints/step-100", "checkpoints/step-200", "builtin:tiny"]
//! ```
//!
//! Paths are relative to the file that contains them. Generated entries keep the span of the entry they come from, so
//! that later errors name its line. [`path_pattern`](super::path_pattern) matches the paths.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lumos_benchmarks::task_file::TaskFile;
use lumos_tasks::Formulation;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::names::{has_pattern, matches};
use super::path_pattern::paths;
use super::values::parse_seeds;

/// Largest number of entries of a list, and of matches of a pattern.
pub(super) const MOST_ENTRIES: usize = 10_000;

/// Largest size of a list file in bytes.
const MOST_LIST_BYTES: u64 = 1 << 20;

/// The key of an entry that reads further entries from a file.
const FILE: &str = "file";

/// Keys of a set of models.
const ROLES: [&str; 5] = ["model", "planner", "grounder", "answerer", "qa"];

/// Error of an entry.
#[derive(Debug)]
pub(super) struct ListError {
    /// Position of the entry in the text.
    pub(super) span: Range<usize>,
    /// The list's key.
    pub(super) key: &'static str,
    pub(super) message: String,
    /// Suggested correction, or an empty text.
    pub(super) hint: String,
}

/// What is wrong with an entry, and a hint.
type Wrong = (String, String);

fn wrong(message: impl Into<String>, hint: impl Into<String>) -> Wrong {
    (message.into(), hint.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tasks,
    Models,
    Formulations,
    Seeds,
}

/// The lists that are expanded, by key.
const LISTS: [(&str, Kind); 8] = [
    ("tasks", Kind::Tasks),
    ("task", Kind::Tasks),
    ("models", Kind::Models),
    ("model", Kind::Models),
    ("formulation", Kind::Formulations),
    ("formulations", Kind::Formulations),
    ("seed", Kind::Seeds),
    ("seeds", Kind::Seeds),
];

/// Expands the lists of a settings file that is in `folder`.
pub(super) fn expand(table: &mut DeTable<'_>, folder: &Path) -> Result<(), ListError> {
    for (key, kind) in LISTS {
        let Some(value) = table.get_mut(key) else { continue };
        let span = value.span();
        let given = match value.get_ref() {
            DeValue::String(text) => {
                text.split(',').map(|word| text_value(span.clone(), word.trim().to_owned())).collect()
            }
            DeValue::Array(entries) => entries.iter().cloned().collect(),
            DeValue::Table(_) => vec![value.clone()],
            // Deserializing reports a wrong type.
            _ => continue,
        };
        let entries = List { key, kind, entries: Vec::new() }.expand(given, folder)?;
        *value.get_mut() = DeValue::Array(DeArray::from_iter(entries));
    }
    Ok(())
}

fn text_value<'i>(span: Range<usize>, text: String) -> Spanned<DeValue<'i>> {
    Spanned::new(span, DeValue::String(text.into()))
}

struct List<'i> {
    key: &'static str,
    kind: Kind,
    entries: Vec<Spanned<DeValue<'i>>>,
}

impl<'i> List<'i> {
    fn expand(
        mut self,
        given: Vec<Spanned<DeValue<'i>>>,
        folder: &Path,
    ) -> Result<Vec<Spanned<DeValue<'i>>>, ListError> {
        let key = self.key;
        for entry in given {
            let span = entry.span();
            let failed = |(message, hint): Wrong| ListError { span: span.clone(), key, message, hint };
            self.add(entry, folder).map_err(failed)?;
            if self.entries.len() > MOST_ENTRIES {
                return Err(failed(wrong(format!("more than {MOST_ENTRIES} entries"), "")));
            }
        }
        self.check_duplicates()?;
        Ok(self.entries)
    }

    fn add(&mut self, entry: Spanned<DeValue<'i>>, folder: &Path) -> Result<(), Wrong> {
        let span = entry.span();
        match entry.get_ref() {
            DeValue::String(text) => {
                for word in self.words(text, folder)? {
                    self.entries.push(text_value(span.clone(), word));
                }
            }
            DeValue::Table(table) if table.contains_key(FILE) => {
                let name = match table.get(FILE).map(Spanned::get_ref) {
                    Some(DeValue::String(name)) if table.len() == 1 => name,
                    _ => return Err(wrong("expected only the path of a file", "write { file = \"PATH\" }")),
                };
                let file = folder.join(name.as_ref());
                let inside = file.parent().unwrap_or(Path::new("")).to_owned();
                for (number, line) in list_file(&file)? {
                    let at = |(message, hint)| (format!("{}:{number}: {message}", file.display()), hint);
                    for word in self.words(&line, &inside).map_err(at)? {
                        self.entries.push(text_value(span.clone(), word));
                    }
                }
            }
            DeValue::Table(table) if self.kind == Kind::Models => {
                let sets = sets(table, &span, folder)?;
                self.entries
                    .extend(sets.into_iter().map(|set| Spanned::new(span.clone(), DeValue::Table(set))));
            }
            _ => self.entries.push(entry),
        }
        Ok(())
    }

    fn words(&self, word: &str, folder: &Path) -> Result<Vec<String>, Wrong> {
        match self.kind {
            Kind::Tasks => tasks(word, folder),
            Kind::Models => models(word, folder),
            Kind::Formulations if has_pattern(word) => {
                let names = Formulation::ALL.iter().map(|one| one.name());
                let found: Vec<String> = names
                    .filter(|name| matches(word.as_bytes(), name.as_bytes()))
                    .map(str::to_owned)
                    .collect();
                if found.is_empty() {
                    let known = Formulation::ALL.map(Formulation::name).join(", ");
                    return Err(wrong(
                        format!("`{word}` matches no formulation"),
                        format!("expected some of {known}"),
                    ));
                }
                Ok(found)
            }
            Kind::Formulations | Kind::Seeds => Ok(vec![word.to_owned()]),
        }
    }

    /// Checks that no entry is listed twice, and the number of seeds.
    fn check_duplicates(&self) -> Result<(), ListError> {
        let mut known: HashMap<String, Range<usize>> = HashMap::new();
        for entry in &self.entries {
            let texts = match (self.kind, entry.get_ref()) {
                // Deserializing reports invalid seeds.
                (Kind::Seeds, DeValue::String(text)) => {
                    parse_seeds(text).unwrap_or_default().iter().map(ToString::to_string).collect()
                }
                (_, DeValue::String(text)) => vec![text.trim().to_owned()],
                (_, DeValue::Integer(number)) => vec![number.as_str().to_owned()],
                (_, DeValue::Table(set)) => vec![set_text(set)],
                _ => Vec::new(),
            };
            let failed = |message: String, hint: &str| ListError {
                span: entry.span(),
                key: self.key,
                message,
                hint: hint.to_owned(),
            };
            // Only ranges of seeds are several texts.
            if known.len() + texts.len() > MOST_ENTRIES {
                return Err(failed(format!("more than {MOST_ENTRIES} seeds"), ""));
            }
            for text in texts {
                if let Some(first) = known.insert(text.clone(), entry.span()) {
                    let hint = if first == entry.span() { "remove one of them" } else { "remove this entry" };
                    return Err(failed(format!("`{text}` is listed twice"), hint));
                }
            }
        }
        Ok(())
    }
}

/// Text of a set of models for comparison and messages.
fn set_text(set: &DeTable<'_>) -> String {
    let role = |role: &&str| match set.get(*role)?.get_ref() {
        DeValue::String(name) => Some(format!("{role} = {name}")),
        _ => None,
    };
    ROLES.iter().filter_map(role).collect::<Vec<_>>().join(", ")
}

/// Reads the lines of a list file with their numbers, without blank lines and comments.
fn list_file(file: &Path) -> Result<Vec<(usize, String)>, Wrong> {
    let failed = |error: &dyn std::fmt::Display| {
        wrong(
            format!("failed to read list file `{}`: {error}", file.display()),
            "paths are relative to the settings file",
        )
    };
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| failed(&error))?;
    opened.take(MOST_LIST_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > MOST_LIST_BYTES {
        return Err(failed(&format!("longer than {MOST_LIST_BYTES} bytes")));
    }
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines: Vec<_> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| (number, line.to_owned()))
        .collect();
    match lines.len() {
        0 => Err(wrong(format!("list file `{}` has no entries", file.display()), "write one entry per line")),
        count if count > MOST_ENTRIES => Err(failed(&format!("more than {MOST_ENTRIES} entries"))),
        _ => Ok(lines),
    }
}

/// Expands a word of `tasks`. Patterns of names are expanded when the benchmarks are known.
fn tasks(word: &str, folder: &Path) -> Result<Vec<String>, Wrong> {
    let is_path = word.contains('/') || word.ends_with(TaskFile::ENDING);
    if is_path && has_pattern(word) {
        return matched(word, folder, "task file or folder", |path| {
            path.is_dir() || path.to_string_lossy().ends_with(TaskFile::ENDING)
        });
    }
    let is_name = lumos_benchmarks::find(word).is_some() || word == "all" || has_pattern(word);
    let found = folder.join(word);
    let here = is_path || found.is_dir();
    Ok(vec![if !is_name && here { existing(word, folder) } else { word.to_owned() }])
}

/// Expands the name of a model. Only folders and files have patterns.
fn models(name: &str, folder: &Path) -> Result<Vec<String>, Wrong> {
    let (backend, rest) = match name.split_once(':') {
        Some((backend @ ("candle" | "script"), rest)) => (Some(backend), rest),
        Some(_) => return Ok(vec![name.to_owned()]),
        None => (None, name),
    };
    let is_script = backend == Some("script");
    // A base and an adapter.
    let parts: Vec<&str> = if is_script { vec![rest] } else { rest.split('+').collect() };
    let mut names = vec![String::new()];
    for (position, part) in parts.iter().enumerate() {
        let found = if has_pattern(part) {
            let what = if is_script { "file" } else { "folder or GGUF file" };
            matched(part, folder, what, |path| {
                let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
                if is_script { path.is_file() } else { path.is_dir() || is_gguf && path.is_file() }
            })?
        } else {
            vec![existing(part, folder)]
        };
        let joined = names.iter().flat_map(|start| {
            let plus = if position == 0 { "" } else { "+" };
            found.iter().map(move |part| format!("{start}{plus}{part}"))
        });
        names = joined.take(MOST_ENTRIES + 1).collect();
    }
    let prefix = backend.map(|backend| format!("{backend}:")).unwrap_or_default();
    Ok(names.into_iter().map(|name| format!("{prefix}{name}")).collect())
}

/// Expands the patterns of a set of models: every combination.
fn sets<'i>(table: &DeTable<'i>, span: &Range<usize>, folder: &Path) -> Result<Vec<DeTable<'i>>, Wrong> {
    let mut sets = vec![table.clone()];
    for role in ROLES {
        let Some(DeValue::String(name)) = table.get(role).map(Spanned::get_ref) else { continue };
        let names = models(name, folder).map_err(|(message, hint)| (format!("{role}: {message}"), hint))?;
        if names.len() * sets.len() > MOST_ENTRIES {
            return Err(wrong(format!("more than {MOST_ENTRIES} combinations"), "use patterns in one role"));
        }
        sets = sets
            .iter()
            .flat_map(|set| {
                names.iter().map(|name| {
                    let mut set = set.clone();
                    if let Some(value) = set.get_mut(role) {
                        *value = text_value(span.clone(), name.clone());
                    }
                    set
                })
            })
            .collect();
    }
    Ok(sets)
}

/// Returns a path relative to `folder` if it exists there, otherwise the word unchanged.
fn existing(word: &str, folder: &Path) -> String {
    let path = folder.join(word);
    match path.to_str() {
        Some(path) if !word.is_empty() && Path::new(path).exists() => path.to_owned(),
        _ => word.to_owned(),
    }
}

/// Returns the paths that match a pattern, of those that are accepted.
fn matched(
    pattern: &str,
    folder: &Path,
    what: &str,
    accepted: impl Fn(&Path) -> bool,
) -> Result<Vec<String>, Wrong> {
    let found = paths(pattern, folder, MOST_ENTRIES)
        .map_err(|error| wrong(format!("invalid pattern `{pattern}`: {error}"), ""))?;
    let any = !found.is_empty();
    let found: Vec<PathBuf> = found.into_iter().filter(|path| accepted(path)).collect();
    if found.is_empty() {
        let of = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let message = format!("`{pattern}` matches no {what} in `{}`", of.display());
        let hint = match (any, what) {
            (true, "folder or GGUF file") => "write script:PATTERN for recorded cases",
            _ => "paths are relative to the file that contains the pattern",
        };
        return Err(wrong(message, hint));
    }
    let text = |path: PathBuf| {
        let shown = path.display().to_string();
        path.into_os_string().into_string().map_err(|_| wrong(format!("path `{shown}` is not UTF-8"), ""))
    };
    found.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::{ModelSet, RunSpec};

    /// A folder `exp` with checkpoints, task files and a settings file.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let exp = folder.path().join("exp");
            for name in ["checkpoints/step-100", "checkpoints/step-20", "checkpoints/.cache", "base", "mine"]
            {
                fs::create_dir_all(exp.join(name)).unwrap();
            }
            for name in
                ["checkpoints/notes.txt", "checkpoints/small.gguf", "mine/a.toml", "mine/b.toml", "one.jsonl"]
            {
                fs::write(exp.join(name), "").unwrap();
            }
            Self(folder)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join("exp").join(name), text).unwrap();
        }

        /// Reads a settings file. Paths in the result and in errors are relative to the folder.
        fn read(&self, text: &str) -> Result<RunSpec, String> {
            self.write("sweep.toml", text);
            let start = format!("{}/", self.0.path().display());
            let read = RunSpec::from_file(&self.0.path().join("exp/sweep.toml"));
            let mut spec = read.map_err(|error| error.to_string().replace(&start, ""))?;
            let short = |name: String| name.replace(&start, "");
            spec.models = spec.models.map(|sets| sets.into_iter().map(|set| set.map_names(short)).collect());
            spec.tasks = spec.tasks.map(|tasks| tasks.into_iter().map(short).collect());
            Ok(spec)
        }

        fn models(&self, text: &str) -> Vec<String> {
            let sets = self.read(text).unwrap().models.unwrap();
            let names = |set: ModelSet| {
                [set.model, set.planner, set.grounder].into_iter().flatten().collect::<Vec<_>>()
            };
            sets.into_iter().map(|set| names(set).join(" ")).collect()
        }

        fn tasks(&self, text: &str) -> Vec<String> {
            self.read(text).unwrap().tasks.unwrap()
        }

        fn refused(&self, text: &str) -> String {
            self.read(text).unwrap_err()
        }
    }

    const STEPS: [&str; 3] =
        ["exp/checkpoints/small.gguf", "exp/checkpoints/step-20", "exp/checkpoints/step-100"];

    #[test]
    fn models_are_folders_and_files_that_match_in_natural_order() {
        let folder = Folder::new();
        assert_eq!(folder.models("models = 'checkpoints/*'"), STEPS);
        assert_eq!(
            folder.models(
                "models = ['base', 'builtin:tiny', 'candle:checkpoints/step-*', 'script:*.jsonl', 'hub/name']"
            ),
            [
                "exp/base",
                "builtin:tiny",
                "candle:exp/checkpoints/step-20",
                "candle:exp/checkpoints/step-100",
                "script:exp/one.jsonl",
                "hub/name"
            ]
        );
        assert_eq!(
            folder.models("models = ['base+checkpoints/step-*']"),
            ["exp/base+exp/checkpoints/step-20", "exp/base+exp/checkpoints/step-100"]
        );
        let pairs = "[[models]]\nplanner = 'checkpoints/step-*'\ngrounder = 'openai:a*b@http://h/v1'";
        let address = "openai:a*b@http://h/v1";
        assert_eq!(
            folder.models(pairs),
            [20, 100].map(|step| format!("exp/checkpoints/step-{step} {address}"))
        );
    }

    #[test]
    fn list_files_have_entries_relative_to_themselves() {
        let folder = Folder::new();
        folder.write("checkpoints/all.txt", "# the best ones\n\nstep-*\n  builtin:tiny  \n");
        assert_eq!(
            folder.models("models = [{ file = 'checkpoints/all.txt' }, 'base']"),
            ["exp/checkpoints/step-20", "exp/checkpoints/step-100", "builtin:tiny", "exp/base"]
        );
        folder.write("tasks.txt", "svamp\nmine/*.toml\n");
        assert_eq!(
            folder.tasks("tasks = { file = 'tasks.txt' }"),
            ["svamp", "exp/mine/a.toml", "exp/mine/b.toml"]
        );
        folder.write("seeds.txt", "0-2\n7\n");
        let spec = folder.read("seed = [{ file = 'seeds.txt' }, 9]\nformulation = ['*t*e', 'cot']").unwrap();
        assert_eq!(spec.seed, Some(vec![0, 1, 2, 7, 9]));
        assert_eq!(
            spec.formulation,
            Some(vec![Formulation::Iterative, Formulation::OneTime, Formulation::Cot])
        );
    }

    #[test]
    fn tasks_are_names_files_and_folders() {
        let folder = Folder::new();
        assert_eq!(folder.tasks("tasks = 'gsm*, mine/a.toml,mine'"), ["gsm*", "exp/mine/a.toml", "exp/mine"]);
        assert_eq!(folder.tasks("task = ['./mine/*']"), ["exp/./mine/a.toml", "exp/./mine/b.toml"]);
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_key() {
        let folder = Folder::new();
        let cases = [
            (
                "seed = 1\nmodels = [\n  'base',\n  'checkpoint/*',\n]",
                "exp/sweep.toml:4:3: `models`: `checkpoint/*` matches no folder or GGUF file in `exp`; paths are relative",
            ),
            (
                "models = 'checkpoints/*.txt'",
                "exp/sweep.toml:1:10: `models`: `checkpoints/*.txt` matches no folder or",
            ),
            ("models = '**/a'", "exp/sweep.toml:1:10: `models`: invalid pattern `**/a`: `**` is unsupported"),
            (
                "tasks = ['mine/*.tom']",
                "exp/sweep.toml:1:10: `tasks`: `mine/*.tom` matches no task file or folder in `exp`",
            ),
            (
                "formulation = 'x*'",
                "exp/sweep.toml:1:15: `formulation`: `x*` matches no formulation; expected some of",
            ),
            (
                "models = ['base',\n 'checkpoints/step-*',\n 'checkpoints/step-20']",
                "exp/sweep.toml:3:2: `models`: `exp/checkpoints/step-20` is listed twice; remove this entry",
            ),
            ("tasks = ['svamp', 'svamp']", "exp/sweep.toml:1:19: `tasks`: `svamp` is listed twice"),
            ("seed = ['0-4', 3]", "exp/sweep.toml:1:16: `seed`: `3` is listed twice"),
            (
                "models = [{ planner = 'base', grounder = 'base' }, { grounder = 'base', planner = 'base' }]",
                "`planner = exp/base, grounder = exp/base` is listed twice",
            ),
            (
                "models = [{ file = 'none.txt' }]",
                "exp/sweep.toml:1:11: `models`: failed to read list file `exp/none.txt`",
            ),
            ("models = [{ file = 'none.txt', model = 'a' }]", "expected only the path of a file"),
            ("models = { file = 'empty.txt' }", "list file `exp/empty.txt` has no entries"),
            (
                "models = { file = 'list.txt' }",
                "exp/list.txt:2: `step-*` matches no folder or GGUF file in `exp`",
            ),
            ("seed = 'a'", "exp/sweep.toml:1:8: `seed`: invalid seeds `a`"),
        ];
        folder.write("empty.txt", "# nothing\n");
        folder.write("list.txt", "base\nstep-*\n");
        for (text, message) in cases {
            let refused = folder.refused(text);
            assert!(refused.contains(message), "{text}:\n{refused}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let folder = Folder::new();
        folder.write("many.txt", &"a\n".repeat(MOST_ENTRIES + 1));
        assert!(folder.refused("models = { file = 'many.txt' }").contains("more than 10000 entries"));
        // Ranges are counted before they are expanded into one list.
        let most = folder.read("seed = ['0-9998', 9999]").unwrap();
        assert_eq!(most.seed.map(|seeds| seeds.len()), Some(MOST_ENTRIES));
        let seeds = folder.refused("seed = ['0-9999', '10000-10001', 'a']");
        assert_eq!(seeds, "exp/sweep.toml:1:19: `seed`: more than 10000 seeds");
        folder.write("large.txt", &"a".repeat(1 << 21));
        assert!(folder.refused("models = { file = 'large.txt' }").contains("longer than 1048576 bytes"));
        let large = folder.refused(&" ".repeat(1 << 21));
        assert!(large.contains("failed to read settings file") && large.contains("longer than"), "{large}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(models|tasks|seed|formulation) = [\\[\\]{}'a-c0-3*?/,=.# \n-]{0,30}") {
            let folder = Folder::new();
            let _ = folder.read(&text);
        }

        #[test]
        fn words_without_patterns_stay_as_they_are(names in proptest::collection::hash_set("[x-z]{1,4}", 1..6)) {
            let names: Vec<String> = names.into_iter().collect();
            let folder = Folder::new();
            let text = format!("models = {names:?}\ntasks = {names:?}");
            prop_assert_eq!(&folder.models(&text), &names);
            prop_assert_eq!(&folder.tasks(&text), &names);
        }
    }
}
