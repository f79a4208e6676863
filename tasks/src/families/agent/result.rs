//! Formats the reply of an external tool as an action's value.

use serde_json::Value;

use crate::families::Failure;

/// A part of a template: text, or the path of a field; the empty path is the whole reply.
enum Part<'a> {
    Text(&'a str),
    Field(&'a str),
}

/// Splits a template at its fields. `{{` and `}}` are braces.
fn parts(template: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        parts.push(Part::Text(before));
        if from.starts_with("{{") || from.starts_with("}}") {
            parts.push(Part::Text(&from[..1]));
            rest = &from[2..];
            continue;
        }
        let field = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((field, behind)) = field else {
            return Err(format!("unmatched brace in `{template}`; write {{{{ and }}}} for braces"));
        };
        parts.push(Part::Field(field));
        rest = behind;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// Why a template is invalid, if it is.
pub(super) fn problem(template: &str) -> Option<String> {
    parts(template).err()
}

/// Fills a template in, at most `most` characters.
pub(super) fn format(template: Option<&str>, reply: &str, most: usize) -> Result<String, Failure> {
    let parts = parts(template.unwrap_or("{}")).map_err(Failure::tool)?;
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Field("") => text.push_str(reply.trim()),
            Part::Field(path) => text.push_str(&field(reply, path)?),
        }
    }
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    // Prompts have one line per reply and result.
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A field of a JSON reply: names and positions, separated by dots.
fn field(reply: &str, path: &str) -> Result<String, Failure> {
    let missing = || Failure::tool(format!("the result has no field `{path}`"));
    let json: Value = serde_json::from_str(reply).map_err(|_| missing())?;
    let step = |value: &Value, name: &str| match value {
        Value::Array(values) => values.get(name.parse::<usize>().ok()?).cloned(),
        value => value.get(name).cloned(),
    };
    let found = path.split('.').try_fold(json, |value, name| step(&value, name)).ok_or_else(missing)?;
    Ok(match found {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_and_braces() {
        let reply = r#"{"day": {"high": 31.5, "sky": "clear"}, "hours": [1, 2]}"#;
        let formatted = |template: &str| format(Some(template), reply, 100).map_err(|failure| failure.detail);
        assert_eq!(formatted("{day.high} °C, {day.sky}").as_deref(), Ok("31.5 °C, clear"));
        assert_eq!(formatted("{{{hours.1}}}").as_deref(), Ok("{2}"));
        assert_eq!(formatted("{night}"), Err("the result has no field `night`".to_owned()));
        assert_eq!(format(None, " two\nlines ", 100).as_deref(), Ok("two lines"));
        assert_eq!(format(None, "abcdef", 3).as_deref(), Ok("abc…"));
        assert!(problem("{a").is_some() && problem("a}").is_some() && problem("{a} {}").is_none());
    }

    proptest! {
        #[test]
        fn any_template_and_reply(template in "[a.{}é ]{0,12}", reply in "[a{}\":1é ]{0,12}", most in 0usize..9) {
            if let Ok(text) = format(Some(&template), &reply, most) {
                prop_assert!(text.chars().count() <= most + 1);
            }
            prop_assert_eq!(problem(&template).is_some(), parts(&template).is_err());
        }
    }
}
