//! The original's cleaning of a page's text (upstream `clean_str` in `eval/hotpotqa/utils.py`): it decodes
//! backslash escapes like Python's `unicode-escape`, which raises on some pages about mathematics.

/// Decodes escapes as the original does; the error is the exception that it ends with.
///
/// The text's UTF-8 bytes are decoded as `unicode-escape`, encoded as Latin-1 and decoded as UTF-8. If one of
/// these steps fails, the text is used unchanged, which fails in turn unless it is UTF-8 encoded in Latin-1.
/// Named escapes (`\N{…}`) always fail here; Python fails only on malformed ones.
pub fn clean(text: &str) -> Result<String, &'static str> {
    if text.is_ascii() && !text.contains('\\') {
        return Ok(text.to_owned());
    }
    if let Some(cleaned) = unescape(text.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok()) {
        return Ok(cleaned);
    }
    let bytes: Option<Vec<u8>> =
        text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect();
    String::from_utf8(bytes.ok_or("UnicodeEncodeError")?).map_err(|_| "UnicodeDecodeError")
}

/// Bytes with their escapes decoded; `None` if an escape is malformed or stands for a character that Latin-1
/// lacks.
fn unescape(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let [letter, behind @ ..] = rest else { return None };
        rest = behind;
        match letter {
            b'\n' => {}
            b'\\' | b'\'' | b'"' => out.push(*letter),
            b'a' => out.push(0x07),
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let (digits, behind) = rest.split_at(more);
                rest = behind;
                let octal = |value: u32, digit: &u8| value * 8 + u32::from(digit - b'0');
                let value = digits.iter().fold(u32::from(letter - b'0'), octal);
                out.push(u8::try_from(value).ok()?);
            }
            b'x' | b'u' | b'U' => {
                let length = match letter {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                let (digits, behind) = rest.split_at_checked(length)?;
                rest = behind;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let value = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                out.push(u8::try_from(value).ok()?);
            }
            b'N' => return None,
            other => out.extend([b'\\', *other]),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_undone_and_malformed_ones_stay() {
        assert_eq!(clean("Ł plain 山").as_deref(), Ok("Ł plain 山"));
        assert_eq!(clean("a\\nb\\q\\x41\\103").as_deref(), Ok("a\nb\\qAC"));
        assert_eq!(clean("\\xc3\\xa9").as_deref(), Ok("é"));
        assert_eq!(clean("\\u12 ends in \\").as_deref(), Ok("\\u12 ends in \\"));
        assert_eq!(clean("{\\displaystyle \\nu }").as_deref(), Ok("{\\displaystyle \nu }"));
    }

    #[test]
    fn what_the_original_cannot_clean() {
        assert_eq!(clean("\\u12 – Ω"), Err("UnicodeEncodeError"));
        assert_eq!(clean("\\xe9 alone é"), Err("UnicodeDecodeError"));
    }

    proptest! {
        #[test]
        fn text_without_backslashes_is_left_alone(text in "[^\\\\]{0,40}") {
            prop_assert_eq!(clean(&text), Ok(text));
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = clean(&text);
        }
    }
}
