//! `lumos init`: writes examples to start from.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use lumos_benchmarks::task_file::{TaskDefinition, TaskFamily};
use lumos_tasks::shell::quoted_path;

use crate::cli::{InitArgs, InitCommand};
use crate::exit::{CommandResult, Exit, Failure};

const TASK: &str = include_str!("init/task.toml");
const AGENT: &str = include_str!("init/agent.toml");
const ITEMS: &str = include_str!("init/items.jsonl");

/// `lumos init`: writes new files and changes none.
pub(crate) fn run(arguments: &InitArgs) -> CommandResult {
    let InitCommand::Task { folder, agent } = &arguments.command;
    let name = name_of(folder);
    let (task, items) = (folder.join("task.toml"), folder.join("items.jsonl"));
    if let Some(path) = [&task, &items].into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::input(format!("`{}` exists; nothing was changed", path.display()))
            .hint("choose another folder"));
    }
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    let mut text = TASK.replacen("NAME", &name, 1);
    if *agent {
        text = text.replacen("\nfamily = \"maths\"", "\nfamily = \"custom\"", 1) + AGENT;
    }
    write_new(&task, &text)?;
    write_new(&items, ITEMS)?;
    println!("{}\n{}\n", task.display(), items.display());
    println!("next: {}", run_command(&task, &name));
    Ok(Exit::Complete)
}

/// Returns the command that runs a task file.
fn run_command(task: &Path, name: &str) -> String {
    let task = quoted_path(task);
    format!("lumos run --tasks {task} --model builtin:tiny --name {name}")
}

/// Returns a benchmark's name: the folder's name without characters that names cannot have, or `my-task` if that is not
/// a valid name.
fn name_of(folder: &Path) -> String {
    let given = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let name: String = given.chars().map(plain).collect();
    let name = name.trim_matches('-').chars().take(64).collect::<String>();
    let is_valid = TaskDefinition::new(name.as_str(), TaskFamily::Maths, "items.jsonl").problems().is_empty();
    if is_valid { name } else { "my-task".to_owned() }
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot write to `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_stops_the_command_before_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("items.jsonl"), "mine").unwrap();
        let command = InitCommand::Task { folder: folder.path().to_owned(), agent: false };
        let message = run(&InitArgs { command }).unwrap_err().error.to_string();
        assert!(message.contains("items.jsonl` exists; nothing was changed"), "{message}");
        assert!(!folder.path().join("task.toml").exists());
        assert_eq!(fs::read_to_string(folder.path().join("items.jsonl")).unwrap(), "mine");
    }

    #[test]
    fn the_name_is_valid_and_the_path_is_quoted() {
        let folders = ["tasks/mine", "my tasks", "all", "gsm8k", "--", ".."];
        let names = folders.map(|folder| name_of(Path::new(folder)));
        assert_eq!(names, ["mine", "my-tasks", "my-task", "my-task", "my-task", "my-task"]);
        assert_eq!(
            run_command(Path::new("my tasks/task.toml"), "my-tasks"),
            "lumos run --tasks 'my tasks/task.toml' --model builtin:tiny --name my-tasks"
        );
    }
}
