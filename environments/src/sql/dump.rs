//! Reads a dump of MySQL databases and converts it to SQLite's dialect.
//!
//! Only statements that build databases are used: `CREATE DATABASE`, `USE`, `CREATE TABLE`, `INSERT`. The
//! official dump also creates an account with all privileges; this and everything else is skipped.

use super::lexer::{Token, located, tokens};

/// A statement that builds a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Build<'a> {
    /// Selects the database of the following tables.
    Database(String),
    /// A table.
    Table(Table<'a>),
    /// Rows as written in the dump: `INSERT INTO … VALUES …`.
    Rows(&'a str),
}

/// A table's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<'a> {
    /// Its name.
    pub name: String,
    /// The whole statement, in MySQL's dialect.
    pub statement: &'a str,
    /// Columns, keys and references, one entry each.
    parts: Vec<&'a str>,
}

/// The statements that build databases, in order.
pub fn read(dump: &str) -> impl Iterator<Item = Build<'_>> {
    statements(dump).filter_map(|statement| {
        let mut pieces = tokens(statement);
        let mut next = || match pieces.next() {
            Some(Token::Word(word)) => word.to_ascii_uppercase(),
            Some(Token::Name(name)) => name.trim_matches('`').to_owned(),
            _ => String::new(),
        };
        match (next().as_str(), next()) {
            ("USE", name) => Some(Build::Database(name)),
            ("CREATE", kind) if kind == "TABLE" => {
                let name = next();
                Some(Build::Table(Table { name, statement, parts: parts(statement) }))
            }
            ("INSERT", _) => Some(Build::Rows(statement)),
            _ => None,
        }
    })
}

/// Splits a text at semicolons outside of quotes and comments; each piece starts at its first word.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let mut pieces = located(text);
    std::iter::from_fn(move || {
        let mut start = None;
        for (at, piece) in pieces.by_ref() {
            match piece {
                Token::Symbol(';') if start.is_none() => {}
                Token::Symbol(';') => return text.get(start?..at),
                Token::Executable => {}
                _ => {
                    start.get_or_insert(at);
                }
            }
        }
        text.get(start?..).map(str::trim_end)
    })
}

/// The contents of the parentheses of `CREATE TABLE`, split at commas of the outermost level.
fn parts(statement: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, piece) in located(statement) {
        match piece {
            Token::Symbol('(') => {
                depth += 1;
                if depth == 1 {
                    start = at + 1;
                }
            }
            Token::Symbol(')') if depth == 1 => {
                parts.extend(statement.get(start..at).map(str::trim));
                return parts;
            }
            Token::Symbol(')') => depth -= 1,
            Token::Symbol(',') if depth == 1 => {
                parts.extend(statement.get(start..at).map(str::trim));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

impl Table<'_> {
    /// The definition in SQLite's dialect: columns with their types, case-insensitive texts, primary keys,
    /// unique constraints and references. Other keys, engines and counters are omitted.
    pub fn to_sqlite(&self) -> String {
        let lines: Vec<String> = self.parts.iter().filter_map(|part| sqlite_part(part)).collect();
        format!("CREATE TABLE {} (\n  {}\n)", quoted(&self.name), lines.join(",\n  "))
    }
}

/// A name in backquotes, which both dialects accept.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Types whose values are compared as texts.
const TEXTS: [&str; 8] = ["char", "varchar", "text", "tinytext", "mediumtext", "longtext", "enum", "set"];

fn sqlite_part(part: &str) -> Option<String> {
    let pieces: Vec<(usize, Token<'_>)> = located(part).collect();
    let word = |index: usize| match pieces.get(index) {
        Some((_, Token::Word(word))) => word.to_ascii_uppercase(),
        _ => String::new(),
    };
    match pieces.first()?.1 {
        Token::Name(name) => Some(sqlite_column(part, name, pieces.get(1..)?)),
        Token::Word(_) => match word(0).as_str() {
            "PRIMARY" => Some(format!("PRIMARY KEY ({})", key_columns(&pieces))),
            "UNIQUE" => Some(format!("UNIQUE ({})", key_columns(&pieces))),
            "CONSTRAINT" if word(2) == "FOREIGN" => part.get(pieces.get(2)?.0..).map(str::to_owned),
            _ => None,
        },
        _ => None,
    }
}

/// The columns of a key, without the prefix lengths of MySQL indexes.
fn key_columns(pieces: &[(usize, Token<'_>)]) -> String {
    let listed = pieces.iter().skip_while(|(_, piece)| !matches!(piece, Token::Symbol('(')));
    let names = listed.filter_map(|(_, piece)| match piece {
        Token::Name(name) => Some(*name),
        _ => None,
    });
    names.collect::<Vec<_>>().join(",")
}

/// A column: its type, `COLLATE NOCASE` for texts, then its nullability and default.
fn sqlite_column(part: &str, name: &str, pieces: &[(usize, Token<'_>)]) -> String {
    let mut depth = 0;
    // The type ends before the first word after it.
    let end = pieces.iter().skip(1).find(|(_, piece)| {
        match piece {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth -= 1,
            Token::Word(_) if depth == 0 => return true,
            _ => {}
        }
        false
    });
    let start = pieces.first().map_or(0, |(at, _)| *at);
    let kind = part.get(start..end.map_or(part.len(), |(at, _)| *at)).unwrap_or_default().trim();
    let mut column = format!("{name} {kind}");
    let base = kind.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
    if TEXTS.contains(&base.as_str()) {
        column.push_str(" COLLATE NOCASE");
    }
    let is = |index: usize, text: &str| matches!(pieces.get(index), Some((_, Token::Word(word))) if word.eq_ignore_ascii_case(text));
    for index in 0..pieces.len() {
        if is(index, "NOT") && is(index + 1, "NULL") {
            column.push_str(" NOT NULL");
        }
        if is(index, "DEFAULT")
            && let Some((at, value @ (Token::Word(_) | Token::Quoted(_) | Token::Symbol(_)))) =
                pieces.get(index + 1)
        {
            let value = match value {
                Token::Word(text) | Token::Quoted(text) => *text,
                _ => part.get(*at..).and_then(|rest| rest.split_whitespace().next()).unwrap_or("NULL"),
            };
            column.push_str(&format!(" DEFAULT {value}"));
        }
    }
    column
}

/// Rows in SQLite's dialect: quotes within texts are doubled instead of escaped.
pub fn rows_to_sqlite(statement: &str) -> String {
    let mut written = String::with_capacity(statement.len());
    let mut copied = 0;
    for (at, piece) in located(statement) {
        if let Token::Quoted(text) = piece {
            written.push_str(statement.get(copied..at).unwrap_or_default());
            written.push_str(&sqlite_text(text));
            copied = at + text.len();
        }
    }
    written.push_str(statement.get(copied..).unwrap_or_default());
    written
}

/// Converts a quoted text from MySQL to SQLite.
fn sqlite_text(text: &str) -> String {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let quote = text.chars().next().unwrap_or('\'');
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        if character == quote && characters.peek() == Some(&quote) {
            characters.next();
            plain.push(quote);
        } else if character == '\\' {
            plain.push(match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('0') => '\0',
                Some('Z') => '\u{1a}',
                Some('b') => '\u{8}',
                Some(other) => other,
                None => '\\',
            });
        } else {
            plain.push(character);
        }
    }
    format!("'{}'", plain.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "CREATE USER 'admin'@'%' IDENTIFIED BY 'admin'; GRANT ALL ON *.* TO 'admin'@'%';\n\
        CREATE DATABASE IF NOT EXISTS `zoo` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\nUSE `zoo`;\n\
        /*!40101 SET NAMES utf8 */;\nDROP TABLE IF EXISTS `pen`;\n\
        CREATE TABLE `pen` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `name` varchar(20) COLLATE utf8mb4_general_ci DEFAULT NULL,\n  \
        `size` decimal(19,4) NOT NULL DEFAULT '0.5',\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `n` (`name`(20)),\n  KEY `k` (`size`),\n  \
        CONSTRAINT `c` FOREIGN KEY (`id`) REFERENCES `beast` (`id`)\n) ENGINE=InnoDB;\n\
        LOCK TABLES `pen` WRITE;\nINSERT INTO `pen` VALUES (1,'it\\'s; a \\\"pen\\\"',2.5),(2,NULL,-1);\nUNLOCK TABLES;\n";

    #[test]
    fn a_dump_becomes_sqlite() {
        let builds: Vec<_> = read(DUMP).collect();
        let [Build::Database(name), Build::Table(table), Build::Rows(rows)] = builds.as_slice() else {
            panic!("{builds:?}");
        };
        assert_eq!((name.as_str(), table.name.as_str()), ("zoo", "pen"));
        assert_eq!(
            table.to_sqlite(),
            "CREATE TABLE `pen` (\n  `id` int NOT NULL,\n  `name` varchar(20) COLLATE NOCASE DEFAULT NULL,\n  \
             `size` decimal(19,4) NOT NULL DEFAULT '0.5',\n  PRIMARY KEY (`id`),\n  UNIQUE (`name`),\n  \
             FOREIGN KEY (`id`) REFERENCES `beast` (`id`)\n)"
        );
        assert_eq!(rows_to_sqlite(rows), "INSERT INTO `pen` VALUES (1,'it''s; a \"pen\"',2.5),(2,NULL,-1)");
    }
}
