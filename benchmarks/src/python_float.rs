//! Python's `float(text)`, as far as the loaders need it.

use lumos_tasks::python::{Integer, strip};

/// Parses a text like `float(text)`; `None` if Python raises `ValueError`.
pub(crate) fn float(text: &str) -> Option<f64> {
    let digits: String = strip(text).chars().map(ascii_digit).collect::<Option<_>>()?;
    let plain = without_underscores(&digits)?;
    plain.parse().ok()
}

/// Converts decimal digits of any script to ASCII digits and keeps other ASCII characters.
fn ascii_digit(character: char) -> Option<char> {
    if character.is_ascii() {
        return Some(character);
    }
    Integer::parse(character.encode_utf8(&mut [0; 4])).and_then(|digit| digit.to_string().chars().next())
}

/// Removes underscores, which may occur between two digits only.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit =
        |index: Option<usize>| index.and_then(|index| bytes.get(index)).is_some_and(u8::is_ascii_digit);
    let allowed = bytes
        .iter()
        .enumerate()
        .all(|(index, byte)| *byte != b'_' || is_digit(index.checked_sub(1)) && is_digit(Some(index + 1)));
    allowed.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_python_reads() {
        for (text, value) in [
            ("18", 18.0),
            (" -0.5\u{1c}", -0.5),
            ("1_000.5e1_0", 1000.5e10),
            ("٣.٥", 3.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("+Infinity", f64::INFINITY),
        ] {
            assert_eq!(float(text), Some(value), "{text:?}");
        }
        assert!(float("nan").is_some_and(f64::is_nan));
        for refused in
            ["", "7 apples", "1,000", "_1", "1_", "1__0", "1_.5", "0x10", "²", "½", ".", "e5", "1e"]
        {
            assert_eq!(float(refused), None, "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn written_numbers_read_back(value in any::<f64>().prop_filter("a number", |value| !value.is_nan())) {
            prop_assert_eq!(float(&value.to_string()), Some(value));
        }

        #[test]
        fn never_panics(text in ".{0,20}") {
            float(&text);
        }
    }
}
