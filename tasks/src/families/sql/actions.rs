//! Parses the grounder's actions, such as `R2 = ExecuteSQL(SELECT name FROM author)`. The format is specific
//! to lumos, so no quirks of an original are reproduced.

use std::sync::LazyLock;

use regex::Regex;

use crate::families::Failure;
use crate::outcome::Stage;

/// Where an action starts: at the beginning of the text, or after a `;`.
static START: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|;)\s*(R\d{1,3}\s*=\s*[A-Za-z]+\()").expect("a valid pattern"));
static ACTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)^\s*(R\d{1,3})\s*=\s*([A-Za-z]+)\((.*)\)\s*;?\s*$").expect("a valid pattern")
});
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^R\d{1,3}$").expect("a valid pattern"));

/// An action of the grounder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SqlAction {
    /// `ListTables()`: the database's tables.
    ListTables,
    /// `DescribeTable(table)`: a table's columns.
    DescribeTable(String),
    /// `ExecuteSQL(statement)`.
    ExecuteSql(String),
    /// `Submit(Rk)`: submits the result of an earlier statement as the answer.
    Submit(String),
}

impl SqlAction {
    /// The statement that the action sends to the database.
    pub(super) fn statement(&self) -> Option<String> {
        match self {
            Self::ListTables => Some("SHOW TABLES".to_owned()),
            Self::DescribeTable(table) => Some(format!("DESCRIBE `{}`", table.replace('`', "``"))),
            Self::ExecuteSql(statement) => Some(statement.clone()),
            Self::Submit(_) => None,
        }
    }
}

/// Splits a reply into actions, in order. Text that is not an action belongs to the preceding action, or is
/// the only entry.
pub(super) fn split_actions(reply: &str) -> Vec<&str> {
    let mut starts: Vec<usize> =
        START.captures_iter(reply).filter_map(|found| found.get(1)).map(|found| found.start()).collect();
    match starts.first_mut() {
        None => return vec![reply.trim()],
        Some(first) => *first = 0,
    }
    let ends = starts.iter().skip(1).copied().chain([reply.len()]);
    let pieces = starts.iter().zip(ends).filter_map(|(start, end)| reply.get(*start..end));
    pieces.map(|piece| piece.trim().trim_end_matches(';').trim_end()).collect()
}

/// Parses one action: its variable and the action itself.
///
/// # Errors
/// Fails if the name is unknown or the argument is invalid.
pub(super) fn parse_action(text: &str) -> Result<(String, SqlAction), Failure> {
    let unparsable =
        || Failure::new(Stage::GrounderUnparsable, "the reply is not an action like `R1 = ListTables()`");
    let found = ACTION.captures(text).ok_or_else(unparsable)?;
    let part = |index| found.get(index).map_or("", |part| part.as_str());
    let argument = unquoted(part(3));
    let action = match part(2) {
        "ListTables" => SqlAction::ListTables,
        "DescribeTable" if argument.is_empty() => {
            return Err(Failure::argument("DescribeTable names no table"));
        }
        "DescribeTable" => SqlAction::DescribeTable(argument.to_owned()),
        "ExecuteSQL" if argument.is_empty() => {
            return Err(Failure::argument("ExecuteSQL holds no statement"));
        }
        "ExecuteSQL" => SqlAction::ExecuteSql(argument.trim_end_matches([';', ' ']).to_owned()),
        "Submit" if VARIABLE.is_match(argument) => SqlAction::Submit(argument.to_owned()),
        "Submit" => return Err(Failure::argument(format!("Submit takes a variable, not `{argument}`"))),
        name => {
            return Err(Failure::new(Stage::GrounderUnknownAction, format!("there is no action `{name}`")));
        }
    };
    Ok((part(1).to_owned(), action))
}

/// An argument without the quotes that enclose it.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\'', '`'] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return inner.trim();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn actions_are_read() {
        let reply = "R1 = ListTables(); R2 = ExecuteSQL(SELECT a FROM t WHERE b IN ('x; y', 'R9 = z')); R3 = Submit(R2)";
        let read: Vec<_> = split_actions(reply).into_iter().map(|text| parse_action(text).unwrap()).collect();
        assert_eq!(
            read,
            [
                ("R1".to_owned(), SqlAction::ListTables),
                (
                    "R2".to_owned(),
                    SqlAction::ExecuteSql("SELECT a FROM t WHERE b IN ('x; y', 'R9 = z')".to_owned())
                ),
                ("R3".to_owned(), SqlAction::Submit("R2".to_owned())),
            ]
        );
        let described = parse_action("R2 = DescribeTable('author`s')").unwrap().1;
        assert_eq!(described.statement().unwrap(), "DESCRIBE `author``s`");
        assert_eq!(parse_action("R1 = Drop(x)").unwrap_err().stage, Stage::GrounderUnknownAction);
        assert_eq!(parse_action("R1 = Submit(x)").unwrap_err().stage, Stage::GrounderBadArgument);
        assert_eq!(parse_action("drop it").unwrap_err().stage, Stage::GrounderUnparsable);
    }

    proptest! {
        #[test]
        fn any_reply_is_read(reply in "(R1 = |R2 = |ExecuteSQL\\(|\\)|; |é|'|`|a){0,12}") {
            for action in split_actions(&reply) {
                let _ = parse_action(action);
            }
        }
    }
}
