//! Walks over structures in Thrift's compact protocol, in which Parquet describes a file, without keeping them.
//!
//! `limits` checks a file this way before the library allocates memory for what the file announces
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).

use std::io::{self, Error, ErrorKind, Read};

/// Maximum nesting of skipped structures.
const DEEPEST: u8 = 32;

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(nibble: u8) -> io::Result<Self> {
        Ok(match nibble & 0x0f {
            1 | 2 => Self::Boolean,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(invalid("unknown type of a value")),
        })
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

/// Reads values one after another. Memory does not depend on what is read.
pub(super) struct Walker<R> {
    reader: R,
    length: u64,
}

impl<R: Read> Walker<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, length: 0 }
    }

    /// Number of bytes read.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte)?;
        self.length += 1;
        Ok(byte[0])
    }

    fn unsigned(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid("integer of more than 64 bits"))
    }

    /// Reads an integer.
    pub(super) fn integer(&mut self) -> io::Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// Reads the start of a list: the type and the number of its elements.
    pub(super) fn list(&mut self) -> io::Result<(Kind, u64)> {
        let start = self.byte()?;
        let count = match start >> 4 {
            15 => self.unsigned()?,
            count => u64::from(count),
        };
        // The type of an empty list does not matter.
        Ok((if count == 0 { Kind::Byte } else { Kind::of(start)? }, count))
    }

    /// Reads a structure. `visit` receives the number and the type of each field, and returns whether it read the
    /// value; other values are skipped.
    pub(super) fn fields(
        &mut self,
        visit: impl FnMut(&mut Self, i64, Kind) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.fields_at(DEEPEST, visit)
    }

    fn fields_at(
        &mut self,
        depth: u8,
        mut visit: impl FnMut(&mut Self, i64, Kind) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut number = 0i64;
        loop {
            let start = self.byte()?;
            if start == 0 {
                return Ok(());
            }
            number = match start >> 4 {
                0 => self.integer()?,
                step => number.wrapping_add(i64::from(step)),
            };
            let kind = Kind::of(start)?;
            if !visit(self, number, kind)? && kind != Kind::Boolean {
                self.skip(kind, depth)?;
            }
        }
    }

    fn skip(&mut self, kind: Kind, depth: u8) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or_else(|| invalid("structures are nested too deeply"))?;
        match kind {
            // Within a list or map, where it has a byte of its own.
            Kind::Boolean | Kind::Byte => self.skip_bytes(1),
            Kind::Integer => self.unsigned().map(drop),
            Kind::Double => self.skip_bytes(8),
            Kind::Uuid => self.skip_bytes(16),
            Kind::Binary => {
                let length = self.unsigned()?;
                self.skip_bytes(length)
            }
            Kind::List => {
                let (kind, count) = self.list()?;
                // Every element has at least one byte, so the length of the input bounds the loop.
                (0..count).try_for_each(|_| self.skip(kind, depth))
            }
            Kind::Map => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds)?);
                (0..count).try_for_each(|_| {
                    self.skip(key, depth)?;
                    self.skip(value, depth)
                })
            }
            Kind::Struct => self.fields_at(depth, |_, _, _| Ok(false)),
        }
    }

    fn skip_bytes(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.reader.by_ref().take(count), &mut io::sink())?;
        self.length += skipped;
        if skipped == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A structure with an integer, a skipped list of structures, a skipped text, a truth value and a far field.
    const BYTES: [u8; 19] = [
        0x15, 0x03, 0x19, 0x2c, 0x15, 0x02, 0x00, 0x00, 0x18, 0x02, b'h', b'i', 0x11, 0x06, 0x80, 0x02, 0x80,
        0x01, 0,
    ];

    #[test]
    fn fields_are_visited_and_others_are_skipped() {
        let mut walker = Walker::new(&BYTES[..]);
        let mut seen = Vec::new();
        let read = walker.fields(|walker, number, kind| {
            let value = if kind == Kind::Integer { Some(walker.integer()?) } else { None };
            seen.push((number, value));
            Ok(value.is_some())
        });
        read.unwrap();
        assert_eq!(seen, [(1, Some(-2)), (2, None), (3, None), (4, None), (128, Some(64))]);
        assert_eq!(walker.length(), BYTES.len() as u64);
    }

    #[test]
    fn nesting_and_ends_are_checked() {
        let walk = |bytes: &[u8]| Walker::new(bytes).fields(|_, _, _| Ok(false)).unwrap_err().to_string();
        assert_eq!(walk(&[0x1c; 100]), "structures are nested too deeply");
        // A text of 2^62 bytes in a short input.
        let long = [0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, b'x'];
        assert_eq!(
            Walker::new(&long[..]).fields(|_, _, _| Ok(false)).unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
        assert_eq!(walk(&[0x1e]), "unknown type of a value");
        assert_eq!(
            walk(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "integer of more than 64 bits"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut walker = Walker::new(bytes.as_slice());
            let _ = walker.fields(|_, _, _| Ok(false));
            prop_assert!(walker.length() <= bytes.len() as u64);
        }
    }
}
