//! Emulates MySQL statements that SQLite does not support as queries of the schema: `SHOW TABLES`,
//! `DESCRIBE t` and similar ones.

use lumos_environments::sql::lexer::{Token, tokens};

/// A query of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// Names of the tables.
    Tables,
    /// Names of the databases.
    Databases,
    /// Columns of a table.
    Columns(String),
    /// Definition of a table.
    Definition(String),
}

/// Parses a statement that queries the schema. Returns `None` for any other statement.
pub(super) fn asked(statement: &str) -> Option<Asked> {
    let pieces: Vec<Token<'_>> = tokens(statement).filter(|piece| *piece != Token::Symbol(';')).collect();
    let word = |index: usize| match pieces.get(index) {
        Some(Token::Word(word)) => word.to_ascii_uppercase(),
        _ => String::new(),
    };
    // The name of a table may be qualified with that of its database.
    let name = |from: usize| match pieces.get(from..)? {
        [piece] | [_, Token::Symbol('.'), piece] => match piece {
            Token::Word(word) => Some((*word).to_owned()),
            Token::Name(name) => Some(name.trim_matches('`').to_owned()),
            _ => None,
        },
        _ => None,
    };
    match (word(0).as_str(), word(1).as_str()) {
        ("SHOW", "TABLES") if pieces.len() == 2 => Some(Asked::Tables),
        ("SHOW", "DATABASES" | "SCHEMAS") if pieces.len() == 2 => Some(Asked::Databases),
        ("SHOW", "COLUMNS" | "FIELDS") if matches!(word(2).as_str(), "FROM" | "IN") => {
            name(3).map(Asked::Columns)
        }
        ("SHOW", "CREATE") if word(2) == "TABLE" => name(3).map(Asked::Definition),
        ("DESCRIBE" | "DESC" | "EXPLAIN", _) => name(1).map(Asked::Columns),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_a_schema() {
        let columns = |name: &str| Some(Asked::Columns(name.to_owned()));
        assert_eq!(asked("show tables;"), Some(Asked::Tables));
        assert_eq!(asked("DESC `a b`"), columns("a b"));
        assert_eq!(asked("describe zoo.pen"), columns("pen"));
        assert_eq!(asked("SHOW COLUMNS FROM pen"), columns("pen"));
        assert_eq!(asked("SHOW CREATE TABLE pen"), Some(Asked::Definition("pen".to_owned())));
        assert_eq!(asked("EXPLAIN SELECT 1"), None);
        assert_eq!(asked("SELECT 1"), None);
    }
}
