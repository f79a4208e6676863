//! Splits SQL text into words, quotes and comments in MySQL's dialect, as far as needed to classify a
//! statement. Accepts any text in one pass and never fails.

/// A token of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A bare word or a number. Words have letters, digits, `_`, `$`, and non-ASCII characters; variables
    /// start with `@`.
    Word(&'a str),
    /// A string in single or double quotes, including the quotes.
    Quoted(&'a str),
    /// A name in backquotes, including the quotes.
    Name(&'a str),
    /// Any other character, and `\N`, which is NULL in MariaDB.
    Symbol(char),
    /// A number that ends in its exponent: `1.e`. Servers skip it, and take the next character for a symbol.
    IncompleteNumber,
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
    // The end of the last word that is not a number. A dot there belongs to a name.
    let mut name_end = None;
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
            let number = match first {
                '.' if name_end != Some(at) => number(rest),
                '0'..='9' if !text.get(..at).unwrap_or_default().ends_with('.') => number(rest),
                _ => None,
            };
            let is_start = is_word(first) || first == '@';
            let length = match (number, first) {
                (Some((length, _)), _) => length,
                (None, '\'' | '"' | '`') => quoted(rest, first),
                (None, '\\') if rest.starts_with("\\N") => 2,
                (None, _) if is_start => word(rest),
                (None, _) => first.len_utf8(),
            };
            let (token, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
            rest = behind;
            let token = match (number, first) {
                (Some((_, true)), _) => Token::Word(token),
                (Some((_, false)), _) => Token::IncompleteNumber,
                (None, '\'' | '"') => Token::Quoted(token),
                (None, '`') => Token::Name(token),
                (None, _) if is_start => {
                    name_end = Some(at + token.len());
                    Token::Word(token)
                }
                (None, _) => Token::Symbol(first),
            };
            return Some((at, token));
        }
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii()
}

/// The length of the word at the start of a text. `@` is only part of its start: the server also reads
/// `SET@x` as two words.
fn word(text: &str) -> usize {
    let name = text.trim_start_matches('@');
    let sigils = text.len() - name.len();
    sigils + name.find(|character| !is_word(character)).unwrap_or(name.len())
}

/// The length of the number with a dot or an exponent at the start of a text, and whether it is complete.
/// What follows it is another word: `1e1AND`, `.5AND`. Returns `None` for other numbers, and for names that
/// start with digits.
fn number(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let whole = digits(0);
    let is_real = bytes.get(whole) == Some(&b'.');
    let end = if is_real { digits(whole + 1) } else { whole };
    if is_real && end == 1 {
        return None;
    }
    if !matches!(bytes.get(end), Some(b'e' | b'E')) {
        return is_real.then_some((end, true));
    }
    let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
    let length = digits(exponent);
    let is_complete = length > exponent;
    (is_real || is_complete).then_some((length, is_complete))
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

    /// As in `lex_one_token` of MariaDB and MySQL.
    #[test]
    fn words_end_where_they_end_for_the_server() {
        let split = |text: &str| {
            let words: Vec<String> = tokens(text)
                .map(|token| match token {
                    Token::Word(text) | Token::Quoted(text) | Token::Name(text) => text.to_owned(),
                    Token::Symbol(symbol) => symbol.to_string(),
                    other => format!("{other:?}"),
                })
                .collect();
            words.join(" ")
        };
        for (text, expected) in [
            ("SET@x", "SET @x"),
            ("SET/**/@x:=1", "SET @x : = 1"),
            ("SELECT@@a.b", "SELECT @@a . b"),
            ("u@h@@`a`@'b'@ @@@", "u @h @@ `a` @ 'b' @ @@@"),
            ("a$1é_@é", "a$1é_ @é"),
            ("1e1AND 1E+1AND 1e-1AND", "1e1 AND 1E+1 AND 1e-1 AND"),
            ("1.5AND .5AND 1.AND 1.e1AND", "1.5 AND .5 AND 1. AND 1.e1 AND"),
            ("SLEEP 1.e(", "SLEEP IncompleteNumber ("),
            ("1.5e--1", "IncompleteNumber - 1"),
            ("18_49_a,2nd,1e,1e+a,0x1e5a", "18_49_a , 2nd , 1e , 1e + a , 0x1e5a"),
            ("t.1e5a t. 1e5a `t`.5a", "t . 1e5a t . 1e5 a `t` .5 a"),
            ("WHERE\\NAND \\n", "WHERE \\ AND \\ n"),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            prop_assert!(tokens(&text).count() <= text.chars().count());
        }
    }
}
