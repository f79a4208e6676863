//! Finds the array of records within a JSON object, without loading the whole file.

use std::io::BufRead;

/// Reads up to the array in a field of the object at the start of `reader`; the next byte is its `[`. Returns
/// the line in which the array starts, counted from 1, or `None` if there is no such array.
pub(super) fn seek(reader: &mut impl BufRead, field: &str) -> std::io::Result<Option<u64>> {
    let (mut line, mut depth) = (1u64, 0u32);
    let (mut in_string, mut escaped) = (false, false);
    // The last string that ended at the top level, and whether a colon followed it.
    let (mut text, mut named) = (Vec::new(), false);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        for (index, &byte) in buffer.iter().enumerate() {
            match byte {
                b'\n' => line += 1,
                b'[' if !in_string && depth == 1 && named && text == field.as_bytes() => {
                    reader.consume(index);
                    return Ok(Some(line));
                }
                _ => {}
            }
            if in_string {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => in_string = false,
                    _ => {}
                }
                if in_string && depth == 1 && text.len() <= field.len() {
                    text.push(byte);
                }
                continue;
            }
            match byte {
                b'"' => {
                    in_string = true;
                    if depth == 1 && !named {
                        text.clear();
                    }
                }
                b':' if depth == 1 => named = true,
                b',' if depth == 1 => named = false,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        let read = buffer.len();
        reader.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Option<(u64, String)> {
        // A small buffer, so that the field spans several reads.
        let mut reader = BufReader::with_capacity(7, text.as_bytes());
        let line = seek(&mut reader, "examples").unwrap()?;
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        Some((line, rest))
    }

    #[test]
    fn the_array_of_a_field_is_found() {
        let text = "{\"name\": \"examples\", \"more\": {\"examples\": [1]},\n \"list\": [[\"examples\"]],\n\"examples\" : [2]}";
        assert_eq!(found(text), Some((3, "[2]}".to_owned())));
        assert_eq!(found("{\"examples\": 3, \"other\": [4]}"), None);
        assert_eq!(found("[{\"examples\": [4]}]"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[\\[\\]{}\",:\\\\ examples\n]{0,60}") {
            found(&text);
        }
    }
}
