//! Reads JSON lines: one record per line, split at `\n` only.

use std::io::{BufRead, ErrorKind};

use lumos_environments::lines::LineReader;

use super::{Flaw, Located, MAX_RECORD, parse, too_long};

/// Iterator over the records of a JSON lines file. Skips blank lines.
pub(crate) struct Lines<R> {
    lines: LineReader<R>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        LineReader::new(reader).into()
    }
}

impl<R> From<LineReader<R>> for Lines<R> {
    fn from(lines: LineReader<R>) -> Self {
        Self { lines }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        loop {
            let (line, text) = self.lines.next_bytes()?;
            let content = match text {
                Ok(text) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(text) => parse(&text, line),
                Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(too_long(MAX_RECORD)),
                Err(error) => Err(Flaw::Unreadable(error.to_string())),
            };
            return Some(Located { line, content });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_carry_their_lines_and_bad_ones_do_not_stop_the_rest() {
        let text = "{\"a\": 1}\n\n{\"a\": \n{\"a\": \"\u{2028}\"}\r\n3";
        let records: Vec<Located> = Lines::new(text.as_bytes()).collect();
        let lines: Vec<_> = records.iter().map(|record| (record.line, record.content.is_ok())).collect();
        assert_eq!(lines, [(1, true), (3, false), (4, true), (5, true)]);
        assert_eq!(
            records[1].content,
            Err(Flaw::Json {
                line: 3,
                found: "invalid JSON (EOF while parsing a value, column 5)".to_owned()
            })
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let records = Lines::new(bytes.as_slice()).count();
            prop_assert!(records <= bytes.iter().filter(|byte| **byte == b'\n').count() + 1);
        }
    }
}
