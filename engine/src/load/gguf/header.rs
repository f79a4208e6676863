//! Checks the metadata of a GGUF file before candle reads it ([`check`]): candle keeps every element of an array as a
//! separate value, many times as large as a byte in the file, and divides by the alignment.

/// Largest number of elements in all arrays together. A vocabulary has three arrays, and one for its merges.
const MOST_ELEMENTS: u64 = 4 << 20;
/// Deepest nesting of arrays that candle reads.
const DEEPEST: usize = 64;
const ALIGNMENT: &[u8] = b"general.alignment";
/// Numbers of types in the format.
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Checks the metadata.
///
/// # Errors
/// Describes the problem. What candle cannot read, such as a truncated file, passes: candle describes it.
pub(super) fn check(head: &[u8]) -> Result<(), String> {
    let mut scan = Scan { rest: head, has_wide_lengths: true, elements: 0, alignment_is_zero: false };
    let _complete = scan.metadata();
    if scan.elements > MOST_ELEMENTS {
        return Err(format!("the arrays of its metadata have more than {MOST_ELEMENTS} elements"));
    }
    if scan.alignment_is_zero {
        return Err("general.alignment is 0".to_owned());
    }
    Ok(())
}

struct Scan<'a> {
    rest: &'a [u8],
    /// Whether lengths have eight bytes, as in all versions but the first.
    has_wide_lengths: bool,
    elements: u64,
    alignment_is_zero: bool,
}

/// The methods return `None` only where candle fails too, and if there are too many elements.
impl<'a> Scan<'a> {
    fn metadata(&mut self) -> Option<()> {
        self.take(4)?;
        self.has_wide_lengths = match self.number()? {
            1 => false,
            2 | 3 => true,
            _ => return None,
        };
        let _tensors = self.length()?;
        for _ in 0..self.length()? {
            let key = self.string()?;
            let kind = self.number()?;
            let start = self.rest;
            self.value(kind, 0)?;
            let value = &start[..start.len() - self.rest.len()];
            let are_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            // Candle removes zeros from the end of a key. Types 0 to 5 are integers.
            let is_alignment = kind <= 5 && key.strip_prefix(ALIGNMENT).is_some_and(are_zero);
            self.alignment_is_zero |= is_alignment && are_zero(value);
        }
        Some(())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Option<()> {
        match kind {
            STRING => self.string().map(drop),
            ARRAY if depth <= DEEPEST => self.array(depth),
            _ => self.take(size(kind)?).map(drop),
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let (kind, length) = (self.number()?, self.length()?);
        if let Some(size) = size(kind) {
            self.take(usize::try_from(length).ok()?.checked_mul(size)?)?;
            return self.count(length);
        }
        for _ in 0..length {
            self.count(1)?;
            self.value(kind, depth + 1)?;
        }
        Some(())
    }

    fn count(&mut self, elements: u64) -> Option<()> {
        self.elements = self.elements.saturating_add(elements);
        (self.elements <= MOST_ELEMENTS).then_some(())
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn length(&mut self) -> Option<u64> {
        if self.has_wide_lengths {
            self.take(8)?.try_into().ok().map(u64::from_le_bytes)
        } else {
            self.number().map(u64::from)
        }
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(usize::try_from(length).ok()?)
    }
}

/// Bytes of a number or a boolean of a type.
fn size(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U8: u32 = 0;
    const BOOL: u32 = 7;

    /// Metadata of the given version: keys, types and values.
    fn head(version: u32, entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut head = [&b"GGUF"[..], &version.to_le_bytes()].concat();
        head.extend(length(version, 0));
        head.extend(length(version, entries.len()));
        for (key, kind, value) in entries {
            head.extend(length(version, key.len()));
            head.extend(key.as_bytes());
            head.extend(kind.to_le_bytes());
            head.extend(*value);
        }
        head
    }

    fn length(version: u32, length: usize) -> Vec<u8> {
        let length = length as u64;
        if version == 1 { (length as u32).to_le_bytes().to_vec() } else { length.to_le_bytes().to_vec() }
    }

    fn array(version: u32, kind: u32, count: usize, elements: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &length(version, count)[..], elements].concat()
    }

    #[test]
    fn arrays_have_a_limited_number_of_elements() {
        let most = MOST_ELEMENTS as usize;
        for version in [1, 2, 3] {
            let flat = |kind, count| array(version, kind, count, &vec![0; count]);
            let (half, more) = (flat(BOOL, most / 2), flat(U8, most / 2 + 1));
            check(&head(version, &[("a", ARRAY, &half), ("b", ARRAY, &half)])).unwrap();
            let too_many = head(version, &[("a", ARRAY, &half), ("x", U8, &[1]), ("b", ARRAY, &more)]);
            let error = check(&too_many).unwrap_err();
            assert!(error.contains("more than 4194304 elements"), "{error}");
            // An array of arrays, after one of strings.
            let text = [&length(version, 3)[..], b"abc"].concat();
            let texts = array(version, STRING, 2, &text.repeat(2));
            let nested = array(version, ARRAY, 2, &half.repeat(2));
            assert!(check(&head(version, &[("a", ARRAY, &texts), ("b", ARRAY, &nested)])).is_err());
            // Candle rejects what ends early.
            check(&too_many[..too_many.len() - 1]).unwrap();
        }
    }

    #[test]
    fn arrays_are_followed_as_deep_as_candle_reads_them() {
        let most = MOST_ELEMENTS as usize;
        let too_many = array(3, U8, most + 1, &vec![0; most + 1]);
        let nested = |times| [&array(3, ARRAY, 1, &[]).repeat(times)[..], &array(3, U8, 0, &[])[..]].concat();
        assert!(check(&head(3, &[("a", ARRAY, &nested(DEEPEST)), ("b", ARRAY, &too_many)])).is_err());
        // Candle rejects the first array.
        check(&head(3, &[("a", ARRAY, &nested(100_000)), ("b", ARRAY, &too_many)])).unwrap();
    }

    #[test]
    fn an_alignment_of_zero_is_found_behind_other_entries() {
        let texts = array(3, STRING, 1, &[&length(3, 1)[..], b"a"].concat());
        for (key, kind, value) in [
            ("general.alignment", 0, &[0][..]),
            ("general.alignment", 3, &[0; 2]),
            ("general.alignment\0", 4, &[0; 4]),
        ] {
            let zero = head(3, &[("a", ARRAY, &texts), (key, kind, value), ("b", U8, &[1])]);
            assert_eq!(check(&zero).unwrap_err(), "general.alignment is 0");
        }
        for (key, kind, value) in [
            ("general.alignment", 4, &[32, 0, 0, 0][..]),
            ("general.alignment", BOOL, &[0]),
            ("general.alignments", 0, &[0]),
        ] {
            check(&head(3, &[("a", ARRAY, &texts), (key, kind, value)])).unwrap();
        }
    }
}
