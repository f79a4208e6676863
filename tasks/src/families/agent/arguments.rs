//! Parses the arguments of an action as a JSON object: split at commas, named or in order, converted to their types.

use serde_json::{Map, Number, Value};

use super::definition::{ArgumentDefinition, ArgumentType};
use crate::families::Failure;

/// Returns the arguments of an action as a JSON object. `substituted` replaces variables in one argument.
///
/// Arguments are separated by commas outside of quotes and brackets; the last one extends to the end. One can be named
/// (`days=2`, `days: 2`), and quotes around a value are removed.
pub(super) fn parse<E: From<Failure>>(
    text: &str,
    expected: &[ArgumentDefinition],
    substituted: impl Fn(&str) -> Result<String, E>,
) -> Result<Value, E> {
    let mut object = Map::new();
    for (index, part) in split(text, expected.len()).into_iter().enumerate() {
        let named = expected.iter().find_map(|one| Some((one, after_name(part, one.name())?)));
        let Some((argument, written)) = named.or_else(|| Some((expected.get(index)?, part))) else {
            return Err(bad(format!("unexpected argument `{part}`")));
        };
        if written.trim().is_empty() && argument.is_optional() {
            continue;
        }
        let value = typed(&substituted(unquoted(written))?, argument)?;
        if object.insert(argument.name().to_owned(), value).is_some() {
            return Err(bad(format!("argument `{}` is given twice", argument.name())));
        }
    }
    let missing = |one: &&ArgumentDefinition| !one.is_optional() && !object.contains_key(one.name());
    match expected.iter().find(missing) {
        Some(argument) => Err(bad(format!("missing argument `{}`", argument.name()))),
        None => Ok(Value::Object(object)),
    }
}

fn bad<E: From<Failure>>(detail: String) -> E {
    Failure::argument(detail).into()
}

/// Splits a text at commas outside of quotes and brackets, into at most `most` parts.
fn split(text: &str, most: usize) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0usize);
    let mut quote = None;
    let mut before = ' ';
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            // Neither an apostrophe within a word nor a quote that nothing closes opens a quotation.
            (None, '"' | '\'') if !before.is_alphanumeric() && is_closed(text, at, character) => {
                quote = Some(character);
            }
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 && parts.len() + 1 < most => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
        before = character;
    }
    parts.extend(text.get(start..));
    parts.into_iter().map(str::trim).collect()
}

/// Whether the quote at a place of a text occurs again after it.
fn is_closed(text: &str, at: usize, quote: char) -> bool {
    text.get(at + quote.len_utf8()..).is_some_and(|rest| rest.contains(quote))
}

/// The value in `name=value` or `name: value`.
fn after_name<'a>(part: &'a str, name: &str) -> Option<&'a str> {
    part.strip_prefix(name)?.trim_start().strip_prefix(['=', ':']).map(str::trim)
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: &char| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!inner.contains(*quote)).then_some(inner)
    };
    ['"', '\''].iter().find_map(inner).unwrap_or(text)
}

fn typed<E: From<Failure>>(text: &str, argument: &ArgumentDefinition) -> Result<Value, E> {
    let plain = text.trim();
    let (value, expected) = match argument.kind() {
        ArgumentType::String => (Some(Value::String(text.to_owned())), "a text"),
        ArgumentType::Integer => {
            // `3.0` is a value that a calculator may give.
            let whole = plain.strip_suffix(".0").unwrap_or(plain).parse::<i64>().ok();
            (whole.map(Value::from), "an integer")
        }
        ArgumentType::Number => {
            let number = plain.parse::<i64>().ok().map(Number::from);
            let number = number.or_else(|| Number::from_f64(plain.parse::<f64>().ok()?));
            (number.map(Value::Number), "a number")
        }
        ArgumentType::Boolean => {
            let value = match plain.to_ascii_lowercase().as_str() {
                "true" | "yes" => Some(true),
                "false" | "no" => Some(false),
                _ => None,
            };
            (value.map(Value::Bool), "true or false")
        }
        ArgumentType::Json => (serde_json::from_str(plain).ok(), "JSON"),
    };
    value.ok_or_else(|| {
        let shown: String = plain.chars().take(80).collect();
        bad(format!("invalid argument `{}`: expected {expected}, found `{shown}`", argument.name()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn argument(name: &str, kind: ArgumentType, optional: bool) -> ArgumentDefinition {
        ArgumentDefinition::Typed { name: name.to_owned(), kind, optional }
    }

    fn parsed(text: &str, expected: &[ArgumentDefinition]) -> Result<Value, String> {
        parse(text, expected, |text| Ok::<_, Failure>(text.replace("R1", "Kyoto, Japan")))
            .map_err(|failure| failure.detail)
    }

    #[test]
    fn arguments_are_taken_in_order_or_by_name() {
        let expected =
            [ArgumentDefinition::Name("city".to_owned()), argument("days", ArgumentType::Integer, true)];
        for (text, object) in [
            ("Kyoto, 2", json!({"city": "Kyoto", "days": 2})),
            ("R1, 2", json!({"city": "Kyoto, Japan", "days": 2})),
            ("\"Kyoto, Japan\", 2", json!({"city": "Kyoto, Japan", "days": 2})),
            ("days=2, city='Kyoto'", json!({"city": "Kyoto", "days": 2})),
            ("city: O'Hara's", json!({"city": "O'Hara's"})),
            ("Kyoto (old), ", json!({"city": "Kyoto (old)"})),
            ("f(1, 2), 3.0", json!({"city": "f(1, 2)", "days": 3})),
            ("'90s rock, 5", json!({"city": "'90s rock", "days": 5})),
            (r#""Romeo" and "Juliet""#, json!({"city": r#""Romeo" and "Juliet""#})),
        ] {
            assert_eq!(parsed(text, &expected), Ok(object), "{text}");
        }
        for (text, detail) in [
            ("", "missing argument `city`"),
            ("Kyoto, soon", "invalid argument `days`: expected an integer, found `soon`"),
            ("Kyoto, city=Nara", "argument `city` is given twice"),
        ] {
            assert_eq!(parsed(text, &expected), Err(detail.to_owned()), "{text}");
        }
        assert_eq!(parsed("x", &[]), Err("unexpected argument `x`".to_owned()));
        assert_eq!(parsed(" ", &[]), Ok(json!({})));
    }

    #[test]
    fn values_have_the_types_of_their_arguments() {
        for (kind, text, value) in [
            (ArgumentType::String, "a, b", json!("a, b")),
            (ArgumentType::Integer, "-7", json!(-7)),
            (ArgumentType::Number, "2.5", json!(2.5)),
            (ArgumentType::Number, "2", json!(2)),
            (ArgumentType::Boolean, "Yes", json!(true)),
            (ArgumentType::Json, "{\"a\": [1, 2]}", json!({"a": [1, 2]})),
        ] {
            assert_eq!(parsed(text, &[argument("x", kind, false)]), Ok(json!({ "x": value })), "{text}");
        }
        for (kind, text) in [
            (ArgumentType::Integer, "1.5"),
            (ArgumentType::Number, "NaN"),
            (ArgumentType::Boolean, "maybe"),
            (ArgumentType::Json, "{"),
        ] {
            assert!(parsed(text, &[argument("x", kind, false)]).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_object_or_a_failure(text in "[a-z0-9=:,'\"()\\[\\] ]{0,30}", count in 0usize..4) {
            let expected: Vec<_> =
                (0..count).map(|index| argument(&format!("x{index}"), ArgumentType::String, index > 0)).collect();
            if let Ok(value) = parsed(&text, &expected) {
                prop_assert!(value.as_object().unwrap().len() <= count);
            }
        }

        #[test]
        fn parts_are_the_whole_text(text in "[a-z, '\"()]{1,30}", most in 1usize..4) {
            let parts = split(&text, most);
            prop_assert!(parts.len() <= most);
            let plain = |text: &str| text.replace([',', ' '], "");
            prop_assert_eq!(plain(&parts.concat()), plain(&text));
        }
    }
}
