//! Follows a pickle with the size of each value only ([`check`]), to reject what would take candle much memory or
//! stack: candle copies a value into the memo and out of it, and copies and drops nested values recursively.

use std::collections::HashMap;

use candle_core::pickle::OpCode;

/// Largest number of values that a pickle creates, including copies into and out of the memo. `torch.save` writes about
/// 100 for a tensor. A value takes about 50 bytes.
const MOST_VALUES: u64 = 2 << 20;
/// Bytes of text that count as a further value.
const TEXT_BYTES: usize = 16;
/// Deepest nesting of values. A state dict has a depth of about ten.
const DEEPEST: u32 = 64;

const ENDS_EARLY: &str = "its pickle ends early";
const LACKS_VALUES: &str = "its pickle takes more values from the stack than there are";

/// Checks a pickle before candle interprets it.
///
/// # Errors
/// Describes why it is rejected. Candle may still reject a pickle that passes.
pub(super) fn check(pickle: &[u8]) -> Result<(), String> {
    let mut scan = Scan { rest: pickle, stack: Vec::new(), memo: HashMap::new(), created: 0 };
    loop {
        let [code] = scan.array()?;
        match OpCode::try_from(code) {
            Ok(OpCode::Stop) => return Ok(()),
            Ok(opcode) => scan.step(&opcode)?,
            Err(code) => return Err(format!("its pickle has the unsupported opcode {code:#04x}")),
        }
    }
}

/// The size of a value.
#[derive(Clone, Copy)]
struct Extent {
    /// The value itself and all values in it.
    values: u64,
    depth: u32,
    /// Whether it marks the start of a list of values on the stack.
    is_mark: bool,
}

impl Extent {
    const LEAF: Self = Self { values: 1, depth: 1, is_mark: false };

    /// The size of a value with these parts.
    fn containing(parts: &[Self]) -> Self {
        let values = parts.iter().map(|part| part.values).sum::<u64>();
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or_default();
        Self { values: values + 1, depth: depth + 1, is_mark: false }
    }
}

/// The state of candle's interpreter, in sizes. Where an opcode's result depends on types, the larger one is used.
struct Scan<'a> {
    rest: &'a [u8],
    stack: Vec<Extent>,
    memo: HashMap<u32, Extent>,
    /// Values created so far.
    created: u64,
}

impl Scan<'_> {
    fn step(&mut self, opcode: &OpCode) -> Result<(), String> {
        match opcode {
            OpCode::Stop => Ok(()),
            OpCode::Proto => self.skip(1),
            OpCode::Global => {
                let length = self.line()? + self.line()?;
                self.text(length)
            }
            OpCode::BinUnicode => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                self.skip(length)?;
                self.text(length)
            }
            OpCode::BinInt1 => self.leaf(1),
            OpCode::BinInt2 => self.leaf(2),
            OpCode::BinInt => self.leaf(4),
            OpCode::BinFloat => self.leaf(8),
            OpCode::Long1 => match self.array()? {
                [length @ 0..=8] => self.leaf(usize::from(length)),
                [length] => Err(format!("its pickle has an integer of {length} bytes")),
            },
            OpCode::NewTrue
            | OpCode::NewFalse
            | OpCode::None
            | OpCode::EmptyTuple
            | OpCode::EmptyList
            | OpCode::EmptyDict => self.leaf(0),
            OpCode::Mark => self.push(Extent { is_mark: true, ..Extent::LEAF }, 1),
            OpCode::Tuple1 | OpCode::BinPersId => self.wrap(1),
            OpCode::Tuple2 | OpCode::Reduce | OpCode::NewObj | OpCode::Build => self.wrap(2),
            OpCode::Tuple3 => self.wrap(3),
            OpCode::Tuple | OpCode::Dict => {
                let count = self.unmark()?;
                self.wrap(count)
            }
            OpCode::Append => self.add(1),
            OpCode::SetItem => self.add(2),
            OpCode::Appends | OpCode::SetItems => {
                let count = self.unmark()?;
                self.add(count)
            }
            OpCode::BinPut => {
                let [id] = self.array()?;
                self.put(id.into())
            }
            OpCode::LongBinPut => {
                let id = u32::from_le_bytes(self.array()?);
                self.put(id)
            }
            OpCode::BinGet => {
                let [id] = self.array()?;
                self.get(id.into())
            }
            OpCode::LongBinGet => {
                let id = u32::from_le_bytes(self.array()?);
                self.get(id)
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn skip(&mut self, length: usize) -> Result<(), String> {
        self.rest = self.rest.get(length..).ok_or(ENDS_EARLY)?;
        Ok(())
    }

    /// Skips a line and returns its length.
    fn line(&mut self) -> Result<usize, String> {
        let length = self.rest.iter().position(|byte| *byte == b'\n').ok_or(ENDS_EARLY)?;
        self.skip(length + 1)?;
        Ok(length)
    }

    fn count(&mut self, created: u64) -> Result<(), String> {
        self.created += created;
        if self.created > MOST_VALUES {
            return Err(format!("its pickle creates more than {MOST_VALUES} values"));
        }
        Ok(())
    }

    fn push(&mut self, value: Extent, created: u64) -> Result<(), String> {
        self.count(created)?;
        if value.depth > DEEPEST {
            return Err(format!("its pickle nests values more than {DEEPEST} deep"));
        }
        self.stack.push(value);
        Ok(())
    }

    /// Pushes a value that follows in some bytes.
    fn leaf(&mut self, bytes: usize) -> Result<(), String> {
        self.skip(bytes)?;
        self.push(Extent::LEAF, 1)
    }

    fn text(&mut self, length: usize) -> Result<(), String> {
        let values = 1 + (length / TEXT_BYTES) as u64;
        self.push(Extent { values, ..Extent::LEAF }, values)
    }

    /// Removes the last mark, and returns the number of values after it.
    fn unmark(&mut self) -> Result<usize, String> {
        let mark = self.stack.iter().rposition(|value| value.is_mark).ok_or("its pickle lacks a mark")?;
        self.stack.remove(mark);
        Ok(self.stack.len() - mark)
    }

    /// Replaces the last values by one with them as parts.
    fn wrap(&mut self, count: usize) -> Result<(), String> {
        let start = self.stack.len().checked_sub(count).ok_or(LACKS_VALUES)?;
        let value = Extent::containing(&self.stack[start..]);
        self.stack.truncate(start);
        self.push(value, 1)
    }

    /// Moves the last values into the one before them.
    fn add(&mut self, count: usize) -> Result<(), String> {
        let start = self.stack.len().checked_sub(count + 1).ok_or(LACKS_VALUES)?;
        let (container, parts) = (self.stack[start], Extent::containing(&self.stack[start + 1..]));
        let values = container.values + parts.values - 1;
        let value = Extent { values, depth: container.depth.max(parts.depth), is_mark: false };
        self.stack.truncate(start);
        self.push(value, 0)
    }

    /// Copies the last value into the memo.
    fn put(&mut self, id: u32) -> Result<(), String> {
        let value = *self.stack.last().ok_or(LACKS_VALUES)?;
        self.count(value.values)?;
        self.memo.insert(id, value);
        Ok(())
    }

    /// Copies a value out of the memo.
    fn get(&mut self, id: u32) -> Result<(), String> {
        let value = *self.memo.get(&id).ok_or_else(|| format!("its pickle lacks the memo entry {id}"))?;
        self.push(value, value.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(pickle: &[u8], word: &str) {
        let reason = check(pickle).unwrap_err();
        assert!(reason.contains(word), "{reason}");
    }

    #[test]
    fn copies_through_the_memo_are_counted() {
        // A pair of the previous pair, 64 times.
        let doubled = b"h\0h\0\x86q\0".repeat(64);
        rejected(&[&b"\x80\x02K\x01q\0"[..], &doubled[..], b"."].concat(), "more than 2097152 values");
        let few = b"h\0h\0\x86q\0".repeat(10);
        check(&[&b"\x80\x02K\x01q\0"[..], &few[..], b"."].concat()).unwrap();
        // A text of 1 MiB, 256 times.
        let (text, copies) = (vec![b'a'; 1 << 20], b"h\0".repeat(255));
        let long = [&b"X\0\0\x10\0"[..], &text[..], b"q\0", &copies[..], b"."].concat();
        rejected(&long, "more than 2097152 values");
        // A list, to which a copy of it is appended.
        let grown = b"j\x07\0\0\0j\x07\0\0\0ar\x07\0\0\0".repeat(64);
        rejected(&[&b"]r\x07\0\0\0"[..], &grown[..], b"."].concat(), "more than 2097152 values");
    }

    #[test]
    fn values_are_nested_up_to_a_limit() {
        for opcode in [b"\x85".as_slice(), b"Q", b"N\x86", b"(\x86", b"NN\x87", b"NR", b"N\x81", b"Nb"] {
            let nested = |times| [&b"\x80\x02N"[..], &opcode.repeat(times)[..], b"."].concat();
            rejected(&nested(100_000), "64 deep");
            check(&nested(63)).unwrap();
        }
        for (start, end) in [(b"]", b"a"), (b"(", b"t")] {
            let nested = [&start.repeat(100_000)[..], &end.repeat(99_999)[..], b"."].concat();
            rejected(&nested, "64 deep");
        }
    }

    #[test]
    fn damage_is_described() {
        for (pickle, word) in [
            (&b""[..], "ends early"),
            (b"N", "ends early"),
            (b"X\xff\xff\xff\xffabc.", "ends early"),
            (b"ctorch", "ends early"),
            (b"G\0.", "ends early"),
            (b"\x8a\x09123456789.", "integer of 9 bytes"),
            (b"\x93.", "opcode 0x93"),
            (b"N\x86.", "more values"),
            (b"a.", "more values"),
            (b"Nu.", "mark"),
            (b"h\0.", "memo entry 0"),
            (b"q\0.", "more values"),
        ] {
            rejected(pickle, word);
        }
        check(b"\x8a\x0812345678.").unwrap();
    }
}
