//! Rows of the server's text protocol, converted to the Python values that mysql-connector returns.

use lumos_environments::sql::{Cell, Row as Cells};
use sqlx::mysql::MySqlRow;
use sqlx::{Column, Row, TypeInfo};

/// Returns the cells of a row.
///
/// # Errors
/// If a value cannot be read.
pub(super) fn cells(row: &MySqlRow) -> Result<Cells, sqlx::Error> {
    row.columns()
        .iter()
        .map(|column| {
            let bytes: Option<&[u8]> = row.try_get_unchecked(column.ordinal())?;
            Ok(bytes.map_or(Cell::Null, |bytes| cell(bytes, column.type_info().name())))
        })
        .collect()
}

/// Converts a value. A value that is invalid for its type remains text.
fn cell(bytes: &[u8], kind: &str) -> Cell {
    let text = || String::from_utf8_lossy(bytes).into_owned();
    let read = match kind {
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" | "YEAR" | "TINYINT UNSIGNED"
        | "SMALLINT UNSIGNED" | "MEDIUMINT UNSIGNED" | "INT UNSIGNED" | "BIGINT UNSIGNED" => {
            text().parse().ok().map(Cell::Integer)
        }
        "FLOAT" | "DOUBLE" => text().parse().ok().map(Cell::Float),
        "DECIMAL" => Some(Cell::Decimal(decimal(&text()))),
        "DATE" => return date(&text()),
        "DATETIME" | "TIMESTAMP" => return date_time(&text()),
        "TIME" => duration(&text()),
        "BIT" => {
            Some(Cell::Integer(bytes.iter().take(8).fold(0, |value, byte| value << 8 | i128::from(*byte))))
        }
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "GEOMETRY" => {
            Some(Cell::Bytes(bytes.to_vec()))
        }
        _ => None,
    };
    read.unwrap_or_else(|| Cell::Text(text()))
}

/// Formats a decimal number of the server as Python's `str(Decimal(text))` does: with an exponent if it is below 10⁻⁶, or
/// zero with more than six decimals.
fn decimal(text: &str) -> String {
    let (sign, plain) = text.strip_prefix('-').map_or(("", text), |plain| ("-", plain));
    let Some((whole, fraction)) = plain.split_once('.') else { return text.to_owned() };
    let joined = format!("{whole}{fraction}");
    let digits = joined.trim_start_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    // The first digit stands for 10 to the power of -below.
    let below = (fraction.len() + 1).saturating_sub(digits.len());
    let Some((first, rest)) = digits.split_at_checked(1).filter(|_| below > 6) else {
        return text.to_owned();
    };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}E-{below}")
}

/// Parses year, month and day. Returns `None` for an invalid date (`0000-00-00`), which Python's driver
/// converts to `None`.
fn day(text: &str) -> Option<(u16, u8, u8)> {
    let mut parts = text.split('-');
    let year = parts.next()?.parse().ok().filter(|year| *year > 0)?;
    let month = parts.next()?.parse().ok().filter(|month| (1..=12).contains(month))?;
    let day = parts.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    Some((year, month, day))
}

/// Parses `hh:mm:ss[.ffffff]` to seconds and microseconds.
fn time(text: &str) -> Option<(u32, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds = 0u32;
    for part in whole.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    Some((seconds, digits.parse().ok()?))
}

fn date(text: &str) -> Cell {
    day(text).map_or(Cell::Null, |(year, month, day)| Cell::Date { year, month, day })
}

fn date_time(text: &str) -> Cell {
    let (date, clock) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    match (day(date), time(clock)) {
        (Some((year, month, day)), Some((second_of_day, microsecond))) => {
            Cell::DateTime { year, month, day, second_of_day, microsecond }
        }
        _ => Cell::Null,
    }
}

fn duration(text: &str) -> Option<Cell> {
    let (is_negative, positive) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (seconds, micros) = time(positive)?;
    let total = i64::from(seconds) * 1_000_000 + i64::from(micros);
    let total = if is_negative { -total } else { total };
    let rest = total.rem_euclid(86_400_000_000);
    Some(Cell::Duration {
        days: total.div_euclid(86_400_000_000),
        seconds: u32::try_from(rest / 1_000_000).ok()?,
        microseconds: u32::try_from(rest % 1_000_000).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use lumos_environments::sql::row_text;

    use super::*;

    #[test]
    fn small_decimals_have_an_exponent() {
        for (text, shown) in [
            ("12", "12"),
            ("-1.50", "-1.50"),
            ("0.000000", "0.000000"),
            ("0.00000123", "0.00000123"),
            ("0.0000000", "0E-7"),
            ("-0.0000000", "-0E-7"),
            ("0.00000012", "1.2E-7"),
            ("0.0000001200", "1.200E-7"),
        ] {
            assert_eq!(decimal(text), shown, "{text}");
        }
    }

    #[test]
    fn values_become_pythons() {
        let shown = |text: &str, kind: &str| cell(text.as_bytes(), kind).to_string();
        assert_eq!(shown("12", "BIGINT UNSIGNED"), "12");
        assert_eq!(shown("3", "DOUBLE"), "3.0");
        assert_eq!(shown("3.5000", "DECIMAL"), "Decimal('3.5000')");
        assert_eq!(shown("2013-06-30 13:01:40", "DATETIME"), "datetime.datetime(2013, 6, 30, 13, 1, 40)");
        assert_eq!(shown("0000-00-00", "DATE"), "None");
        assert_eq!(shown("-00:00:01", "TIME"), "datetime.timedelta(days=-1, seconds=86399)");
        assert_eq!(shown("10:11:12", "TIME"), "datetime.timedelta(seconds=36672)");
        assert_eq!(
            row_text(&[cell(b"a\0", "VARBINARY"), cell("é".as_bytes(), "VARCHAR")]),
            "(b'a\\x00', 'é')"
        );
    }
}
