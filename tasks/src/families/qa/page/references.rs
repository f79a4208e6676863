//! Rewrites character references to match Python's `html.parser` and BeautifulSoup.
//!
//! A browser matches some names by prefix (`&notit` contains `&not`) and leaves unknown ones unchanged.
//! Python matches whole names only, with or without a semicolon, and an unknown name loses its semicolon. A
//! number followed by a hexadecimal letter is text (after a second such number the original treats the rest
//! of the page as text; this code does not). The page is rewritten so that html5ever, which follows browsers,
//! gives the same result.

use std::borrow::Cow;
use std::sync::LazyLock;

use html5ever::data::NAMED_ENTITIES;
use regex::{Captures, Regex};

/// Rewrites the character references of a page.
pub(super) fn rewrite(html: &str) -> Cow<'_, str> {
    static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"&(?:([a-zA-Z][-.a-zA-Z0-9]*)|#((?:[xX][0-9a-fA-F]+|[0-9]+)?)([a-fA-F]?));?")
            .expect("a valid pattern")
    });
    REFERENCE.replace_all(html, |reference: &Captures<'_>| {
        let part = |index: usize| reference.get(index).map_or("", |part| part.as_str());
        match (part(1), part(2), part(3)) {
            ("", number, "") if is_zero(number) => "\0".to_owned(),
            ("", number, "") if !number.is_empty() => format!("&#{number};"),
            ("", _, _) => format!("&amp;{}", &reference[0][1..]),
            (name, _, _) if is_known(name) => format!("&{name};"),
            (name, _, _) => format!("&amp;{name}"),
        }
    })
}

/// Whether the digits of a number, with its `x` if it is hexadecimal, encode U+0000. A browser replaces that
/// character, the original keeps it.
fn is_zero(number: &str) -> bool {
    let digits = number.trim_start_matches(['x', 'X']);
    !digits.is_empty() && digits.bytes().all(|digit| digit == b'0')
}

fn is_known(name: &str) -> bool {
    NAMED_ENTITIES.get(&format!("{name};")).is_some_and(|characters| *characters != (0, 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_count_whole() {
        assert_eq!(
            rewrite("&copy&euro5 &nbsp; &notit; &unknown; AT&T & &amp;x"),
            "&copy;&amp;euro5 &nbsp; &amp;notit &amp;unknown AT&amp;T & &amp;x"
        );
    }

    #[test]
    fn numbers_that_run_into_letters_are_text() {
        assert_eq!(
            rewrite("&#65; &#65 &#65debate &#x41g &# &#;"),
            "&#65; &#65; &amp;#65debate &#x41;g &amp;# &amp;#;"
        );
    }

    #[test]
    fn zero_is_the_character_zero() {
        assert_eq!(
            rewrite("a&#0;b&#00 c&#x0;d&#X00g &#0debate &#10; &#x;"),
            "a\0b\0 c\0d\0g &amp;#0debate &#10; &amp;#x;"
        );
    }

    proptest! {
        #[test]
        fn text_without_references_is_left_alone(html in "[^&]{0,40}") {
            prop_assert_eq!(rewrite(&html).into_owned(), html);
        }
    }
}
