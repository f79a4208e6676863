//! Reads the elements of a JSON array one by one, without loading the whole file.
//!
//! The reader splits the text at commas between elements (outside of strings and brackets) and passes each
//! part to the JSON parser, so that a malformed element does not affect later ones.

use std::io::{BufRead, Bytes};

use super::{Flaw, Located, MAX_RECORD, parse, too_long};

/// Position of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the opening bracket.
    Start,
    /// After the opening bracket: an element or the end.
    First,
    /// After a comma: an element.
    Element,
    /// After the closing bracket.
    End,
    /// The end was reached.
    Over,
}

/// Iterator over the elements of a JSON array.
pub(crate) struct Elements<R> {
    bytes: Bytes<R>,
    line: u64,
    place: Place,
    within_object: bool,
    longest: u64,
}

/// The character that ends an element.
enum Mark {
    Comma,
    Close,
}

impl<R: BufRead> Elements<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            bytes: reader.bytes(),
            line: 1,
            place: Place::Start,
            within_object: false,
            longest: MAX_RECORD,
        }
    }

    /// Sets the maximum length of an element in bytes.
    pub(crate) fn at_most(self, longest: u64) -> Self {
        Self { longest, ..self }
    }

    /// Reads an array within an object. The array starts in `line`. Text after the array is not read.
    pub(crate) fn within_object(reader: R, line: u64) -> Self {
        Self { line, within_object: true, ..Self::new(reader) }
    }

    /// Returns the next byte, or `None` at the end of the file.
    fn byte(&mut self) -> Result<Option<u8>, Flaw> {
        match self.bytes.next() {
            None => Ok(None),
            Some(Ok(byte)) => {
                if byte == b'\n' {
                    self.line += 1;
                }
                Ok(Some(byte))
            }
            Some(Err(error)) => Err(Flaw::Unreadable(error.to_string())),
        }
    }

    /// Returns the next byte that is not white space.
    fn solid(&mut self) -> Result<Option<u8>, Flaw> {
        loop {
            match self.byte()? {
                Some(b' ' | b'\t' | b'\r' | b'\n') => {}
                other => return Ok(other),
            }
        }
    }

    /// Reads an element up to the character that ends it. `byte` is its first byte.
    fn element(&mut self, byte: u8) -> Result<(Vec<u8>, Mark), Flaw> {
        let start = self.line;
        let mut text = Vec::new();
        let (mut depth, mut in_string, mut escaped) = (0u32, false, false);
        let mut next = Some(byte);
        while let Some(byte) = next {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b',' if depth == 0 => return Ok((text, Mark::Comma)),
                b']' if depth == 0 => return Ok((text, Mark::Close)),
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            text.push(byte);
            if text.len() as u64 > self.longest {
                return Err(too_long(self.longest));
            }
            next = self.byte()?;
        }
        Err(Flaw::Broken {
            expected: "`,` or `]` after the last record".to_owned(),
            found: format!("the end of the file in the record that starts at line {start}"),
        })
    }

    /// Reads the next element; `None` at the end.
    fn step(&mut self) -> Result<Option<Located>, Flaw> {
        if self.place == Place::Start {
            match self.solid()? {
                None => return Ok(None),
                Some(b'[') => self.place = Place::First,
                Some(other) => return Err(unexpected("a JSON array (`[`)", Some(other))),
            }
        }
        if matches!(self.place, Place::First | Place::Element) {
            let first = match (self.solid()?, self.place) {
                (Some(b']'), Place::First) => None,
                (Some(byte), _) if byte != b']' => Some(byte),
                (other, _) => return Err(unexpected("a record", other)),
            };
            if let Some(byte) = first {
                let line = self.line;
                let (text, mark) = self.element(byte)?;
                self.place = match mark {
                    Mark::Comma => Place::Element,
                    Mark::Close => Place::End,
                };
                return Ok(Some(Located { line, content: parse(&text, line) }));
            }
            self.place = Place::End;
        }
        if self.within_object {
            return Ok(None);
        }
        match self.solid()? {
            None => Ok(None),
            other => Err(unexpected("the end of the file", other)),
        }
    }
}

fn unexpected(expected: &str, found: Option<u8>) -> Flaw {
    let found = match found {
        None => "the end of the file".to_owned(),
        Some(byte) if byte.is_ascii_graphic() => format!("`{}`", char::from(byte)),
        Some(byte) => format!("the byte {byte:#04x}"),
    };
    Flaw::Broken { expected: expected.to_owned(), found }
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        if self.place == Place::Over {
            return None;
        }
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.place = Place::Over;
        }
        step.unwrap_or_else(|flaw| Some(Located { line: self.line, content: Err(flaw) }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Vec<(u64, Result<Value, Flaw>)> {
        Elements::new(text.as_bytes()).map(|record| (record.line, record.content)).collect()
    }

    #[test]
    fn elements_come_with_the_lines_they_start_in() {
        let records = read("[\n {\"a\": \"x],[\\\"\"},\n\n [1, {\"b\": 2}]\n,3 ]\n");
        let expected = [(2, json!({"a": "x],[\""})), (4, json!([1, {"b": 2}])), (5, json!(3))];
        assert_eq!(records, expected.map(|(line, value)| (line, Ok(value))));
        assert_eq!(read(" [ ] "), []);
        assert_eq!(read("  \n"), []);
    }

    #[test]
    fn a_malformed_element_does_not_stop_the_others() {
        let records = read("[{\"a\": 1},\n{\"a\":\n tru},\n{\"a\": 2}]");
        assert_eq!(records.len(), 3);
        assert!(matches!(&records[1], (2, Err(Flaw::Json { line: 3, .. }))), "{records:?}");
        assert_eq!(records[2], (4, Ok(json!({"a": 2}))));
    }

    #[test]
    fn broken_structure_is_named_and_ends_the_stream() {
        let flaw = |text| match read(text).pop() {
            Some((line, Err(Flaw::Broken { expected, found }))) => format!("{line}: {expected} / {found}"),
            other => format!("{other:?}"),
        };
        assert_eq!(flaw("{\"a\": 1}"), "1: a JSON array (`[`) / `{`");
        assert_eq!(flaw("[1,\n2,]"), "2: a record / `]`");
        assert_eq!(flaw("[1,\n"), "2: a record / the end of the file");
        assert_eq!(flaw("[1] x"), "1: the end of the file / `x`");
        let cut = "[1,\n{\"a\": \"b\n";
        assert!(flaw(cut).contains("in the record that starts at line 2"), "{}", flaw(cut));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Elements::new(bytes.as_slice()).count() <= bytes.len() + 1);
        }

        #[test]
        fn brackets_and_quotes_never_panic(text in "[\\[\\]{}\",:\\\\ a1\n]{0,60}") {
            prop_assert!(read(&text).len() <= text.len() + 1);
        }

        #[test]
        fn whole_arrays_read_back(texts in proptest::collection::vec("[\\[\\]{}\",:\\\\a\n]{0,12}", 0..8)) {
            let array: Vec<Value> = texts.iter().map(|text| json!({ "text": text, "list": [text] })).collect();
            for written in [serde_json::to_string(&array), serde_json::to_string_pretty(&array)] {
                let records = read(&written.unwrap());
                let values: Vec<Value> = records.into_iter().map(|(_, value)| value.unwrap()).collect();
                prop_assert_eq!(&values, &array);
            }
        }
    }
}
