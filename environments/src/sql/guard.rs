//! Checks whether a model's statement is allowed. This is only a first line of defence: accounts, limits and
//! the database's own permissions apply as well.
//!
//! A single statement of the usual kinds passes. Statements that reach beyond the episode's database are
//! rejected: files, other servers, the server itself, waiting, locks, stored code. The model gets a rejection
//! in the same form as an error of the server.

use super::lexer::{Token, tokens};

/// Maximum length of a statement in bytes.
const MOST_BYTES: usize = 100_000;

/// The effect of a statement on the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// It only reads.
    Read,
    /// It may change the database.
    Write,
    /// It starts like no known statement. A database may parse it, for its error message, but must not
    /// execute it.
    Unknown,
    /// It selects this database.
    Use(String),
    /// It is only a comment, and has no result.
    Comment,
    /// It is empty; the original does not send it.
    Nothing,
    /// It is only white space.
    Blank,
}

/// Statements that read.
const READS: [&str; 9] =
    ["SELECT", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "WITH", "VALUES", "TABLE", "BEGIN"];
/// Statements that change the database, or the transaction on it.
const WRITES: [&str; 13] = [
    "INSERT",
    "UPDATE",
    "DELETE",
    "REPLACE",
    "CREATE",
    "DROP",
    "ALTER",
    "TRUNCATE",
    "START",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
];
/// Objects that may be created, dropped and altered.
const OBJECTS: [&str; 4] = ["TABLE", "INDEX", "UNIQUE", "TEMPORARY"];

/// Functions that wait, consume CPU time, lock, read files or reveal information about the server.
const FUNCTIONS: [&str; 24] = [
    "SLEEP",
    "BENCHMARK",
    "LOAD_FILE",
    "GET_LOCK",
    "RELEASE_LOCK",
    "RELEASE_ALL_LOCKS",
    "IS_FREE_LOCK",
    "IS_USED_LOCK",
    "MASTER_POS_WAIT",
    "MASTER_GTID_WAIT",
    "SOURCE_POS_WAIT",
    "WAIT_FOR_EXECUTED_GTID_SET",
    "SYS_EXEC",
    "SYS_EVAL",
    "LOAD_EXTENSION",
    "READFILE",
    "WRITEFILE",
    "EDIT",
    "FTS3_TOKENIZER",
    "ZEROBLOB",
    "RANDOMBLOB",
    "CURRENT_ROLE",
    "XMLTYPE",
    "UUID_SHORT",
];

/// Words that are not needed in statements on the episode's own tables.
const WORDS: [&str; 12] = [
    "OUTFILE",
    "DUMPFILE",
    "INFILE",
    "PROCEDURE",
    "TRIGGER",
    "EVENT",
    "TABLESPACE",
    "PLUGIN",
    "DIRECTORY",
    "LOCK",
    "CONNECTION",
    "VIRTUAL",
];

/// Databases of the server itself.
const SYSTEM: [&str; 5] = ["INFORMATION_SCHEMA", "MYSQL", "NDBINFO", "PERFORMANCE_SCHEMA", "SYS"];

/// Tables of `information_schema` that describe tables. The others describe the server: its variables, processes,
/// accounts and files.
const DESCRIPTIONS: [&str; 12] = [
    "CHARACTER_SETS",
    "CHECK_CONSTRAINTS",
    "COLLATIONS",
    "COLUMNS",
    "KEY_COLUMN_USAGE",
    "PARTITIONS",
    "REFERENTIAL_CONSTRAINTS",
    "SCHEMATA",
    "STATISTICS",
    "TABLES",
    "TABLE_CONSTRAINTS",
    "VIEWS",
];

/// Objects that `SHOW` may describe, after `FULL` and `EXTENDED`. Others describe the server: `VARIABLES`,
/// `STATUS`, `PROCESSLIST`, `GRANTS`, `ENGINE` and similar.
const SHOWN: [&str; 16] = [
    "TABLES",
    "TABLE",
    "COLUMNS",
    "FIELDS",
    "INDEX",
    "INDEXES",
    "KEYS",
    "CREATE",
    "DATABASES",
    "SCHEMAS",
    "WARNINGS",
    "ERRORS",
    "COUNT",
    "CHARACTER",
    "COLLATION",
    "TRIGGERS",
];

/// Whether a name is that of a database of the server itself, ignoring case.
pub fn is_system(name: &str) -> bool {
    SYSTEM.iter().any(|system| name.eq_ignore_ascii_case(system))
}

/// Checks a statement.
///
/// # Errors
/// The reason for the rejection, as a message for the model.
pub fn check(statement: &str) -> Result<Kind, String> {
    if statement.len() > MOST_BYTES {
        return Err(format!("Statements longer than {MOST_BYTES} bytes are refused"));
    }
    if statement.contains('\0') {
        return Err("Statements with a NUL character are refused".to_owned());
    }
    let mut pieces: Vec<Token<'_>> = tokens(statement).collect();
    if pieces.contains(&Token::Executable) {
        return Err("Comments that are carried out are refused".to_owned());
    }
    if pieces.contains(&Token::IncompleteNumber) {
        return Err("Numbers with an empty exponent are refused".to_owned());
    }
    let behind = pieces.iter().rposition(|piece| *piece != Token::Symbol(';')).map_or(0, |at| at + 1);
    pieces.truncate(behind);
    if pieces.contains(&Token::Symbol(';')) {
        return Err("Only one statement at a time is carried out".to_owned());
    }
    let start = pieces.iter().position(|piece| *piece != Token::Symbol('(')).unwrap_or(pieces.len());
    let first = match pieces.get(start) {
        None if statement.is_empty() => return Ok(Kind::Nothing),
        None if statement.trim().is_empty() => return Ok(Kind::Blank),
        None if pieces.is_empty() => return Ok(Kind::Comment),
        Some(Token::Word(word)) => word.to_ascii_uppercase(),
        _ => return Ok(Kind::Unknown),
    };
    inner(&pieces)?;
    let word = |index: usize| match pieces.get(start + index) {
        Some(Token::Word(word)) => word.to_ascii_uppercase(),
        _ => String::new(),
    };
    match first.as_str() {
        "USE" => {
            let name = named(pieces.get(start + 1).copied());
            if is_system(&name) { Err(refused_database(&name)) } else { Ok(Kind::Use(name)) }
        }
        "SHOW" => {
            let object = (1..3).find(|at| !matches!(word(*at).as_str(), "FULL" | "EXTENDED")).unwrap_or(3);
            let is_shown = SHOWN.contains(&word(object).as_str());
            let is_table = matches!(word(object + 1).as_str(), "TABLE" | "VIEW" | "DATABASE" | "SCHEMA");
            if is_shown && (word(object) != "CREATE" || is_table) {
                Ok(Kind::Read)
            } else {
                Err("SHOW describes databases, tables, columns and indexes only".to_owned())
            }
        }
        "SET" if sets_one_variable(pieces.get(start + 1..).unwrap_or_default()) => Ok(Kind::Read),
        "SET" => Err("SET changes one variable of your own, like @x = 1".to_owned()),
        "CREATE" | "DROP" | "ALTER" if !OBJECTS.contains(&word(1).as_str()) => {
            Err(format!("{first} is carried out on tables and indexes only"))
        }
        "CREATE" | "ALTER" if pieces.iter().any(|piece| is_word(piece, "ENGINE")) => {
            Err("Tables have the usual engine only".to_owned())
        }
        "CREATE" | "ALTER" if has_partitions(&pieces) => Err("Tables with partitions are refused".to_owned()),
        "BEGIN" if pieces.len() > start + 1 && word(1) != "WORK" => {
            Err("BEGIN starts a transaction only".to_owned())
        }
        "START" if word(1) != "TRANSACTION" => Err("START starts a transaction only".to_owned()),
        name if READS.contains(&name) => Ok(Kind::Read),
        name if WRITES.contains(&name) => Ok(Kind::Write),
        name if ADMINISTRATION.contains(&name) => Err(format!("{name} is not carried out here")),
        _ => Ok(Kind::Unknown),
    }
}

/// Checks the gold query of an item like a statement of an agent. Returns whether it may change the database.
///
/// # Errors
/// The reason for the rejection.
pub fn check_gold(gold: &str) -> Result<bool, String> {
    match check(gold)? {
        // Would leave the episode's own copy of the database.
        Kind::Use(_) => Err("USE is refused".to_owned()),
        kind => Ok(kind == Kind::Write),
    }
}

/// Statements about servers, sessions, accounts, files and stored code.
const ADMINISTRATION: [&str; 45] = [
    "ANALYZE",
    "ATTACH",
    "BACKUP",
    "BINLOG",
    "CACHE",
    "CALL",
    "CHANGE",
    "CHECK",
    "CHECKSUM",
    "CLONE",
    "DEALLOCATE",
    "DECLARE",
    "DELIMITER",
    "DETACH",
    "DO",
    "EXECUTE",
    "FLUSH",
    "GET",
    "GRANT",
    "HANDLER",
    "HELP",
    "IF",
    "IMPORT",
    "INSTALL",
    "KILL",
    "LOAD",
    "LOCK",
    "LOOP",
    "OPTIMIZE",
    "PRAGMA",
    "PREPARE",
    "PURGE",
    "REINDEX",
    "RENAME",
    "REPAIR",
    "RESET",
    "RESIGNAL",
    "REVOKE",
    "SHUTDOWN",
    "SIGNAL",
    "STOP",
    "UNINSTALL",
    "UNLOCK",
    "VACUUM",
    "XA",
];

/// Checks for words and functions that are rejected anywhere.
fn inner(pieces: &[Token<'_>]) -> Result<(), String> {
    for (at, piece) in pieces.iter().enumerate() {
        let text = match piece {
            Token::Word(word) => *word,
            Token::Name(name) => name.trim_matches('`'),
            _ => continue,
        };
        let upper = text.to_ascii_uppercase();
        let next = pieces.get(at + 1);
        let is_call = next == Some(&Token::Symbol('('));
        let is_bare = matches!(piece, Token::Word(_));
        if is_call && FUNCTIONS.contains(&upper.as_str()) {
            return Err(format!("The function {upper} is refused"));
        }
        let qualifies = next == Some(&Token::Symbol('.'));
        let is_part = at > 0 && pieces.get(at - 1) == Some(&Token::Symbol('.'));
        if qualifies && !is_part && is_system(text) {
            if upper != "INFORMATION_SCHEMA" {
                return Err(refused_database(text));
            }
            let table = named(pieces.get(at + 2).copied()).to_ascii_uppercase();
            if !DESCRIPTIONS.contains(&table.as_str()) {
                return Err(format!("The table information_schema.{table} is refused"));
            }
        }
        if is_bare && upper.starts_with("@@") {
            return Err("Variables of the server are refused".to_owned());
        }
        if is_bare && !is_part && !qualifies && WORDS.contains(&upper.as_str()) && !is_column(pieces, at) {
            return Err(format!("{upper} is refused"));
        }
    }
    Ok(())
}

fn refused_database(name: &str) -> String {
    format!("The database {name} is refused")
}

/// Whether the text after `SET` is one assignment to a user variable. A second assignment could be of any
/// kind: `SET @x = 1, PASSWORD = …`, `SET @x = 1, sql_mode = …`.
fn sets_one_variable(pieces: &[Token<'_>]) -> bool {
    let [Token::Word(name), rest @ ..] = pieces else { return false };
    let is_own = name.strip_prefix('@').is_some_and(|name| !name.is_empty() && !name.contains('@'));
    let ([Token::Symbol('='), value @ ..] | [Token::Symbol(':'), Token::Symbol('='), value @ ..]) = rest
    else {
        return false;
    };
    is_own && at_depth_0(value).all(|piece| *piece != Token::Symbol(','))
}

/// Whether a table's definition has partitions, each of which is a separate file. The word is allowed within
/// parentheses, where it belongs to a window: `OVER (PARTITION BY a)`.
fn has_partitions(pieces: &[Token<'_>]) -> bool {
    at_depth_0(pieces).any(|piece| {
        ["PARTITION", "PARTITIONS", "SUBPARTITION", "PARTITIONING"].iter().any(|word| is_word(piece, word))
    })
}

/// The tokens outside of parentheses. An unmatched closing parenthesis counts as outside.
fn at_depth_0<'p, 'a>(pieces: &'p [Token<'a>]) -> impl Iterator<Item = &'p Token<'a>> {
    let mut depth = 0u32;
    pieces.iter().filter(move |piece| {
        match piece {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// Whether a rejected word is in the position of a column name: for example between `SELECT`, `,` and `FROM`.
fn is_column(pieces: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| pieces.get(at));
    let opens = before.is_some_and(|piece| {
        matches!(piece, Token::Symbol(',' | '(' | '=' | '<' | '>'))
            || ["SELECT", "BY", "WHERE", "AND", "OR", "DISTINCT"].iter().any(|word| is_word(piece, word))
    });
    let closes = pieces.get(at + 1).is_none_or(|piece| {
        matches!(piece, Token::Symbol(',' | ')' | '=' | '<' | '>'))
            || ["FROM", "AS", "ASC", "DESC", "AND", "OR", "LIKE", "IN", "BETWEEN"]
                .iter()
                .any(|word| is_word(piece, word))
    });
    opens && closes
}

fn is_word(piece: &Token<'_>, word: &str) -> bool {
    matches!(piece, Token::Word(text) if text.eq_ignore_ascii_case(word))
}

/// The name that a token represents.
fn named(piece: Option<Token<'_>>) -> String {
    match piece {
        Some(Token::Word(word)) => word.to_owned(),
        Some(Token::Name(name)) => name.trim_matches('`').to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_statements_pass() {
        for (statement, kind) in [
            ("SELECT a, event FROM t WHERE event = 'x' ORDER BY event DESC;", Kind::Read),
            ("(select 1) union (select 2)", Kind::Read),
            ("SHOW TABLES", Kind::Read),
            ("desc `event`", Kind::Read),
            ("select t.sleep, mysql from t", Kind::Read),
            ("SELEC 1", Kind::Unknown),
            ("'a'", Kind::Unknown),
            ("((", Kind::Unknown),
            ("END", Kind::Unknown),
            ("SELECTx", Kind::Unknown),
            ("SELECT@x, 18_49_rating, 1.5e3 FROM t", Kind::Read),
            ("SET@x=5", Kind::Read),
            ("SET @x = 5", Kind::Read),
            ("SET @x := (SELECT MAX(a) FROM t WHERE a IN (1, 2))", Kind::Read),
            ("show full columns from t", Kind::Read),
            ("SHOW CREATE TABLE t", Kind::Read),
            ("SELECT table_name FROM information_schema.tables", Kind::Read),
            ("CREATE TABLE u AS SELECT RANK() OVER (PARTITION BY a) FROM t", Kind::Write),
            ("INSERT INTO t VALUES ('a;b', 'INTO OUTFILE')", Kind::Write),
            ("create temporary table x (a int)", Kind::Write),
            ("USE `world_1`", Kind::Use("world_1".to_owned())),
            ("-- only this", Kind::Comment),
            ("", Kind::Nothing),
            (" \n", Kind::Blank),
        ] {
            assert_eq!(check(statement), Ok(kind), "{statement}");
        }
    }

    #[test]
    fn hostile_statements_do_not() {
        for statement in [
            "SELECT 1; DROP TABLE t",
            "SELECT SLEEP (100)",
            "select `sleep`(9)",
            "SELECT * FROM mysql.user",
            "SELECT 1 INTO OUTFILE '/tmp/x'",
            "/*!50000 DROP TABLE t */",
            "SET GLOBAL x = 1",
            "SET @x = 1, PASSWORD = PASSWORD('evil')",
            "SET @x = 1, max_statement_time = 0",
            "SET @x = (1), sql_mode = 'NO_BACKSLASH_ESCAPES'",
            "SET @x = 1, @y = 2",
            "SET @@sql_mode = 'ANSI_QUOTES'",
            "SET @ = 1",
            "SET @x",
            "SET@x=1, max_statement_time=0",
            "SET/**/@x=1,sql_select_limit=0",
            "SET@`x`=1,sql_select_limit=0",
            "SET@'x'=1,sql_select_limit=0",
            "SET@@sql_select_limit=0",
            "SET@",
            "SELECT /*+ SET_VAR(sql_mode='ANSI_QUOTES') */ 1",
            "SELECT a --\u{a0}, SLEEP(1000) FROM (SELECT 1 AS a, 1 AS `\u{a0}`) AS t",
            "SHOW VARIABLES",
            "SHOW GLOBAL VARIABLES LIKE 'secure%'",
            "SHOW FULL PROCESSLIST",
            "SHOW ENGINE INNODB STATUS",
            "SHOW CREATE USER root",
            "SELECT * FROM information_schema.processlist",
            "SELECT * FROM `information_schema` . `GLOBAL_VARIABLES`",
            "SELECT * FROM performance_schema.threads",
            "USE mysql",
            "use `Information_Schema`",
            "CREATE TABLE t (a int) PARTITION BY HASH (a) PARTITIONS 8192",
            "ALTER TABLE t PARTITION BY KEY () PARTITIONS 8192",
            "SET STATEMENT max_statement_time=0 FOR SELECT 1",
            "CREATE FUNCTION f RETURNS STRING SONAME 'x.so'",
            "CREATE TABLE t (a int) ENGINE=FEDERATED",
            "CREATE TABLE t (a int) MAX_ROWS=1e1ENGINE=FEDERATED",
            "CREATE TABLE t (a int) MAX_ROWS=1.CONNECTION='mysql://evil/a/b'",
            "CREATE TABLE t (a int) MAX_ROWS=1.5PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9))",
            "SELECT 1 FROM t WHERE .5PROCEDURE ANALYSE()",
            "SELECT 1 FROM t WHERE\\NPROCEDURE ANALYSE()",
            "SELECT SLEEP 1.e(1000)",
            "SELECT 5 1.e-- SLEEP(1000)",
            "KILL 1",
            "KILL@x",
            "BEGIN NOT ATOMIC SELECT 1; END",
            "SELECT @@datadir",
            "SELECT@@datadir",
            "SELECT @@`datadir`",
            "SELECT 1 AND@@datadir",
            "SELECT 1\0",
        ] {
            assert!(check(statement).is_err(), "{statement}");
        }
    }

    #[test]
    fn databases_of_the_server_are_known_in_any_case() {
        for name in ["mysql", "MySQL", "performance_schema", "Information_Schema", "sys", "ndbinfo"] {
            assert!(is_system(name), "{name}");
        }
        assert!(!is_system("world_1") && !is_system("mysql_2") && !is_system(""));
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in any::<String>()) {
            let _ = check(&text);
        }
    }
}
