//! `lumos init`: writes examples to start from.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::cli::{InitArgs, InitCommand};
use crate::exit::{CommandResult, Exit, Failure};

const TASK: &str = include_str!("init/task.toml");
const AGENT: &str = include_str!("init/agent.toml");
const ITEMS: &str = include_str!("init/items.jsonl");

/// `lumos init`: writes new files and changes none.
pub(crate) fn run(arguments: &InitArgs) -> CommandResult {
    let InitCommand::Task { folder, agent } = &arguments.command;
    let name = name_of(folder);
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    let task = folder.join("task.toml");
    let mut text = TASK.replacen("NAME", &name, 1);
    if *agent {
        text = text.replacen("\nfamily = \"maths\"", "\nfamily = \"custom\"", 1) + AGENT;
    }
    write_new(&task, &text)?;
    write_new(&folder.join("items.jsonl"), ITEMS)?;
    let task = task.display();
    println!("{task}\n{}\n", folder.join("items.jsonl").display());
    println!("next: lumos run --tasks {task} --model builtin:tiny --name {name}");
    Ok(Exit::Complete)
}

/// Returns a benchmark's name: the folder's name without characters that names cannot have.
fn name_of(folder: &Path) -> String {
    let given = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let name: String = given.chars().map(plain).collect();
    let name = name.trim_matches('-').chars().take(64).collect::<String>();
    if name.is_empty() || lumos_benchmarks::find(&name).is_some() { "my-task".to_owned() } else { name }
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Failure::input(format!("`{}` exists; nothing was changed", path.display()))
                .hint("choose another folder"));
        }
        opened => opened.map_err(|error| cannot_write(path, &error))?,
    };
    file.write_all(text.as_bytes()).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot write to `{}`: {error}", path.display()))
}
