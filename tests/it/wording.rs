//! Checks that messages and help texts do not contain the phrases that docs/style.md rejects.
//!
//! Reads the string literals of the crates' sources and the help texts in `src/cli`, except texts that agents
//! see or that trajectories record: their wording is compared with the original.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::waits::sources;

/// Folders with messages for people.
const ROOTS: [&str; 13] = [
    "benchmarks/src",
    "coordinator/src",
    "engine/kernels/src",
    "engine/src",
    "environments/src",
    "http/src",
    "models/src",
    "queue/src",
    "reports/src",
    "src",
    "tasks/src",
    "tools/src",
    "worker/src",
];

/// Sources of texts that agents see or that trajectories record.
const FOR_AGENTS: [&str; 3] = ["tasks/src/families/", "environments/src/", "tools/src/live/site.rs"];

/// Patterns that messages must not contain, and what to write instead.
const REJECTED: [(&str, &str); 10] = [
    (r"\b(is|are) no [a-z`]", "unknown …, invalid …, not a …, missing …"),
    (r"\b(is|are) none\b", "invalid …, not found, missing"),
    (r"\b(is|are) not there\b", "not found"),
    (r"\bto be had\b", "not available, not found"),
    (r"\b(nobody|whoever|everybody)\b", "the subject: a user, a process, a worker"),
    (r"\bwithout a word\b", "stopped responding"),
    (r"\bof late\b", "currently, recently"),
    (r"\b(came|comes) of\b", "caused by, result"),
    (r"\b(heed|mend|lest)\b", "handle, fix, so that … not"),
    (r"; known are\b", "expected one of …"),
];

/// Phrases that match a pattern but are plain English.
const ACCEPTED: [&str; 3] = ["is no longer", "are no longer", "there is no"];

/// Returns the texts of a source that people read, each on one line.
fn texts(path: &str, source: &str) -> Vec<String> {
    let literal = Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).unwrap();
    let space = Regex::new(r"(?:\\\n|\s)+").unwrap();
    let (mut code, mut help) = (String::new(), Vec::new());
    // Tests come last in a file.
    for line in source.lines().take_while(|line| !line.trim_start().starts_with("#[cfg(test)]")) {
        match line.trim_start().strip_prefix("//") {
            Some(comment) if path.starts_with("src/cli") => help.push(comment.to_owned()),
            Some(_) => {}
            None => code.extend([&line.replace(r#"'"'"#, "''").replace(r#"'\"'"#, "''"), "\n"]),
        }
    }
    let literals = literal.captures_iter(&code).map(|found| space.replace_all(&found[1], " ").into_owned());
    literals.chain(help).collect()
}

#[test]
fn messages_and_help_are_plain_english() {
    let rejected = REJECTED.map(|(pattern, instead)| (Regex::new(pattern).unwrap(), instead));
    let mut paths = Vec::new();
    ROOTS.iter().for_each(|root| sources(root, &mut paths));
    paths.retain(|path| !path.contains("tests") && !FOR_AGENTS.iter().any(|folder| path.starts_with(folder)));
    let (mut read, mut found) = (0, Vec::new());
    for path in &paths {
        let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        for text in texts(path, &source) {
            read += 1;
            let plain = ACCEPTED.iter().fold(text.clone(), |text, accepted| text.replace(accepted, ""));
            for (_, instead) in rejected.iter().filter(|(pattern, _)| pattern.is_match(&plain)) {
                found.push(format!("{path}: \"{text}\"; use: {instead}"));
            }
        }
    }
    assert!(read > 5_000, "only {read} texts were found");
    assert!(found.is_empty(), "see docs/style.md:\n{}", found.join("\n"));
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let source = "//! It is no comment.\nfn f() { g('\"', \"`{x}` is no \\\n    model\"); h(\"it is no longer here\") }\n\
                  #[cfg(test)]\nmod tests { \"is none\" }\n";
    assert_eq!(texts("worker/src/x.rs", source), ["`{x}` is no model", "it is no longer here"]);
    assert_eq!(texts("src/cli/x.rs", "/// This is no help.\n"), ["/ This is no help."]);
}
