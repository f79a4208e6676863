//! Reads line-based files (recorded cases, scripts, corpora, catalogues, data sets), compressed or not,
//! within limits.
//!
//! Such files may come from untrusted sources, and a few megabytes of gzip can expand to gigabytes.
//! [`open`] decompresses gzip and stops if the output is too large for the file; [`LineReader`] returns lines and stops
//! at one that is too long.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Maximum length of a line in bytes.
pub const LONGEST_LINE: u64 = 64 << 20;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Limits on the expansion of a compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExpansionLimits {
    /// Size in bytes that any file may expand to.
    free_bytes: u64,
    /// Additional bytes per compressed byte. Recorded cases compress to at least a twentieth of their size.
    ratio: u64,
}

impl Default for ExpansionLimits {
    /// 256 MiB, and 32 bytes per compressed byte.
    fn default() -> Self {
        Self { free_bytes: 256 << 20, ratio: 32 }
    }
}

/// The contents of a file, decompressed if its first bytes are those of gzip. `length` is the file's size in
/// bytes.
///
/// # Errors
/// Fails if the first bytes cannot be read. Reading fails with [`io::ErrorKind::InvalidData`] if a compressed
/// file is corrupt or exceeds the limits.
fn unpacked(
    file: impl Read + Send + 'static,
    length: u64,
    limits: ExpansionLimits,
) -> io::Result<Box<dyn BufRead + Send>> {
    let mut reader = BufReader::new(file);
    if !reader.fill_buf()?.starts_with(&GZIP) {
        return Ok(Box::new(reader));
    }
    let most = limits.free_bytes.saturating_add(limits.ratio.saturating_mul(length));
    let reader = Expanding { reader: MultiGzDecoder::new(reader), length, most, left: most };
    Ok(Box::new(BufReader::new(reader)))
}

/// Reads the non-blank lines of a file with their numbers. The file may be compressed.
///
/// # Errors
/// If the file cannot be opened. A line that is too long, or a file that expands to too much data, is an error in the
/// stream.
pub fn open(path: &Path) -> io::Result<LineReader<Box<dyn BufRead + Send>>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok(LineReader::new(unpacked(file, length, ExpansionLimits::default())?))
}

/// A reader that fails after a number of bytes.
struct Expanding<R> {
    reader: R,
    length: u64,
    most: u64,
    left: u64,
}

impl<R: Read> Read for Expanding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let Self { length, most, .. } = self;
            invalid(format!(
                "{length} compressed bytes expand to more than {most} bytes; hint: decompress the file first \
                 if it is trusted"
            ))
        })?;
        Ok(read)
    }
}

/// The lines of a text, split on `\n` only.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    line: u64,
    longest: u64,
    over: bool,
}

impl<R: BufRead> LineReader<R> {
    /// Reads lines of at most [`LONGEST_LINE`] bytes.
    pub fn new(reader: R) -> Self {
        Self { reader, line: 0, longest: LONGEST_LINE, over: false }
    }

    /// The next line with its number, counted from 1, including its line end if it has one. `None` at the end
    /// and after an error.
    ///
    /// # Errors
    /// Fails if the text cannot be read, or with [`io::ErrorKind::FileTooLarge`] if the line is too long.
    pub fn next_bytes(&mut self) -> Option<(u64, io::Result<Vec<u8>>)> {
        if self.over {
            return None;
        }
        let mut bytes = Vec::new();
        self.line += 1;
        let read = self.reader.by_ref().take(self.longest + 1).read_until(b'\n', &mut bytes);
        let line = match read {
            Ok(0) => None,
            Ok(length) if length as u64 > self.longest => {
                let reason = format!("longer than {} bytes", self.longest);
                Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, reason)))
            }
            Ok(_) => Some(Ok(bytes)),
            Err(error) => Some(Err(error)),
        };
        self.over = !matches!(line, Some(Ok(_)));
        line.map(|line| (self.line, line))
    }
}

/// Lines with their numbers as text, without line ends; blank lines are skipped. Errors name the line.
impl<R: BufRead> Iterator for LineReader<R> {
    type Item = io::Result<(u64, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (number, bytes) = self.next_bytes()?;
            let named =
                |error: &dyn std::fmt::Display, kind| io::Error::new(kind, format!("line {number}: {error}"));
            let text = match bytes.map(String::from_utf8) {
                Ok(Ok(text)) => text,
                Ok(Err(_)) => return Some(Err(named(&"invalid UTF-8", io::ErrorKind::InvalidData))),
                Err(error) => return Some(Err(named(&error, error.kind()))),
            };
            if !text.trim().is_empty() {
                let text =
                    text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text));
                return Some(Ok((number, text.to_owned())));
            }
        }
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    }

    fn lines(bytes: Vec<u8>, limits: ExpansionLimits) -> Vec<Result<(u64, String), String>> {
        let length = bytes.len() as u64;
        let reader = unpacked(io::Cursor::new(bytes), length, limits).unwrap();
        LineReader::new(reader).map(|line| line.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn lines_are_the_same_compressed_and_not() {
        let text = "a\r\n\n b\u{2028}c \n\t\nd";
        let expected = [Ok((1, "a".to_owned())), Ok((3, " b\u{2028}c ".to_owned())), Ok((5, "d".to_owned()))];
        assert_eq!(lines(text.into(), ExpansionLimits::default()), expected);
        assert_eq!(lines(packed(text.as_bytes()), ExpansionLimits::default()), expected);
        // Several gzip members, one after the other.
        let members = [packed(b"a\r\n\n b\xe2\x80\xa8c \n"), packed(b"\t\nd")].concat();
        assert_eq!(lines(members, ExpansionLimits::default()), expected);
    }

    #[test]
    fn a_compressed_file_does_not_expand_beyond_its_limit() {
        let text = "a\n".repeat(500_000);
        let bytes = packed(text.as_bytes());
        let limits = ExpansionLimits { free_bytes: 1_000, ratio: 2 };
        let found = lines(bytes.clone(), limits);
        let error = found.last().unwrap().as_ref().unwrap_err();
        assert!(found.len() < 10_000 && error.contains("expand to more than"), "{error}");
        assert_eq!(lines(bytes, ExpansionLimits { free_bytes: 1_000_000, ratio: 0 }).len(), 500_000);
        // The limits do not apply to uncompressed files.
        assert_eq!(lines(text.into(), limits).len(), 500_000);
    }

    #[test]
    fn a_line_that_is_too_long_ends_the_file() {
        let mut reader = LineReader { longest: 10, ..LineReader::new(&b"0123456789\n0123456789\n"[..]) };
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "line 1: longer than 10 bytes");
        assert!(reader.next().is_none());
        let mut reader = LineReader { longest: 11, ..LineReader::new(&b"0123456789\n\xff\n"[..]) };
        assert_eq!(reader.next().unwrap().unwrap(), (1, "0123456789".to_owned()));
        assert_eq!(reader.next().unwrap().unwrap_err().to_string(), "line 2: invalid UTF-8");
    }

    /// Four gigabytes of blanks without a line end, in four megabytes.
    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_line() {
        let blanks = io::repeat(b' ').take(4 << 30);
        let error = LineReader::new(BufReader::new(blanks)).next().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
