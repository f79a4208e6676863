//! Parses a model's reply as the benchmark's own runners do (upstream `sql_parser` and `sql_parser_react` in
//! `experiments/utils/utils.py`), including their quirks.

use std::sync::LazyLock;

use regex::Regex;

use crate::python::is_space;

/// Words that a statement may start with, in search order.
const KEYWORDS: [&str; 4] = ["SHOW", "SELECT", "DESCRIBE", "DESC"];
/// Optional prefix of a reply before its statement.
const PREFIX: &str = "SQL: ";

static FENCE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)```(?:sql|SQL)?(.+?)```").expect("a valid pattern"));
static EXECUTE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)execute\[(.*)\]").expect("a valid pattern"));

/// A parsed action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedSql {
    /// The statement, or the whole reply if none was found.
    pub action: String,
    /// Whether a statement was found.
    pub is_code: bool,
}

impl ParsedSql {
    fn code(action: &str) -> Self {
        Self { action: action.to_owned(), is_code: true }
    }

    fn none(action: &str) -> Self {
        Self { action: action.to_owned(), is_code: false }
    }
}

/// A reply with an empty code block: an `IndexError` in the original, which ends its whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reply's block of code is empty")]
pub struct EmptyBlock;

fn up_to_semicolon(text: &str) -> &str {
    text.split(';').next().unwrap_or_default()
}

/// Parses a reply in the try-again loop.
///
/// # Errors
/// Fails if the reply's first code block, or the text after `SQL: `, is empty.
pub fn sql_parser(reply: &str) -> Result<ParsedSql, EmptyBlock> {
    let reply = reply.replace("\\_", "_");
    if !reply.contains("```") {
        if let Some(rest) = reply.strip_prefix(PREFIX) {
            // The original intends to use the whole rest but uses its first character.
            let first = rest.get(..rest.chars().next().ok_or(EmptyBlock)?.len_utf8());
            return Ok(ParsedSql::code(up_to_semicolon(first.unwrap_or_default())));
        }
        let found = KEYWORDS.iter().find_map(|keyword| reply.find(keyword));
        if let Some(statement) = found.and_then(|at| reply.get(at..)) {
            return Ok(ParsedSql::code(up_to_semicolon(statement)));
        }
    }
    let Some(block) = FENCE.captures(&reply).and_then(|captures| captures.get(1)) else {
        return Ok(ParsedSql::none(&reply));
    };
    let words: Vec<&str> = words(block.as_str()).collect();
    let joined = words.join(" ");
    let action = up_to_semicolon(&joined);
    let first = self::words(action).next().ok_or(EmptyBlock)?;
    let is_statement = KEYWORDS.contains(&first.to_uppercase().as_str());
    Ok(if is_statement { ParsedSql::code(action) } else { ParsedSql::none(action) })
}

/// Parses a reply in the ReAct runner.
pub fn sql_parser_react(reply: &str) -> ParsedSql {
    if reply == "submit" {
        return ParsedSql::code(reply);
    }
    match EXECUTE.captures(reply).and_then(|captures| captures.get(1)) {
        Some(inner) => ParsedSql::code(up_to_semicolon(inner.as_str())),
        None => ParsedSql::none(reply),
    }
}

/// `text.split()`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(reply: &str) -> (String, bool) {
        let ParsedSql { action, is_code } = sql_parser(reply).unwrap();
        (action, is_code)
    }

    #[test]
    fn statements_are_found_where_the_original_finds_them() {
        for (reply, action, is_code) in [
            ("```sql\nSELECT  1;\nSELECT 2\n```", "SELECT 1", true),
            ("```sql\nshow tables\n```", "show tables", true),
            ("```sql\nDROP TABLE a\n```", "DROP TABLE a", false),
            ("The SHOW must go on; SELECT 1", "SHOW must go on", true),
            ("SQL: SELECT 1", "S", true),
            ("select 1", "select 1", false),
            ("SELECT\\_x", "SELECT_x", true),
            ("```sql\nSELECT 1", "```sql\nSELECT 1", false),
        ] {
            assert_eq!(parsed(reply), (action.to_owned(), is_code), "{reply:?}");
        }
        assert_eq!(sql_parser("```sql\n\n```"), Err(EmptyBlock));
        assert_eq!(sql_parser("```;```"), Err(EmptyBlock));
        assert_eq!(sql_parser("SQL: "), Err(EmptyBlock));
        assert_eq!(sql_parser_react("Action: execute[SELECT a[1]; b]").action, "SELECT a[1]");
    }

    proptest! {
        #[test]
        fn any_reply_is_read(reply in "[`SQL: ;a-zé\\n\\\\_]{0,40}") {
            let _ = sql_parser(&reply);
            sql_parser_react(&reply);
        }
    }

    /// The recorded replies, if `LUMOS_SHARED` names a folder that contains them.
    #[test]
    fn recorded_replies() {
        let path = lumos_capabilities::shared("golden/intercode_sql/action_parser.jsonl.gz");
        let Some(path) = path else { return };
        let mut text = String::new();
        let file = std::fs::File::open(path).unwrap();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
        let mut count = 0;
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let reply = row["input"].as_str().unwrap();
            let written =
                |parsed: ParsedSql| serde_json::json!({ "action": parsed.action, "is_code": parsed.is_code });
            let got = sql_parser(reply).map_or(serde_json::json!({ "error": "IndexError" }), written);
            assert_eq!(got, row["sql_parser"], "{reply:?}");
            assert_eq!(written(sql_parser_react(reply)), row["sql_parser_react"], "{reply:?}");
            count += 1;
        }
        println!("action_parser: {count} of {count} equal");
    }
}
