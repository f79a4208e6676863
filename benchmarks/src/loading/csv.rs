//! Reads comma-separated values (RFC 4180): the first line names the fields, and every value is a string.

use std::collections::HashSet;
use std::io::{self, BufRead, Chain, Read};

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord};
use serde_json::Value;

use super::{Flaw, Located, MAX_RECORD, too_long};

/// Read after the file, because the parser accepts an open quote at the end: a record, or a part of the last value if
/// its quote is open.
const AFTER_END: &[u8] = b"\n\0";

/// Iterator over the records of a file of comma-separated values.
pub(crate) struct Rows<R> {
    reader: Reader<Chain<Bounded<R>, &'static [u8]>>,
    /// Names of the fields; `None` before the first line.
    header: Option<StringRecord>,
    ended: bool,
}

/// Fails after too many bytes without the end of a record, so that an open quote does not fill the memory. Also finds the
/// lines in which records start: the parser's positions are before the line feed of a preceding CRLF, and before empty
/// lines.
struct Bounded<R> {
    inner: R,
    /// Line of the next byte, counted from 1.
    line: u64,
    /// Line in which the current record starts; `None` before its first byte.
    start: Option<u64>,
    /// Number of bytes that were read.
    read: u64,
    /// Largest number of bytes that may be read.
    most: u64,
}

impl<R: BufRead> Read for Bounded<R> {
    /// Reads either ends of lines or other bytes, so that the first byte of a record is also the first of a call.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.inner.fill_buf()?;
        let available = &available[..available.len().min(buffer.len())];
        let ends_line = |byte: u8| matches!(byte, b'\r' | b'\n');
        let ends_lines = available.first().is_some_and(|byte| ends_line(*byte));
        let count = available.iter().take_while(|byte| ends_line(**byte) == ends_lines).count();
        buffer[..count].copy_from_slice(&available[..count]);
        if ends_lines {
            self.line += buffer[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
        } else if count > 0 {
            self.start = self.start.or(Some(self.line));
        }
        self.inner.consume(count);
        self.read += count as u64;
        if self.read > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(count)
    }
}

impl<R: BufRead> Rows<R> {
    pub(crate) fn new(inner: R) -> Self {
        let file = Bounded { inner, line: 1, start: None, read: 0, most: MAX_RECORD }.chain(AFTER_END);
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
        Self { reader, header: None, ended: false }
    }

    /// Reads the next record and the line in which it starts. `None` at the end of the file.
    fn row(&mut self) -> Option<(u64, Result<StringRecord, Flaw>)> {
        let (file, _) = self.reader.get_mut().get_mut();
        file.most = file.read + MAX_RECORD;
        file.start = None;
        let mut row = StringRecord::new();
        let read = self.reader.read_record(&mut row);
        let (file, _) = self.reader.get_ref().get_ref();
        let line = file.start.unwrap_or(file.line);
        let is_after_end = self.reader.position().byte() == file.read + AFTER_END.len() as u64;
        match read {
            Ok(false) => None,
            Ok(true) if is_after_end && row.iter().eq(["\0"]) => None,
            _ if is_after_end => {
                self.ended = true;
                let expected = "a closing quote".to_owned();
                let found = format!("the end of the file in the record that starts at line {line}");
                Some((line, Err(Flaw::Broken { expected, found })))
            }
            Ok(true) => Some((line, Ok(row))),
            Err(error) => {
                let flaw = match error.into_kind() {
                    ErrorKind::Io(error) => {
                        self.ended = true;
                        match error.kind() {
                            io::ErrorKind::FileTooLarge => too_long(MAX_RECORD),
                            _ => Flaw::Unreadable(error.to_string()),
                        }
                    }
                    ErrorKind::Utf8 { .. } => flaw(line, "UTF-8", "other bytes"),
                    _ => flaw(line, "comma-separated values", "another format"),
                };
                Some((line, Err(flaw)))
            }
        }
    }
}

fn flaw(line: u64, expected: impl Into<String>, found: impl Into<String>) -> Flaw {
    Flaw::Row { line, expected: expected.into(), found: found.into() }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        if self.ended {
            return None;
        }
        if self.header.is_none() {
            match self.row()? {
                (line, Ok(header)) => {
                    let mut names = HashSet::new();
                    if let Some(name) = header.iter().map(str::trim).find(|name| !names.insert(*name)) {
                        self.ended = true;
                        let expected = "different names of fields in the first line".to_owned();
                        let content = Err(Flaw::Broken { expected, found: format!("`{name}` twice") });
                        return Some(Located { line, content });
                    }
                    self.header = Some(header);
                }
                (line, Err(flaw)) => {
                    self.ended = true;
                    return Some(Located { line, content: Err(flaw) });
                }
            }
        }
        let (line, row) = self.row()?;
        let content = row.and_then(|row| {
            let header = self.header.as_ref().into_iter().flatten();
            let expected = self.header.as_ref().map_or(0, StringRecord::len);
            if row.len() != expected {
                let expected = format!("{expected} values, as in the first line");
                return Err(flaw(line, expected, row.len().to_string()));
            }
            let value = |(name, value): (&str, &str)| (name.trim().to_owned(), Value::from(value));
            Ok(Value::Object(header.zip(&row).map(value).collect()))
        });
        Some(Located { line, content })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_carry_their_lines_and_bad_ones_do_not_stop_the_rest() {
        let text = b"question,answer\n\"Two, or\nthree?\",2\nshort\nlong,1,2\n\xff,1\nlast,\"a \"\"b\"\"\"\n";
        let rows: Vec<Located> = Rows::new(&text[..]).collect();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4, 5, 6, 7]);
        assert_eq!(rows[0].content, Ok(json!({"question": "Two, or\nthree?", "answer": "2"})));
        assert_eq!(rows[1].content, Err(flaw(4, "2 values, as in the first line", "1")));
        assert_eq!(rows[3].content, Err(flaw(6, "UTF-8", "other bytes")));
        assert_eq!(rows[4].content, Ok(json!({"question": "last", "answer": "a \"b\""})));
    }

    #[test]
    fn records_start_in_the_line_of_their_first_byte_for_every_line_ending() {
        fn lines(file: impl BufRead) -> Vec<u64> {
            Rows::new(file).map(|row| row.line).collect()
        }
        let expected: [u64; 5] = [2, 5, 8, 9, 10];
        let text = "q,a\n\"Two, or\n\nthree?\",2\nshort\n\n\nlong,1,2\n\"\",1\nB?,\"\n2";
        for end in ["\n", "\r\n"] {
            let text = text.replace('\n', end);
            assert_eq!(lines(text.as_bytes()), expected, "{text:?}");
            // Ends of lines are also read in two parts.
            for size in 1..6 {
                let parts = io::BufReader::with_capacity(size, text.as_bytes());
                assert_eq!(lines(parts), expected, "{text:?} {size}");
            }
            let mut rows = Rows::new(text.as_bytes());
            let question = format!("Two, or{end}{end}three?");
            assert_eq!(rows.next().unwrap().content, Ok(json!({"q": question, "a": "2"})));
            assert_eq!(rows.next().unwrap().content, Err(flaw(5, "2 values, as in the first line", "1")));
        }
        let rows: Vec<Located> = Rows::new(&b"q\r\na\r\n\xff\r\n"[..]).collect();
        assert_eq!((rows[1].line, &rows[1].content), (3, &Err(flaw(3, "UTF-8", "other bytes"))));
    }

    #[test]
    fn an_open_quote_at_the_end_is_an_error() {
        let open = |line: u64| Flaw::Broken {
            expected: "a closing quote".to_owned(),
            found: format!("the end of the file in the record that starts at line {line}"),
        };
        // One that also hides records, cut files, and one with bytes that are not UTF-8.
        for text in [
            &b"q,a\nA?,1\nB?,\"42\nC?,17\nD?,3\n"[..],
            b"q,a\nA?,1\nB?,\"4",
            b"q,a\nA?,1\nB?,\"",
            b"q,a\nA?,1\n\"B?,2\r\n",
            b"q,a\nA?,1\nB?,\"\"\"4\"\"",
            b"q,a\nA?,1\nB?,\"\xff\n",
        ] {
            let mut rows = Rows::new(text);
            assert_eq!(rows.next().unwrap().content, Ok(json!({"q": "A?", "a": "1"})));
            let last = rows.next().unwrap();
            assert_eq!((last.line, last.content), (3, Err(open(3))), "{text:?}");
            assert!(rows.next().is_none());
        }
        let mut rows = Rows::new(&b"q,\"a\n"[..]);
        assert_eq!(rows.next().unwrap().content, Err(open(1)));
        assert!(rows.next().is_none());
    }

    #[test]
    fn nothing_is_read_after_the_end_of_the_file() {
        let read = |text: &[u8]| -> Vec<Value> { Rows::new(text).map(|row| row.content.unwrap()).collect() };
        for end in ["", "\n", "\r\n", "\r", "\n\n\n", "\r\n\r\n"] {
            for (text, expected) in [
                ("q,a\nA?,1", json!({"q": "A?", "a": "1"})),
                ("q,a\r\nA?,\"1\"", json!({"q": "A?", "a": "1"})),
                ("q,a\nA?,", json!({"q": "A?", "a": ""})),
                ("q\nA?", json!({"q": "A?"})),
                ("q\n\0", json!({"q": "\0"})),
                ("q\n\"A?\n\0\"", json!({"q": "A?\n\0"})),
            ] {
                assert_eq!(read(format!("{text}{end}").as_bytes()), [expected], "{text:?} {end:?}");
            }
            assert_eq!(read(format!("q,a{end}").as_bytes()), [] as [Value; 0]);
            assert_eq!(read(end.as_bytes()), [] as [Value; 0]);
        }
        assert_eq!(read(b"\xef\xbb\xbfq\n1\n"), [json!({"q": "1"})]);
        let mut rows = Rows::new(&b"q\n1\n"[..]);
        assert_eq!((rows.next().is_some(), rows.next().is_none(), rows.next().is_none()), (true, true, true));
    }

    #[test]
    fn names_of_fields_differ() {
        let mut rows = Rows::new(&b"question,answer, question\na,1,b\n"[..]);
        let Some(Located { line: 1, content: Err(Flaw::Broken { found, .. }) }) = rows.next() else {
            panic!()
        };
        assert_eq!(found, "`question` twice");
        assert!(rows.next().is_none());
    }

    #[test]
    fn an_open_quote_does_not_fill_the_memory() {
        let endless = io::BufReader::new(b"a\n\"".chain(io::repeat(b'x')));
        let mut rows = Rows::new(endless);
        assert_eq!(rows.next().unwrap().content, Err(too_long(MAX_RECORD)));
        assert!(rows.next().is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let rows = Rows::new(bytes.as_slice()).count();
            prop_assert!(rows <= bytes.len());
        }
    }
}
