//! The parts of Python's string semantics that the original's behaviour depends on.
//!
//! Prompts, variables and answers pass through `strip`, `split`, slices, `int` and `str` of Python 3.11. This
//! module implements them where Rust's own methods differ (white space, digits, indices from the end).

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

/// Whether Python's `str.strip` and `str.split` treat this character as white space.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// `text.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Characters of general category Nd, whose values run from 0 to 9 in blocks of ten.
static DECIMAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{Nd}$").expect("a valid pattern"));

/// The value of a decimal digit of any script.
fn decimal_value(character: char) -> Option<u8> {
    if let Some(value) = character.to_digit(10) {
        return u8::try_from(value).ok();
    }
    if character.is_ascii() {
        return None;
    }
    let is_decimal = |code: u32| {
        char::from_u32(code).is_some_and(|character| DECIMAL.is_match(character.encode_utf8(&mut [0; 4])))
    };
    let code = u32::from(character);
    if !is_decimal(code) {
        return None;
    }
    // Blocks of digits may be adjacent (the mathematical ones are), always in whole tens.
    let before = (1..=60).take_while(|distance| is_decimal(code - distance)).count();
    u8::try_from(before % 10).ok()
}

/// Digits that are not decimal: superscripts, circled digits and similar (Unicode's Numeric_Type=Digit).
fn is_special_digit(character: char) -> bool {
    matches!(u32::from(character),
        0xb2 | 0xb3 | 0xb9 | 0x1369..=0x1371 | 0x19da | 0x2070 | 0x2074..=0x2079 | 0x2080..=0x2089
        | 0x2460..=0x2468 | 0x2474..=0x247c | 0x2488..=0x2490 | 0x24ea | 0x24f5..=0x24fd | 0x24ff
        | 0x2776..=0x277e | 0x2780..=0x2788 | 0x278a..=0x2792 | 0x10a40..=0x10a43 | 0x10e60..=0x10e68
        | 0x11052..=0x1105a | 0x1f100..=0x1f10a)
}

/// `text.isdigit()`.
pub fn is_digit(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|character| decimal_value(character).is_some() || is_special_digit(character))
}

/// An integer of any length as parsed by `int(text)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integer {
    negative: bool,
    /// Decimal digits without leading zeros; `0` for zero.
    digits: String,
}

impl Integer {
    /// The longest text of digits that Python 3.11 converts.
    const MAX_DIGITS: usize = 4300;

    /// `int(text)`; `None` if Python raises `ValueError`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = strip(text);
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let mut digits = String::new();
        let mut previous_was_digit = false;
        for character in unsigned.chars() {
            if character == '_' && previous_was_digit {
                previous_was_digit = false;
                continue;
            }
            digits.push(char::from(b'0' + decimal_value(character)?));
            previous_was_digit = true;
        }
        if !previous_was_digit || digits.len() > Self::MAX_DIGITS {
            return None;
        }
        let digits = match digits.trim_start_matches('0') {
            "" => "0".to_owned(),
            significant => significant.to_owned(),
        };
        Some(Self { negative: negative && digits != "0", digits })
    }
}

impl std::fmt::Display for Integer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.negative {
            formatter.write_str("-")?;
        }
        formatter.write_str(&self.digits)
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Self) -> Ordering {
        let magnitude = |left: &Self, right: &Self| {
            left.digits.len().cmp(&right.digits.len()).then_with(|| left.digits.cmp(&right.digits))
        };
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => magnitude(self, other),
            (true, true) => magnitude(other, self),
        }
    }
}

impl PartialOrd for Integer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A text as a sequence of characters, indexed and searched as Python does.
#[derive(Debug, Clone)]
pub struct Characters(Vec<char>);

impl Characters {
    /// The characters of a text.
    pub fn new(text: &str) -> Self {
        Self(text.chars().collect())
    }

    /// `len(text)`.
    pub fn len(&self) -> isize {
        self.0.len().cast_signed()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text[index]`; `None` if Python raises `IndexError`.
    pub fn at(&self, index: isize) -> Option<char> {
        let index = if index < 0 { index + self.len() } else { index };
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).copied()
    }

    /// `text[start:end]`.
    pub fn slice(&self, start: isize, end: isize) -> String {
        let clamp = |index: isize| {
            let index = if index < 0 { index + self.len() } else { index };
            index.clamp(0, self.len()).cast_unsigned()
        };
        let (start, end) = (clamp(start), clamp(end));
        self.0.get(start..end).unwrap_or_default().iter().collect()
    }

    /// `text[start:]`.
    pub fn from(&self, start: isize) -> String {
        self.slice(start, self.len())
    }

    /// `text.find(pattern)`: the index of the first occurrence, or -1.
    pub fn find(&self, pattern: &str) -> isize {
        let pattern: Vec<char> = pattern.chars().collect();
        self.0.windows(pattern.len()).position(|window| window == pattern).map_or(-1, usize::cast_signed)
    }

    /// `text.rfind(pattern)`: the index of the last occurrence, or -1.
    pub fn rfind(&self, pattern: &str) -> isize {
        let pattern: Vec<char> = pattern.chars().collect();
        self.0.windows(pattern.len()).rposition(|window| window == pattern).map_or(-1, usize::cast_signed)
    }
}

/// Characters that `repr` escapes: all except printable ones.
static UNPRINTABLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}]$").expect("a valid pattern"));

/// `repr(text)`.
pub fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(character);
            }
            ' '..='~' => out.push(character),
            _ if UNPRINTABLE.is_match(character.encode_utf8(&mut [0; 4])) => match u32::from(character) {
                code @ ..=0xff => out.push_str(&format!("\\x{code:02x}")),
                code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

/// `repr(value)` of a float: the shortest digits that round-trip, with an exponent below -4 and from 16 on.
pub fn repr_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// `str(list)` for a list of texts and `None`.
pub fn repr_list<'a>(entries: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let entries: Vec<String> =
        entries.into_iter().map(|entry| entry.map_or_else(|| "None".to_owned(), repr)).collect();
    format!("[{}]", entries.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strips_what_python_strips() {
        assert_eq!(strip("\u{1c}\u{85} a b\u{a0}\n\u{1f}"), "a b");
        assert_eq!(strip("\u{200b}a"), "\u{200b}a");
    }

    #[test]
    fn digits_and_integers() {
        assert!(is_digit("12²٣"));
        assert!(!is_digit("1.2") && !is_digit("") && !is_digit("½"));
        let integer = |text| Integer::parse(text).map(|integer| integer.to_string());
        assert_eq!(integer(" 0_12 ").as_deref(), Some("12"));
        assert_eq!(integer("-007").as_deref(), Some("-7"));
        assert_eq!(integer("٣𝟚").as_deref(), Some("32"));
        assert_eq!(integer("-0").as_deref(), Some("0"));
        for refused in ["", "_1", "1_", "1__2", "²", "utput", "4,R5", "1.0", "- 1"] {
            assert_eq!(integer(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn slices_from_both_ends() {
        let text = Characters::new("añcd");
        assert_eq!(text.slice(1, -1), "ñc");
        assert_eq!(text.slice(-9, 2), "añ");
        assert_eq!(text.slice(3, 1), "");
        assert_eq!(text.at(-1), Some('d'));
        assert_eq!(text.at(4), None);
        assert_eq!((text.find("c"), text.find("x"), Characters::new("aba").rfind("a")), (2, -1, 2));
    }

    #[test]
    fn repr_of_lists() {
        assert_eq!(repr_list([Some("15"), None]), "['15', None]");
        assert_eq!(repr("it's"), "\"it's\"");
        assert_eq!(repr("a\u{85}\u{2028}é\\"), "'a\\x85\\u2028é\\\\'");
    }

    #[test]
    fn floats_as_python_prints_them() {
        for (value, text) in [
            (3.0, "3.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e-4, "0.0001"),
            (1e-7, "1e-07"),
            (1.5e-5, "1.5e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(repr_float(value), text);
        }
    }

    proptest! {
        #[test]
        fn printed_floats_read_back(value in any::<f64>().prop_filter("a number", |value| !value.is_nan())) {
            prop_assert_eq!(repr_float(value).parse::<f64>(), Ok(value));
        }

        #[test]
        fn integers_order_as_numbers(left in any::<i64>(), right in any::<i64>()) {
            let parse = |number: i64| Integer::parse(&number.to_string()).unwrap();
            prop_assert_eq!(parse(left).cmp(&parse(right)), left.cmp(&right));
            prop_assert_eq!(parse(left).to_string(), left.to_string());
        }

        #[test]
        fn slicing_never_panics(text in ".{0,12}", start in -20isize..20, end in -20isize..20) {
            let characters = Characters::new(&text);
            prop_assert!(characters.slice(start, end).chars().count() <= text.chars().count());
        }
    }
}
