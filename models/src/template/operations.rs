//! Operations of templates that check the budgets before they compute, and estimates of what they build.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value, context};
use minijinja_contrib::pycompat;

use super::budget::{VALUE_BYTES, fits, product, read, shallow_weight, weight, weights};

/// Computes `left * right` like minijinja.
#[allow(clippy::needless_pass_by_value)] // what a filter takes
pub(super) fn multiply(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let estimate = |of: &Value, times: &Value| match of.kind() {
        ValueKind::Number | ValueKind::Bool => Ok(0),
        _ => Ok::<_, Error>(weight(of)?.saturating_mul(times.as_usize().unwrap_or(0) as u64)),
    };
    fits(estimate(&left, &right)?.max(estimate(&right, &left)?))?;
    flat(state.env().compile_expression("left * right")?.eval(context! { left, right })?)
}

/// Computes `value[start:stop:step]` like minijinja.
#[allow(clippy::needless_pass_by_value)] // what a filter takes
pub(super) fn slice(
    state: &mut State,
    value: Value,
    start: Value,
    stop: Value,
    step: Value,
) -> Result<Value, Error> {
    read(shallow_weight(&value)?)?;
    let expression = state.env().compile_expression("value[start:stop:step]")?;
    flat(expression.eval(context! { value, start, stop, step })?)
}

/// Computes the items of a lazy list now. Otherwise lists that are sliced again and again would be iterators of
/// iterators, which exhaust the stack.
fn flat(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    Ok(Value::make_object_iterable(items, |items| Box::new(items.iter().cloned())))
}

/// Separates the arguments of a call from the name, which is the last one.
fn named(args: Rest<ValueOrKwargs>) -> (String, Vec<Value>) {
    let mut args = args.into_values();
    let name = args.pop().unwrap_or_default();
    (name.to_string(), args)
}

pub(super) fn apply_filter(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (name, args) = named(args);
    if !state.perform_test("filter", &[Value::from(name.as_str())])? {
        return Err(Error::new(ErrorKind::UnknownFilter, format!("filter {name} is unknown")));
    }
    read(match name.as_str() {
        // They do not read the items of a list.
        "length" | "count" | "first" | "default" | "d" => args.first().map_or(Ok(0), shallow_weight)?,
        "replace" => weights(&args)?,
        // They may read their arguments for each item or character.
        _ => product(&args)?,
    })?;
    state.apply_filter(&name, &args)
}

pub(super) fn perform_test(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<bool, Error> {
    let (name, args) = named(args);
    if !state.perform_test("test", &[Value::from(name.as_str())])? {
        return Err(Error::new(ErrorKind::UnknownTest, format!("test {name} is unknown")));
    }
    read(weights(&args)?)?;
    state.perform_test(&name, &args)
}

pub(super) fn call_method(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (name, args) = named(args);
    read(match name.as_str() {
        "strip" | "lstrip" | "rstrip" | "format" => product(&args)?,
        _ => weights(&args)?,
    })?;
    let [value, args @ ..] = &args[..] else { return Err(Error::from(ErrorKind::MissingArgument)) };
    value.call_method(state, &name, args)
}

/// Implements methods of Python's strings and maps.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let with_value = || [std::slice::from_ref(value), args].concat();
    fits(match (name, args) {
        ("replace", _) => replaced(&with_value())?,
        ("format", _) => formatted(&with_value())?,
        ("join", [items, ..]) => joined(items, value)?,
        _ => 0,
    })?;
    pycompat::unknown_method_callback(state, value, name, args)
}

pub(super) fn replaced(args: &[Value]) -> Result<u64, Error> {
    let [value, from, to, ..] = args else { return Ok(0) };
    let count = match (value.as_str(), from.as_str()) {
        (Some(value), Some(from)) => value.matches(from).count() as u64,
        _ => weight(value)?,
    };
    Ok(weight(value)?.saturating_add(count.saturating_mul(weight(to)?)))
}

pub(super) fn joined(items: &Value, separator: &Value) -> Result<u64, Error> {
    let all = weight(items)?;
    let count = items.len().map_or(all, |count| count as u64);
    Ok(all.saturating_add(count.saturating_mul(weight(separator)?)))
}

pub(super) fn indented(args: &[Value]) -> Result<u64, Error> {
    let [value, options @ ..] = args else { return Ok(0) };
    let lines = match value.as_str() {
        Some(text) => 1 + text.matches('\n').count() as u64,
        None => weight(value)?,
    };
    Ok(weight(value)?.saturating_add(lines.saturating_mul(largest(options)?)))
}

/// Estimates filters that fill chunks up to a number of values.
pub(super) fn filled(args: &[Value]) -> Result<u64, Error> {
    let [value, options @ ..] = args else { return Ok(0) };
    Ok(weight(value)?.saturating_add(VALUE_BYTES.saturating_mul(largest(options)?)))
}

/// Estimates formatting. Widths are numbers in the format, or arguments if it has `*` or nested braces.
pub(super) fn formatted(args: &[Value]) -> Result<u64, Error> {
    let [format, values @ ..] = args else { return Ok(0) };
    let Some(format) = format.as_str() else { return weight(format) };
    let places = format.matches(['%', '{']).count() as u64;
    let numbers = format.split(|character: char| !character.is_ascii_digit()).filter(|text| !text.is_empty());
    let widths = numbers.fold(0u64, |sum, digits| sum.saturating_add(digits.parse().unwrap_or(u64::MAX)));
    let given = if format.contains('*') || format.contains(":{") { largest(values)? } else { 0 };
    let mut all = given;
    for value in values {
        all = all.saturating_add(weight(value)?);
    }
    Ok((format.len() as u64).saturating_add(widths).saturating_add(places.saturating_mul(all)))
}

/// Returns the largest number among arguments, including named ones.
fn largest(options: &[Value]) -> Result<u64, Error> {
    let mut largest = 0;
    for option in options {
        let number = match option.kind() {
            ValueKind::Map => {
                let keys = option.try_iter()?;
                let named = keys.map(|key| option.get_item(&key)).collect::<Result<Vec<_>, _>>()?;
                named.iter().filter_map(Value::as_usize).max()
            }
            _ => option.as_usize(),
        };
        largest = largest.max(number.unwrap_or(0) as u64);
    }
    Ok(largest)
}
