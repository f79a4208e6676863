//! Guides that are followed as written: the commands of their `console` blocks run in a fresh folder, and print the lines
//! that the guide shows. `…` stands for any text. A block whose language is followed by a name, such as `python weather.py`, is a
//! file.

use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;

use crate::support::{program, unwrapped};

/// A command of a guide and the lines that it prints.
struct Step {
    line: usize,
    command: String,
    printed: Vec<String>,
}

/// Returns the commands of a guide. A line that begins with `$ ` is a command, which lines with `> ` continue.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (number, line) in guide.lines().enumerate() {
        match (inside, line) {
            (false, _) => inside = line == "```console",
            (true, "```") => inside = false,
            (true, _) => match (line.strip_prefix("$ "), line.strip_prefix("> "), steps.last_mut()) {
                (Some(command), ..) => {
                    let command = command.to_owned();
                    steps.push(Step { line: number + 1, command, printed: Vec::new() });
                }
                (None, Some(more), Some(step)) if step.printed.is_empty() => {
                    step.command.push_str(&format!("\n{more}"));
                }
                (None, _, Some(step)) => step.printed.push(line.trim().to_owned()),
                (None, _, None) => panic!("line {}: output without a command", number + 1),
            },
        }
    }
    steps
}

/// Returns the names and contents of the files of a guide.
fn files(guide: &str) -> Vec<(&str, &str)> {
    let blocks = guide.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| {
            let (language, content) = block.split_once('\n')?;
            let (_, name) = language.split_once(' ')?;
            Some((name, content))
        })
        .collect()
}

/// Follows a guide in a fresh folder, which has the examples of the repository.
fn follow(guide: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(guide)).unwrap();
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{guide} has no commands");
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files(&text) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    for name in ["examples", "benchmarks"] {
        std::os::unix::fs::symlink(root.join(name), folder.path().join(name)).unwrap();
    }
    let programs = Path::new(&program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    for Step { line, command, printed } in steps {
        let ran = Command::new("sh")
            .args(["-euc", &format!("exec 2>&1\n{command}")])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ran.stdout);
        let place = format!("{guide}:{line}: {command}\n{output}");
        let found = unwrapped(&output);
        assert!(ran.status.code().is_some_and(|code| code == 0), "{place}");
        for expected in printed.iter().filter(|line| !line.is_empty()) {
            let parts: Vec<_> = unwrapped(expected).split('…').map(regex::escape).collect();
            assert!(
                Regex::new(&parts.join(".*")).unwrap().is_match(&found),
                "{expected}\nis not in\n{place}"
            );
        }
    }
}

#[test]
fn own_data() {
    follow("docs/guide/own-data.md");
}

#[test]
fn own_tool() {
    follow("docs/guide/own-tool.md");
}

#[test]
fn own_agent() {
    follow("docs/guide/own-agent.md");
}
