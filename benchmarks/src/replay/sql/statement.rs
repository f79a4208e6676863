//! Checks whether MySQL can return a result or an error for a statement, as far as the statement alone
//! determines it.

use lumos_environments::sql::lexer::{Token, tokens};

/// First words of statements that return rows.
const FIRST: [&str; 12] = [
    "SHOW", "SELECT", "DESCRIBE", "DESC", "EXPLAIN", "WITH", "TABLE", "VALUES", "CALL", "CHECK", "ANALYZE",
    "HELP",
];
/// Words that can follow the selected columns.
const BEHIND_COLUMNS: [&str; 10] =
    ["FROM", "UNION", "EXCEPT", "INTERSECT", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "FOR"];
/// Maximum number of bytes of a statement quoted in a syntax error.
const QUOTED: usize = 80;

/// Whether a statement starts like one that returns rows.
fn gives_rows(statement: &str) -> bool {
    let first = tokens(statement).find(|token| *token != Token::Symbol('('));
    matches!(first, Some(Token::Word(word)) if FIRST.iter().any(|first| word.eq_ignore_ascii_case(first)))
}

/// Whether a statement returns the same rows each time.
pub(super) fn is_repeatable(statement: &str) -> bool {
    let upper = statement.to_uppercase();
    !["RAND", "NOW", "CURRENT_", "UUID", "CURTIME", "SYSDATE"].iter().any(|word| upper.contains(word))
}

/// Checks that a statement can return these rows: they have as many cells as the statement selects, if it
/// lists columns.
pub(super) fn could_show(statement: &str, rows: &[String]) -> Result<(), String> {
    if !gives_rows(statement) || !is_whole(statement) {
        return Err(format!("{statement:?} cannot have given rows"));
    }
    let Some(selected) = width(statement) else { return Ok(()) };
    match rows.iter().map(|row| cells(row)).find(|cells| *cells != selected) {
        Some(cells) => Err(format!("{statement:?} selects {selected} columns, shown are {cells}")),
        None => Ok(()),
    }
}

/// Returns the number of columns that a statement lists; `None` if it is unknown.
fn width(statement: &str) -> Option<usize> {
    let mut tokens = tokens(statement).peekable();
    let mut word = |expected: &str| {
        tokens
            .next_if(|token| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(expected)))
            .is_some()
    };
    if !word("SELECT") {
        return None;
    }
    let is_end = |word: &str| BEHIND_COLUMNS.iter().any(|end| word.eq_ignore_ascii_case(end));
    let (mut depth, mut columns) = (0usize, 1);
    while let Some(token) = tokens.next() {
        match token {
            Token::Executable => return None,
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth = depth.checked_sub(1)?,
            Token::Symbol(',') if depth == 0 => columns += 1,
            // A `*` that selects all columns, not a multiplication.
            Token::Symbol('*') if depth == 0 => match tokens.peek() {
                None | Some(Token::Symbol(',' | ';')) => return None,
                Some(Token::Word(word)) if is_end(word) => return None,
                Some(_) => {}
            },
            Token::Word(word) if depth == 0 && is_end(word) => return Some(columns),
            _ => {}
        }
    }
    Some(columns)
}

/// Returns the number of cells in a printed row.
fn cells(row: &str) -> usize {
    let inner = row.trim_start_matches('(').trim_end_matches(')').trim_end_matches(',');
    let (mut depth, mut cells, mut quote, mut escaped) = (0usize, 1, None, false);
    for character in inner.chars() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => cells += 1,
            (None, _) => {}
        }
    }
    cells
}

/// Checks that MySQL can return this error for a statement: the names in the error must occur in the
/// statement.
pub(super) fn could_fail_with(statement: &str, database: &str, message: &str) -> Result<(), String> {
    let named = |name: &str| contains(statement, name);
    let named_in = |rest: &str, between: &str| {
        rest.split_once(between).is_some_and(|(name, clause)| named(name) && CLAUSES.contains(&clause))
    };
    let fits = if let Some((_, rest)) = message.split_once("for the right syntax to use near '") {
        rest.rsplit_once("' at line ").is_some_and(|(near, line)| stands_at(statement, near, line))
    } else if let Some(table) = between(message, "Table '", "' doesn't exist") {
        // MySQL compares names of databases and tables without case.
        table.is_some_and(|table| {
            let (own, table) = table.split_once('.').unwrap_or(("", table));
            (own.eq_ignore_ascii_case(database) || named(own)) && named(table)
        }) && is_whole(statement)
    } else if let Some(column) = between(message, "Unknown column '", "'") {
        column.is_some_and(|column| named_in(column, "' in '")) && is_whole(statement)
    } else if let Some(column) = between(message, "Column '", " is ambiguous") {
        column.is_some_and(|column| named_in(column, "' in ")) && is_whole(statement)
    } else if let Some(name) = between(message, "Unknown database '", "'")
        .or_else(|| between(message, "Not unique table/alias: '", "'"))
    {
        name.is_some_and(named) && is_whole(statement)
    } else {
        // Other errors do not contain names.
        !message.trim().is_empty()
    };
    if fits { Ok(()) } else { Err(format!("{statement:?} cannot fail with {message:?}")) }
}

/// Whether a statement's parentheses and quotes are closed and it does not end too early, as in every
/// statement that the server could parse.
fn is_whole(statement: &str) -> bool {
    let (mut depth, mut last) = (0usize, None);
    for token in tokens(statement) {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') if depth == 0 => return false,
            Token::Symbol(')') => depth -= 1,
            Token::Quoted(text) | Token::Name(text) if text.len() < 2 || !text.ends_with(&text[..1]) => {
                return false;
            }
            _ => {}
        }
        last = Some(token);
    }
    depth == 0 && last.is_none_or(|last| !matches!(last, Token::Symbol(symbol) if !")*;".contains(symbol)))
}

/// MySQL's names for the parts of a statement.
const CLAUSES: [&str; 13] = [
    "field list",
    "where clause",
    "on clause",
    "order clause",
    "group statement",
    "having clause",
    "from clause",
    "IN/ALL/ANY subquery",
    "global ORDER clause",
    "window order by",
    "window partition by",
    "JOIN",
    "VALUES",
];

/// Returns the text between a start and an end if the text contains both; the inner value is `None` if it
/// continues after the end.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<Option<&'a str>> {
    let rest = text.strip_prefix(start).filter(|rest| rest.contains(end))?;
    Some(rest.strip_suffix(end))
}

fn contains(statement: &str, name: &str) -> bool {
    // A name may consist of parts, each in backquotes, separated by blanks.
    let bare = |text: &str| {
        let kept = text.chars().filter(|character| *character != '`' && !character.is_whitespace());
        kept.collect::<String>().to_lowercase()
    };
    bare(statement).contains(&bare(name))
}

/// Whether a statement contains the text quoted by a syntax error in the stated line. MySQL quotes the whole
/// rest, up to a limit.
fn stands_at(statement: &str, near: &str, line: &str) -> bool {
    let Ok(line) = line.parse::<usize>() else { return false };
    if !near.is_ascii() {
        // The quotation is truncated in bytes, possibly within a character.
        return true;
    }
    let places = statement.char_indices().map(|(at, _)| at).chain([statement.len()]);
    places.into_iter().any(|at| {
        let (before, rest) = statement.split_at_checked(at).unwrap_or_default();
        rest.starts_with(near)
            && before.matches('\n').count() + 1 == line
            && (rest.len() == near.len() || near.len() >= QUOTED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_where_a_statement_lists_them() {
        for (statement, columns) in [
            ("SELECT a, count(*), f(b, c) FROM t", Some(3)),
            ("SELECT 1, 2 UNION SELECT 3, 4", Some(2)),
            ("SELECT a * 2, EXTRACT(YEAR FROM d) FROM t LIMIT 1, 2", Some(2)),
            ("SELECT ALL * FROM t", None),
            ("SELECT t.*, a FROM t", None),
            ("SHOW TABLES", None),
        ] {
            assert_eq!(width(statement), columns, "{statement}");
        }
        for (row, count) in [
            ("('a, b', 1)", 2),
            ("(None,)", 1),
            ("(datetime.date(1990, 1, 2), Decimal('1'))", 2),
            ("(\"it's (\", 'x\\', y')", 2),
        ] {
            assert_eq!(cells(row), count, "{row}");
        }
    }

    #[test]
    fn rows_come_of_statements_that_can_give_them() {
        let rows = ["(1,)".to_owned()];
        assert!(could_show("(SELECT a FROM t)", &rows).is_ok());
        for statement in
            ["SELECT a, b FROM t", "SELECT a FROM t WHERE (b", "SELECT a FROM t~", "changed", "S"]
        {
            assert!(could_show(statement, &rows).is_err(), "{statement}");
        }
    }

    #[test]
    fn an_error_names_what_the_statement_holds() {
        let statement = "SELECT T1.a FROM car AS T1\nWHERE b = 'x' ORDR BY c";
        let fails = |message: &str| could_fail_with(statement, "car_1", message).is_ok();
        let syntax = "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version \
                      for the right syntax to use near ";
        assert!(fails("Table 'car_1.car' doesn't exist"));
        assert!(!fails("Table 'car_1.cars' doesn't exist"));
        assert!(!fails("Table 'car_2.car' doesn't exist"));
        assert!(!fails("Table 'car_1.car' doesn't exist~"));
        assert!(fails("Unknown column 'T1.a' in 'field list'"));
        assert!(!fails("Unknown column 'T1.d' in 'field list'"));
        assert!(!fails("Unknown column 'T1.a' in 'fields'"));
        assert!(fails("Column 'a' in field list is ambiguous"));
        assert!(fails(&format!("{syntax}'ORDR BY c' at line 2")));
        assert!(fails(&format!("{syntax}'' at line 2")));
        assert!(!fails(&format!("{syntax}'ORDR BY c' at line 1")));
        assert!(!fails(&format!("{syntax}'ORDR BY' at line 2")));
        assert!(fails("Invalid use of group function"));
    }
}
