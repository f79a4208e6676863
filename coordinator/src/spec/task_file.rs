//! Reads task files (TOML).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use lumos_benchmarks::task_file::{TaskDefinition, TaskFile};

use super::file::{SpecError, malformed};

/// Reads and checks a task file.
///
/// # Errors
/// If it cannot be read or is invalid. The error contains the file, and the line and key of every problem.
pub fn read_task_file(path: &Path) -> Result<TaskFile, SpecError> {
    let unreadable = |source| SpecError::Unreadable { what: "task file", file: path.to_owned(), source };
    let text = read_text(path).map_err(unreadable)?;
    let definition = parse(&text, &path.display().to_string())?;
    Ok(TaskFile { path: path.to_owned(), definition })
}

/// Returns where a task file sets a key, for messages about its value: ``task.toml:7: `data.hub` ``. Omits the line if
/// the file cannot be read.
pub fn place_of_key(path: &Path, key: &str) -> String {
    match read_text(path) {
        Ok(text) => format!("{}:{}: `{key}`", path.display(), line_of(&text, key)),
        Err(_) => format!("{}: `{key}`", path.display()),
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TaskFile::MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TaskFile::MOST_BYTES {
        let message = format!("longer than {} bytes", TaskFile::MOST_BYTES);
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Parses and checks the text of a task file. `file` is its name in messages.
fn parse(text: &str, file: &str) -> Result<TaskDefinition, SpecError> {
    let definition: TaskDefinition = toml::from_str(text).map_err(|error| malformed(&error, text, file))?;
    let problems = definition.problems();
    if problems.is_empty() {
        return Ok(definition);
    }
    let line = |(key, message): (Cow<'static, str>, String)| {
        format!("{file}:{}: `{key}`: {message}", line_of(text, &key))
    };
    Err(SpecError::TaskFile { problems: problems.into_iter().map(line).collect() })
}

/// Returns the line, counted from 1, that sets a key such as `answer.pattern` or `agent.actions[1].tool`; otherwise the
/// line of its table.
fn line_of(text: &str, key: &str) -> usize {
    let mut table = String::new();
    let mut of_table = 1;
    // The number of tables of each array so far.
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.starts_with('[') {
            let name = line.split('#').next().unwrap_or_default().trim().trim_matches(['[', ']']).trim();
            table = name.to_owned();
            if line.starts_with("[[") && key.contains('[') {
                let count = counts.entry(name.to_owned()).or_default();
                table = format!("{name}[{count}]");
                *count += 1;
            }
            let is_parent = key.strip_prefix(&table).is_some_and(|rest| rest.starts_with(['.', '[']));
            if is_parent {
                of_table = number;
            }
        } else if let Some((name, _)) = line.split_once('=') {
            let name = name.trim();
            let full = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
            if full == key || key.strip_prefix(&full).is_some_and(|rest| rest.starts_with(['.', '['])) {
                return number;
            }
        }
    }
    of_table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text, "task.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_whole_file_reads() {
        let text = r#"
            name = "shelves"
            title = "Shelves"
            family = "maths"
            formulations = ["iterative", "onetime"]
            max_rounds = 4
            metrics = ["exact_match"]
            [data]
            file = "items.csv"
            items = 200
            [fields]
            question = "problem"
            id = "key"
            [answer]
            kind = "number"
            pattern = '#### (.*)'
            tolerance = 0.01
            [tools]
            maths = "native"
            [[published]]
            formulation = "iterative"
            system = "ours"
            percent = 47.1
        "#;
        let definition = parse(text, "task.toml").unwrap();
        assert_eq!((definition.name.as_str(), definition.fields.answer.as_str()), ("shelves", "answer"));
        assert_eq!(definition.published[0].percent, 47.1);
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let start = "name = \"own\"\nfamily = \"maths\"\n";
        assert_eq!(
            refused(&format!("{start}[data]\nfiel = \"a\"")),
            "task.toml:4:1: `data.fiel`: unknown key `fiel`; did you mean `file`?"
        );
        assert_eq!(
            refused("name = \"own\"\nfamily = \"math\"\n[data]\nfile = \"a.csv\""),
            "task.toml:2:10: `family`: unknown value `math`; did you mean `maths`?"
        );
        assert_eq!(
            refused(&format!("{start}max_rounds = 0\nmetrics = [\"bleu\"]\n[data]\nfile = \"a.csv\"")),
            "task.toml:3: `max_rounds`: expected a number from 1 to 1000\n\
             task.toml:4: `metrics`: unknown metric `bleu` for answers of this kind: expected exact_match, llm_accuracy"
        );
        assert_eq!(
            refused(&format!("{start}[data]\nhub = \"data\"\nfile = \"../a.csv\"")),
            "task.toml:4: `data.hub`: invalid data set `data`: expected owner/name\n\
             task.toml:5: `data.file`: expected the path of a file in the data set"
        );
        assert_eq!(
            refused(&format!("{start}[data]\nrevision = \"v1\"\nfile = \"a.csv\"")),
            "task.toml:4: `data.revision`: only data sets of the hub have revisions: set data.hub"
        );
        let figure = "[[published]]\nformulation = \"iterative\"\nsystem = \"ours\"\npercent = 200";
        assert_eq!(
            refused(&format!("{start}answer = {{ pattern = \"(\" }}\n[data]\nfile = \"a.csv\"\n{figure}")),
            "task.toml:3: `answer.pattern`: error: unclosed group\n\
             task.toml:9: `published.percent`: expected a number from 0 to 100\n\
             task.toml:4: `data.items`: published figures need the number of items on which they were measured"
        );
    }
}
