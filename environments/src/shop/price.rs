//! Prices: parsing, random selection within a range, and formatting.

use super::python_random::PythonRandom;

/// Price of a product without a price, in dollars.
const DEFAULT: f64 = 100.0;

/// The price of a product: one number, or a range from which it is drawn. In dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriceRange {
    /// One price.
    One(f64),
    /// From the first to the second.
    Range(f64, f64),
}

impl PriceRange {
    /// Parses a price: digits and dots of each piece after a `$`. `None` if the original raises.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::One(DEFAULT));
        }
        let numbers: Vec<f64> = text.split('$').skip(1).map(number).collect::<Option<_>>()?;
        Self::of(&numbers)
    }

    /// The price of a list of numbers: only the first two count; an empty list gives the default.
    pub(super) fn of_numbers(numbers: &[f64]) -> Self {
        Self::of(numbers).unwrap_or(Self::One(DEFAULT))
    }

    fn of(numbers: &[f64]) -> Option<Self> {
        match numbers {
            [] => None,
            [one] => Some(Self::One(*one)),
            [low, high, ..] => Some(Self::Range(*low, *high)),
        }
    }

    /// The price as shown: `$20.0`, `$7.69 to $29.59`.
    pub(super) fn tag(self) -> String {
        match self {
            Self::One(price) => format!("${}", written(price)),
            Self::Range(low, high) => format!("${} to ${}", written(low), written(high)),
        }
    }

    /// The price. A range takes one random number, a fixed price none (upstream `generate_product_prices`).
    pub(super) fn draw(self, random: &mut PythonRandom) -> f64 {
        match self {
            Self::One(price) => price,
            Self::Range(low, high) => random.uniform(low, high),
        }
    }
}

fn number(piece: &str) -> Option<f64> {
    let digits: String =
        piece.chars().filter(|character| character.is_ascii_digit() || *character == '.').collect();
    digits.parse().ok()
}

/// A number formatted like a Python float, for values between 0.0001 and 10 to the 16th.
pub(super) fn written(number: f64) -> String {
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_as_the_catalogue_writes_them() {
        for (text, tag) in [
            ("", Some("$100.0")),
            ("$48", Some("$48.0")),
            ("$65.86 - $116.81", Some("$65.86 to $116.81")),
            ("about $1,299.00 - $5 - $7", Some("$1299.0 to $5.0")),
            ("free", None),
            ("$ ", None),
        ] {
            assert_eq!(PriceRange::parse(text).map(PriceRange::tag).as_deref(), tag, "{text}");
        }
    }
}
