//! Document lengths in one byte, in Lucene's encoding (`SmallFloat.intToByte4`): exact below 40, then four
//! significant bits.

/// Lengths below this value are their own code.
const EXACT: u32 = 24;

/// The code of a length.
pub(super) fn encode(length: u32) -> u8 {
    match length.checked_sub(EXACT) {
        None => length as u8,
        Some(rest) => (EXACT + four_bits(rest)) as u8,
    }
}

/// The length of a code.
pub(super) fn decode(code: u8) -> u32 {
    match u32::from(code).checked_sub(EXACT) {
        None => u32::from(code),
        Some(rest) => EXACT.saturating_add(of_four_bits(rest)),
    }
}

fn four_bits(number: u32) -> u32 {
    let bits = 32 - number.leading_zeros();
    if bits < 4 {
        return number;
    }
    let shift = bits - 4;
    ((number >> shift) & 7) | ((shift + 1) << 3)
}

fn of_four_bits(code: u32) -> u32 {
    let (bits, shift) = (code & 7, code >> 3);
    match shift.checked_sub(1) {
        None => bits,
        Some(shift) => (bits | 8).checked_shl(shift).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_kept_roughly() {
        for (length, kept) in [(0, 0), (39, 39), (40, 40), (41, 40), (42, 42), (57, 56), (1000, 984)] {
            assert_eq!(decode(encode(length)), kept, "{length}");
        }
        assert!((0..5000).all(|length| decode(encode(length)) <= length));
        assert!((0..=254u8).all(|code| decode(code) < decode(code + 1) || decode(code) == u32::MAX));
    }
}
