//! Decodes response bodies like the original's HTTP library (`Response.text` of Python's requests): with the
//! encoding in the response, text without one as Latin-1, and with replacement of invalid bytes.

/// Decodes a body. `content_type` is the value of the `Content-Type` header.
///
/// Encodings other than UTF-8 and Latin-1 are decoded as UTF-8, like unknown encodings in the original.
/// Without a header, the original guesses the encoding; here it is UTF-8.
pub(super) fn text_of(body: &[u8], content_type: Option<&str>) -> String {
    if is_latin(content_type.unwrap_or_default()) {
        body.iter().copied().map(char::from).collect()
    } else {
        String::from_utf8_lossy(body).into_owned()
    }
}

fn is_latin(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    let mut parts = content_type.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset")?.trim_start().strip_prefix('='));
    match charset.map(|name| name.trim().trim_matches(['"', '\''])) {
        Some(name) => matches!(name, "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin-1" | "latin1" | "l1"),
        None => kind.contains("text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_in_the_encoding_that_is_named() {
        let utf8 = "é山".as_bytes();
        for header in ["text/html; charset=UTF-8", "text/html;charset=\"utf-8\"", "application/json"] {
            assert_eq!(text_of(utf8, Some(header)), "é山", "{header}");
        }
        assert_eq!(text_of(utf8, None), "é山");
        assert_eq!(text_of(b"caf\xe9", Some("text/html; charset=ISO-8859-1")), "café");
        // Text without a charset is Latin-1, as formerly specified by HTTP/1.1.
        assert_eq!(text_of("é".as_bytes(), Some("text/html")), "Ã©");
    }

    #[test]
    fn what_cannot_be_read_is_replaced() {
        assert_eq!(text_of(b"caf\xe9 \xf0\x9f", Some("text/html; charset=utf-8")), "caf\u{fffd} \u{fffd}");
        assert_eq!(text_of(b"caf\xe9", Some("text/html; charset=no-such")), "caf\u{fffd}");
    }
}
