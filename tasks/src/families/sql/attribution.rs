//! The first statement of an episode that failed and was not corrected.

use std::sync::LazyLock;

use regex::Regex;

use crate::call::{SqlReply, ToolCall, ToolReply};
use crate::families::NamedError;
use crate::outcome::Step;

/// How SQLite and MySQL name what does not exist, and SQLite a text without its closing quotation mark.
static MISSING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"no such (?:column|table|function): (?:\w+\.)*(\w+)|Unknown (?:column|table) '(?:[^'.]*\.)*([^'.]+)'|Table '(?:[^'.]*\.)*([^'.]+)' doesn't exist|unrecognized token: "'(.+)"$"#,
    )
    .expect("a valid pattern")
});

/// Returns the first statement that failed after the last query with a result, with the name that the error is
/// about. A column of a described table has no name here: it exists, and the statement uses it in the wrong place.
pub(crate) fn first_error(steps: &[Step]) -> Option<NamedError> {
    let mut first = None;
    let mut columns: Vec<String> = Vec::new();
    for step in steps {
        let Step::Call { turn, call: ToolCall::Sql { statement }, reply: ToolReply::Sql(reply) } = step
        else {
            continue;
        };
        match reply {
            SqlReply::Error(message) => {
                let is_described = |name: &String| {
                    let start = format!("('{}',", name.to_lowercase());
                    columns.iter().any(|row| row.starts_with(&start))
                };
                first.get_or_insert_with(|| NamedError {
                    turn: *turn,
                    name: missing(message).filter(|name| !is_described(name)),
                    detail: format!("a statement failed: {message}"),
                });
            }
            SqlReply::Rows { rows, .. } if describes(statement) => {
                columns.extend(rows.iter().map(|row| row.to_lowercase()));
            }
            SqlReply::Rows { .. } => first = None,
            SqlReply::Nothing => {}
        }
    }
    first
}

/// What an error says does not exist.
fn missing(message: &str) -> Option<String> {
    let found = MISSING.captures(message)?;
    found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
}

/// Whether a statement only reads the schema.
fn describes(statement: &str) -> bool {
    let word = statement.split_whitespace().next().unwrap_or_default();
    ["SHOW", "DESCRIBE", "DESC"].iter().any(|verb| word.eq_ignore_ascii_case(verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(turn: u32, statement: &str, reply: SqlReply) -> Step {
        Step::Call {
            turn,
            call: ToolCall::Sql { statement: statement.to_owned() },
            reply: ToolReply::Sql(reply),
        }
    }

    fn failed(turn: u32, statement: &str, message: &str) -> Step {
        executed(turn, statement, SqlReply::Error(message.to_owned()))
    }

    #[test]
    fn names_are_read_from_errors() {
        for (message, name) in [
            ("Error executing query: no such column: T1.company", Some("company")),
            ("Error executing query: no such table: dogs", Some("dogs")),
            ("Error executing query: Table 'pets_1.school' doesn't exist", Some("school")),
            (
                "Error executing query: 1054 (42S22): Unknown column 'd.company' in 'field list'",
                Some("company"),
            ),
            ("Error executing query: unrecognized token: \"'blue and age > 2\"", Some("blue and age > 2")),
            ("Error executing query: near \"of\": syntax error", None),
        ] {
            assert_eq!(missing(message).as_deref(), name, "{message}");
        }
    }

    #[test]
    fn the_first_error_that_was_not_corrected_is_found() {
        let rows = || SqlReply::Rows { rows: vec!["('a',)".to_owned()], count: 1 };
        let mut steps = vec![
            failed(3, "SELECT a FROM t", "no such column: a"),
            executed(4, "SELECT b FROM t", rows()),
            failed(5, "SELECT c FROM t", "no such column: c"),
            executed(6, "describe `t`", rows()),
            failed(7, "SELECT d FROM t", "no such column: d"),
        ];
        let error = first_error(&steps).unwrap();
        assert_eq!((error.turn, error.name.as_deref()), (5, Some("c")));
        steps.push(executed(8, "SELECT b FROM t", rows()));
        assert_eq!(first_error(&steps), None);
        let columns = vec!["('Age', 'int', 'YES', '', None, '')".to_owned()];
        steps.push(executed(9, "DESCRIBE `t`", SqlReply::Rows { rows: columns, count: 1 }));
        steps.push(failed(10, "SELECT age", "no such column: age"));
        assert_eq!(first_error(&steps).unwrap().name, None);
    }
}
