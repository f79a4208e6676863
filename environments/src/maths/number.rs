//! Parses numbers as people write them.

use num_rational::BigRational;
use num_traits::Zero;

use super::lexer;
use super::limits::{MathsLimits, Meter};

/// Parses an answer as people write it to one exact number.
///
/// Accepted are digits with an optional point (`18`, `18.0`, `.5`, `5.`), with commas between groups of three
/// (`1,000`), a quotient of two such numbers (`7/3`), a sign (`-`, `−` or `+`), a `$` before the digits, a
/// `%` after them (`25%` is 1/4), and white space around any of these. Everything else is `None`:
/// expressions, equations (`x = 4`), words and units, invalid groups (`1,00`), a quotient over zero, and
/// numbers beyond the default [`MathsLimits`].
pub fn number(text: &str) -> Option<BigRational> {
    let limits = MathsLimits::default();
    if text.len() > limits.input_bytes {
        return None;
    }
    let mut meter = Meter::new(limits);
    let (negative, text) = sign(text.trim());
    let text = text.strip_prefix('$').map_or(text, str::trim_start);
    let (hundredths, text) = match text.strip_suffix('%') {
        Some(text) => (true, text.trim_end()),
        None => (false, text),
    };
    let value = match text.split_once('/') {
        Some(_) if hundredths => return None,
        Some((numerator, denominator)) => {
            let denominator = decimal(denominator.trim_start(), &mut meter)?;
            if denominator.is_zero() {
                return None;
            }
            decimal(numerator.trim_end(), &mut meter)? / denominator
        }
        None => decimal(text, &mut meter)?,
    };
    let value = if hundredths { value / BigRational::from_integer(100.into()) } else { value };
    Some(if negative { -value } else { value })
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix(['-', '−']) {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text.strip_prefix('+').map_or(text, str::trim_start)),
    }
}

fn decimal(text: &str, meter: &mut Meter) -> Option<BigRational> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = grouped(whole)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.push_str(fraction);
    lexer::decimal(&digits, fraction.len() as u64, 0, meter).ok()
}

/// Digits without the commas between their groups.
fn grouped(text: &str) -> Option<String> {
    let mut groups = text.split(',');
    let first = groups.next()?;
    let mut digits = first.to_owned();
    for group in groups {
        if group.len() != 3 || first.is_empty() || first.len() > 3 {
            return None;
        }
        digits.push_str(group);
    }
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)
}
