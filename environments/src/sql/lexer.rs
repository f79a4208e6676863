//! Splits SQL text into words, quotes and comments in MySQL's dialect, as far as needed to classify a
//! statement. Accepts any text in one pass and never fails.

/// A token of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A bare word or a number: letters, digits, `_`, `$`, and non-ASCII characters. Variables start with
    /// `@`.
    Word(&'a str),
    /// A string in single or double quotes, including the quotes.
    Quoted(&'a str),
    /// A name in backquotes, including the quotes.
    Name(&'a str),
    /// Any other character.
    Symbol(char),
    /// A comment that the server executes: `/*! … */`, and one with optimizer hints, which set variables:
    /// `/*+ … */`.
    Executable,
}

/// The tokens of a text; plain comments and white space are skipped. An unterminated quote or comment extends
/// to the end.
pub fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    located(text).map(|(_, token)| token)
}

/// The tokens of a text, each with its offset in bytes.
pub fn located(text: &str) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|character: char| {
                character.is_ascii_whitespace() || matches!(character, '\x0b' | '\0')
            });
            let first = rest.chars().next()?;
            let at = text.len() - rest.len();
            if let Some(length) = comment(rest) {
                let is_executable = ["/*!", "/*M!", "/*+"].iter().any(|start| rest.starts_with(start));
                rest = rest.get(length..).unwrap_or_default();
                if is_executable {
                    return Some((at, Token::Executable));
                }
                continue;
            }
            let length = match first {
                '\'' | '"' | '`' => quoted(rest, first),
                _ if is_word(first) => rest.find(|character| !is_word(character)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (token, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
            rest = behind;
            let token = match first {
                '\'' | '"' => Token::Quoted(token),
                '`' => Token::Name(token),
                _ if is_word(first) => Token::Word(token),
                _ => Token::Symbol(first),
            };
            return Some((at, token));
        }
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '@') || !character.is_ascii()
}

/// The length of the comment at the start of a text.
fn comment(text: &str) -> Option<usize> {
    // The server recognizes ASCII white space only: two dashes before any other character are two minus
    // signs.
    let dashes = text.strip_prefix("--").is_some_and(|rest| {
        rest.bytes().next().is_none_or(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
    });
    if dashes || text.starts_with('#') {
        return Some(text.find('\n').map_or(text.len(), |at| at + 1));
    }
    let inner = text.strip_prefix("/*")?;
    Some(inner.find("*/").map_or(text.len(), |at| at + 4))
}

/// The length of the quoted token at the start of a text. A quote within it is doubled, or escaped by `\`
/// (not in names).
fn quoted(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character == '\\' && quote != '`' {
            characters.next();
        } else if character == quote {
            if characters.peek().is_some_and(|(_, next)| *next == quote) {
                characters.next();
            } else {
                return at + 1;
            }
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_of_a_statement() {
        let found: Vec<_> = tokens("SELECT `a``;`, 'it''s \\' ;' -- x;\n/* ; */ /*! y */ # z").collect();
        assert_eq!(
            found,
            [
                Token::Word("SELECT"),
                Token::Name("`a``;`"),
                Token::Symbol(','),
                Token::Quoted("'it''s \\' ;'"),
                Token::Executable,
            ]
        );
        assert_eq!(tokens("1--1").count(), 4, "two dashes without a blank are no comment");
        assert_eq!(
            tokens("1 --\u{a0}, SLEEP").count(),
            6,
            "a blank outside of ASCII is a letter to the server"
        );
        assert_eq!(tokens("/*+ SET_VAR(a=1) */").collect::<Vec<_>>(), [Token::Executable]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            prop_assert!(tokens(&text).count() <= text.chars().count());
        }
    }
}
