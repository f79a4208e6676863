//! Renders templates of untrusted model folders within limits on steps (minijinja's fuel) and bytes.
//!
//! minijinja counts steps only, and one step can double a string (`x ~ x`), multiply it (`replace`, `indent`,
//! `join`, `*`) or copy a literal in a loop's body. [`Template`] therefore charges every value that a
//! template builds, and all text that it writes, to a [budget](FREE_BYTES). The compiled instructions are
//! rewritten so that each one that builds a value is followed by a charge, and operations whose result can be
//! much larger than their operands are estimated before they run. Values that are nested too deeply are also
//! rejected, since printing or dropping them would exhaust the stack.
//!
//! One step can also read a long value for a short result (`s.count('a')`, `x in list`). Operands of comparisons,
//! filters, tests and methods are therefore charged to a second [budget](READS_PER_BYTE) before they are read.
//!
//! minijinja's parser and compiler recurse for each operator, so long tags are rejected before they are parsed.
//!
//! The rewriting uses minijinja's unstable machinery, so `Cargo.toml` pins its exact version.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::machinery::{
    CompiledTemplate, Instruction, Instructions, TemplateConfig, Token, eval, make_string_output, tokenize,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, Value, context, escape_formatter, filters,
};
use minijinja_contrib::pycompat;

use super::template_functions::{WIDEST_INDENT, strftime_now, tojson};

/// Estimates the bytes that a call would build from its arguments.
type Estimate = fn(&[Value]) -> Result<u64, Error>;

/// Maximum steps of a rendering.
const FUEL: u64 = 1_000_000;
/// Bytes that a rendering may build regardless of its input.
const FREE_BYTES: u64 = 8 << 20;
/// Additional bytes that it may build for each byte of input.
const BYTES_PER_INPUT: u64 = 32;
/// Bytes that a rendering may read for each byte that it may build.
const READS_PER_BYTE: u64 = 32;
/// Maximum size of a template in bytes. Published ones have less than 32 KiB.
const LONGEST: usize = 128 << 10;
/// Maximum names, operators and opening brackets in a tag. Each can nest its expression one level deeper.
const MOST_OPERATORS: usize = 300;
/// Maximum `elif` tags of a template. Each nests the rest of its chain one level deeper.
const MOST_ELIFS: usize = 200;
/// Bytes charged for a value in addition to its text.
const VALUE_BYTES: u64 = 16;
/// Bytes charged for a value that is shared with another one.
const SHARED_BYTES: u64 = 4;
/// Maximum nesting depth of values.
const DEEPEST: usize = 64;

/// Names that templates cannot write, so that their own filters and functions cannot replace these.
const CHARGE: &str = "+charge";
const CHARGE_SHARED: &str = "+charge-shared";
const READ: &str = "+read";
const READ_SHALLOW: &str = "+read-shallow";
const FILTER: &str = "+filter";
const TEST: &str = "+test";
const METHOD: &str = "+method";
const MULTIPLY: &str = "*";
const SLICE: &str = "[:]";

/// Marks a filter that is looked up by name each time.
const BY_NAME: u8 = !0;

thread_local! {
    /// Budget of the rendering on this thread, and the remaining part of it.
    static BUDGET: Cell<u64> = const { Cell::new(0) };
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that it may still read.
    static READABLE: Cell<u64> = const { Cell::new(0) };
}

/// A template that is rendered within limits.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    source: String,
    syntax: SyntaxConfig,
}

impl Template {
    /// Compiles a template in the dialect of Hugging Face's tokenizers.
    ///
    /// # Errors
    /// If it is too long, too deep or invalid.
    pub(super) fn new(source: String) -> Result<Self, Error> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::SyntaxError, reason));
        if source.len() > LONGEST {
            return invalid(format!(
                "the template has {} bytes, more than the limit of {LONGEST} bytes",
                source.len()
            ));
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        if let Err(reason) = check_tokens(&source, &syntax) {
            return invalid(reason);
        }
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|out, state, value| {
            charge(value)?;
            escape_formatter(out, state, value)
        });
        environment.set_unknown_method_callback(method);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", |value: Value, options: Kwargs| {
            let Size { values, bytes } = Size::of(&value)?;
            // A character is escaped with at most six bytes. Each value may have a line of its own, with its indentation.
            fits(6 * bytes + (DEEPEST * WIDEST_INDENT) as u64 * values)?;
            tojson(&value, options)
        });
        environment.add_filter(CHARGE, |value: Value| charge(&value).map(|()| value));
        environment.add_filter(CHARGE_SHARED, |value: Value| charge_shared(&value).map(|()| value));
        environment.add_filter(READ, |value: ValueOrKwargs| {
            read(weight(&value)?)?;
            Ok::<_, Error>(value.into_value())
        });
        environment.add_filter(READ_SHALLOW, |value: ValueOrKwargs| {
            read(shallow_weight(&value)?)?;
            Ok::<_, Error>(value.into_value())
        });
        environment.add_filter(FILTER, apply_filter);
        environment.add_test(TEST, perform_test);
        environment.add_filter(METHOD, call_method);
        environment.add_filter(MULTIPLY, multiply);
        environment.add_filter(SLICE, slice);
        // Jinja2 does not have them, and nested ones would exhaust the stack.
        environment.remove_filter("chain");
        environment.remove_filter("zip");
        let guards: [(&'static str, Value, Estimate); 6] = [
            ("replace", Value::from_function(filters::replace), replaced),
            ("join", Value::from_function(filters::join), |args| match args {
                [items, separator, ..] => joined(items, separator),
                _ => Ok(0),
            }),
            ("indent", Value::from_function(filters::indent), indented),
            ("format", Value::from_function(filters::format), formatted),
            ("batch", Value::from_function(filters::batch), filled),
            ("slice", Value::from_function(filters::slice), filled),
        ];
        for (name, filter, estimate) in guards {
            environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
                let args = args.into_values();
                fits(estimate(&args)?)?;
                filter.call(state, &args)
            });
        }
        let template = Self { environment, source, syntax };
        template.compile()?;
        Ok(template)
    }

    /// Renders a context that contains `input_bytes` of text.
    ///
    /// # Errors
    /// If the template fails, or exceeds a limit.
    pub(super) fn render(&self, context: Value, input_bytes: usize) -> Result<String, Error> {
        let CompiledTemplate { instructions, blocks, .. } = self.compile()?;
        let blocks: BTreeMap<_, _> =
            blocks.iter().map(|(name, instructions)| (*name, metered(instructions))).collect();
        let mut text = String::new();
        let budget = FREE_BYTES.saturating_add(BYTES_PER_INPUT.saturating_mul(input_bytes as u64));
        BUDGET.set(budget);
        LEFT.set(budget);
        READABLE.set(budget.saturating_mul(READS_PER_BYTE));
        let instructions = metered(&instructions);
        let mut output = make_string_output(&mut text);
        let rendering =
            || eval(&self.environment, &instructions, context, &blocks, &mut output, AutoEscape::None);
        // minijinja divides by zero for `loop.cycle()` and `1 is divisibleby(0)`.
        catch_unwind(AssertUnwindSafe(rendering))
            .map_err(|_| Error::new(ErrorKind::InvalidOperation, "rendering panicked"))??;
        Ok(text)
    }

    fn compile(&self) -> Result<CompiledTemplate<'_>, Error> {
        let config = TemplateConfig {
            syntax_config: self.syntax.clone(),
            default_auto_escape: Arc::new(|_| AutoEscape::None),
        };
        CompiledTemplate::new("chat", &self.source, &config)
    }
}

/// Checks a template before it is parsed. The parser and compiler recurse for each operator and each `elif`, and
/// compute constants before any limit applies. The error is a message.
fn check_tokens(source: &str, syntax: &SyntaxConfig) -> Result<(), String> {
    let tokens: Vec<Token<'_>> =
        tokenize(source, false, syntax.clone()).map_while(Result::ok).map(|(token, _)| token).collect();
    if multiplies_constants(&tokens) {
        return Err("multiplying a text or list with `*` is not supported".to_owned());
    }
    let mut operators = 0;
    for token in &tokens {
        match token {
            Token::VariableStart | Token::BlockStart => operators = 0,
            // They nest nothing, and long lists consist of them.
            Token::TemplateData(_)
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Comma
            | Token::Colon
            | Token::ParenClose
            | Token::BracketClose
            | Token::BraceClose
            | Token::VariableEnd
            | Token::BlockEnd => {}
            _ => operators += 1,
        }
        if operators > MOST_OPERATORS {
            return Err(format!("a tag has more than {MOST_OPERATORS} names, operators and brackets"));
        }
    }
    if tokens.iter().filter(|token| matches!(token, Token::Ident("elif"))).count() > MOST_ELIFS {
        return Err(format!("the template has more than {MOST_ELIFS} `elif` tags"));
    }
    Ok(())
}

/// Whether an operand of `*` is, or may be, a constant string or list. The compiler would multiply it before
/// any limit applies.
fn multiplies_constants(tokens: &[Token<'_>]) -> bool {
    let text = |token: &Token<'_>| matches!(token, Token::Str(_) | Token::String(_));
    tokens.windows(3).any(|window| {
        let [left, Token::Mul, right] = window else { return false };
        let left_constant = text(left) || matches!(left, Token::ParenClose | Token::BracketClose);
        // After `(` and `,` it unpacks arguments.
        let unpacks = matches!(left, Token::ParenOpen | Token::Comma);
        let right_constant = text(right) || matches!(right, Token::ParenOpen | Token::BracketOpen);
        left_constant || (right_constant && !unpacks)
    })
}

/// Inserts charges before instructions that read values and after those that build values. Text of the template is
/// written as values.
fn metered<'s>(found: &Instructions<'s>) -> Instructions<'s> {
    let instructions: Vec<&Instruction<'s>> = (0..).map_while(|index| found.get(index)).collect();
    // New index of each instruction, and of the end.
    let mut places = vec![0];
    let mut written = Vec::with_capacity(instructions.len());
    for instruction in instructions {
        let index = written.len() as u32;
        let line = found.get_line(index).unwrap_or(0);
        let replaced = replacement(instruction);
        places.push(places[places.len() - 1] + replaced.len() as u32);
        written.push((line, replaced));
    }
    let mut metered = Instructions::new(found.name(), found.source());
    for (line, replaced) in written {
        for mut instruction in replaced {
            if let Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::BuildMacro(_, target, _) = &mut instruction
            {
                *target = places.get(*target as usize).copied().unwrap_or(*target);
            }
            metered.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX));
        }
    }
    metered
}

/// Returns the instructions that replace an instruction.
fn replacement<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    let charge = Instruction::ApplyFilter(CHARGE, Some(1), BY_NAME);
    let charge_shared = Instruction::ApplyFilter(CHARGE_SHARED, Some(1), BY_NAME);
    // These return the value at the end of the stack unchanged.
    let read = Instruction::ApplyFilter(READ, Some(1), BY_NAME);
    let read_shallow = Instruction::ApplyFilter(READ_SHALLOW, Some(1), BY_NAME);
    match instruction {
        Instruction::EmitRaw(text) => {
            vec![Instruction::LoadConst(Value::from_safe_string((*text).to_owned())), Instruction::Emit]
        }
        Instruction::Mul => vec![Instruction::ApplyFilter(MULTIPLY, Some(2), BY_NAME), charge],
        Instruction::Slice => vec![Instruction::ApplyFilter(SLICE, Some(4), BY_NAME), charge_shared],
        Instruction::Eq
        | Instruction::Ne
        | Instruction::Lt
        | Instruction::Lte
        | Instruction::Gt
        | Instruction::Gte
        | Instruction::In
        | Instruction::CompareAndPreserve(_) => {
            vec![read.clone(), Instruction::Swap, read, Instruction::Swap, instruction.clone()]
        }
        Instruction::GetItem => {
            vec![read, Instruction::Swap, read_shallow, Instruction::Swap, instruction.clone()]
        }
        Instruction::PushLoop(_) | Instruction::UnpackList(_) | Instruction::FastRecurse => {
            vec![read_shallow, instruction.clone()]
        }
        Instruction::Include(_) => vec![read, instruction.clone()],
        // Building a map reads its keys.
        Instruction::BuildMap(_) => vec![instruction.clone(), charge_shared, read],
        // These build lists from existing values.
        Instruction::Add | Instruction::BuildList(_) | Instruction::BuildTuple(_) => {
            vec![instruction.clone(), charge_shared]
        }
        Instruction::ApplyFilter(name, count, _) => {
            let call = |count| Instruction::ApplyFilter(FILTER, count, BY_NAME);
            [named_call(name, *count, call), vec![charge]].concat()
        }
        Instruction::CallMethod(name, count) => {
            let call = |count| Instruction::ApplyFilter(METHOD, count, BY_NAME);
            [named_call(name, *count, call), vec![charge]].concat()
        }
        Instruction::PerformTest("lower" | "upper", Some(1), _) => vec![read, instruction.clone()],
        // Other tests without arguments take constant time.
        Instruction::PerformTest(_, Some(1), _) => vec![instruction.clone()],
        Instruction::PerformTest(name, count, _) => {
            named_call(name, *count, |count| Instruction::PerformTest(TEST, count, BY_NAME))
        }
        // It may continue a recursive loop.
        Instruction::CallFunction(_, Some(1)) => vec![read_shallow, instruction.clone(), charge],
        Instruction::StringConcat | Instruction::CallFunction(..) | Instruction::CallObject(_) => {
            vec![instruction.clone(), charge]
        }
        _ => vec![instruction.clone()],
    }
}

/// Returns instructions that make a call with a name as an additional last argument.
fn named_call<'s>(
    name: &str,
    count: Option<u16>,
    call: impl Fn(Option<u16>) -> Instruction<'s>,
) -> Vec<Instruction<'s>> {
    let name = Instruction::LoadConst(Value::from(name));
    match count {
        Some(count) => vec![name, call(Some(count + 1))],
        // Their number follows the arguments.
        None => {
            let one = Instruction::LoadConst(Value::from(1));
            vec![name, Instruction::Swap, one, Instruction::Add, call(None)]
        }
    }
}

fn too_much() -> Error {
    Error::new(
        ErrorKind::OutOfFuel,
        format!("it builds more than {} MiB of text and values", FREE_BYTES >> 20),
    )
}

/// Subtracts bytes from the remaining budget.
fn spend(bytes: u64) -> Result<(), Error> {
    LEFT.set(LEFT.get().checked_sub(bytes).ok_or_else(too_much)?);
    Ok(())
}

/// Subtracts bytes that are about to be read.
fn read(bytes: u64) -> Result<(), Error> {
    let too_much = || {
        let limit = (FREE_BYTES * READS_PER_BYTE) >> 20;
        Error::new(ErrorKind::OutOfFuel, format!("it reads more than {limit} MiB of text and values"))
    };
    READABLE.set(READABLE.get().checked_sub(bytes).ok_or_else(too_much)?);
    Ok(())
}

/// Charges a value including everything in it.
fn charge(value: &Value) -> Result<(), Error> {
    spend(weight(value)?)
}

/// Charges a string in full, and a list or map without its strings, which were charged when they were built.
fn charge_shared(value: &Value) -> Result<(), Error> {
    let size = Size::of(value)?;
    spend(if value.as_bytes().is_some() { size.bytes } else { SHARED_BYTES * size.values })
}

/// Returns the size in bytes of a value including everything in it. Fails if it exceeds the whole budget.
fn weight(value: &Value) -> Result<u64, Error> {
    Ok(Size::of(value)?.bytes)
}

/// Returns the size in bytes of a string, or of a list without the contents of its items.
fn shallow_weight(value: &Value) -> Result<u64, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => match value.len() {
            Some(count) => Ok(VALUE_BYTES.saturating_mul(count as u64)),
            None => weight(value),
        },
        _ => Ok(VALUE_BYTES + value.as_bytes().map_or(0, <[u8]>::len) as u64),
    }
}

/// Number of values and bytes in a value.
#[derive(Default)]
struct Size {
    values: u64,
    bytes: u64,
}

impl Size {
    fn of(value: &Value) -> Result<Self, Error> {
        let mut size = Self::default();
        size.add(value, 0)?;
        Ok(size)
    }

    fn add(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::new(ErrorKind::InvalidOperation, "values are nested too deeply"));
        }
        self.values += 1;
        self.bytes += VALUE_BYTES + value.as_bytes().map_or(0, <[u8]>::len) as u64;
        if self.bytes > BUDGET.get() {
            return Err(too_much());
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.add(&item, depth + 1)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    self.add(&value.get_item(&key)?, depth + 1)?;
                    self.add(&key, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Fails if a result would exceed the remaining budget.
fn fits(estimate: u64) -> Result<(), Error> {
    if estimate > LEFT.get() { Err(too_much()) } else { Ok(()) }
}

/// Computes `left * right` like minijinja.
#[allow(clippy::needless_pass_by_value)] // what a filter takes
fn multiply(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let estimate = |of: &Value, times: &Value| match of.kind() {
        ValueKind::Number | ValueKind::Bool => Ok(0),
        _ => Ok::<_, Error>(weight(of)?.saturating_mul(times.as_usize().unwrap_or(0) as u64)),
    };
    fits(estimate(&left, &right)?.max(estimate(&right, &left)?))?;
    flat(state.env().compile_expression("left * right")?.eval(context! { left, right })?)
}

/// Computes `value[start:stop:step]` like minijinja.
#[allow(clippy::needless_pass_by_value)] // what a filter takes
fn slice(state: &mut State, value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
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

fn apply_filter(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
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

fn perform_test(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<bool, Error> {
    let (name, args) = named(args);
    if !state.perform_test("test", &[Value::from(name.as_str())])? {
        return Err(Error::new(ErrorKind::UnknownTest, format!("test {name} is unknown")));
    }
    read(weights(&args)?)?;
    state.perform_test(&name, &args)
}

fn call_method(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (name, args) = named(args);
    read(match name.as_str() {
        "strip" | "lstrip" | "rstrip" | "format" => product(&args)?,
        _ => weights(&args)?,
    })?;
    let [value, args @ ..] = &args[..] else { return Err(Error::from(ErrorKind::MissingArgument)) };
    value.call_method(state, &name, args)
}

/// Returns the size in bytes of all values.
fn weights(values: &[Value]) -> Result<u64, Error> {
    values.iter().try_fold(0, |sum: u64, value| Ok::<_, Error>(sum.saturating_add(weight(value)?)))
}

/// Returns the size in bytes of the first value, times that of the others if there are any.
fn product(values: &[Value]) -> Result<u64, Error> {
    let [value, others @ ..] = values else { return Ok(0) };
    Ok(weight(value)?.saturating_mul(weights(others)?.max(1)))
}

/// Implements methods of Python's strings and maps.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let with_value = || [std::slice::from_ref(value), args].concat();
    fits(match (name, args) {
        ("replace", _) => replaced(&with_value())?,
        ("format", _) => formatted(&with_value())?,
        ("join", [items, ..]) => joined(items, value)?,
        _ => 0,
    })?;
    pycompat::unknown_method_callback(state, value, name, args)
}

fn replaced(args: &[Value]) -> Result<u64, Error> {
    let [value, from, to, ..] = args else { return Ok(0) };
    let count = match (value.as_str(), from.as_str()) {
        (Some(value), Some(from)) => value.matches(from).count() as u64,
        _ => weight(value)?,
    };
    Ok(weight(value)?.saturating_add(count.saturating_mul(weight(to)?)))
}

fn joined(items: &Value, separator: &Value) -> Result<u64, Error> {
    let all = weight(items)?;
    let count = items.len().map_or(all, |count| count as u64);
    Ok(all.saturating_add(count.saturating_mul(weight(separator)?)))
}

fn indented(args: &[Value]) -> Result<u64, Error> {
    let [value, options @ ..] = args else { return Ok(0) };
    let lines = match value.as_str() {
        Some(text) => 1 + text.matches('\n').count() as u64,
        None => weight(value)?,
    };
    Ok(weight(value)?.saturating_add(lines.saturating_mul(largest(options)?)))
}

/// Estimates filters that fill chunks up to a number of values.
fn filled(args: &[Value]) -> Result<u64, Error> {
    let [value, options @ ..] = args else { return Ok(0) };
    Ok(weight(value)?.saturating_add(VALUE_BYTES.saturating_mul(largest(options)?)))
}

/// Estimates formatting. Widths are numbers in the format, or arguments if it has `*` or nested braces.
fn formatted(args: &[Value]) -> Result<u64, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, Error> {
        Template::new(source.to_owned())?.render(context! { x => "ab", list => [1, 2, 3] }, 2)
    }

    #[test]
    fn rewritten_templates_render_as_before() {
        for source in [
            "a{{ x }}b{% for i in list %}{{ loop.index }}:{{ i * 2 }},{% else %}none{% endfor %}",
            "{% for i in [] %}x{% else %}none{% endfor %}{% if x and list %}{{ x ~ '-' ~ list }}{% endif %}",
            "{% macro m(a, b=3) %}[{{ a }}{{ b }}{{ caller and caller() }}]{% endmacro %}{{ m(1) + m(2, b=4) }}",
            "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{% endcall %}",
            "{% set ns = namespace(text='') %}{% for i in list %}{% set ns.text = ns.text + x %}{% endfor %}{{ ns.text }}",
            "{% set y %}raw {{ x }}{% endset %}{{ y | upper }}{% filter upper %}q{{ x }}{% endfilter %}",
            "{{ x.replace('a', 'cc') }}{{ x | replace('b', '') }}{{ list | join('-') }}{{ ', '.join(['a', 'b']) }}",
            "{{ 'a\\nb' | indent(3, true) }}{{ 'a\\nb' | indent(width=2) }}{{ '%s-%5d' | format(x, 7) }}",
            "{{ list | batch(2, 0) | list }}{{ list | slice(2) | list }}{{ list[1:] }}{{ {'a': 1}.items() | list }}",
            "{% for i in list %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %}{% endfor %}",
            "{% for i in [[1], [2, [3]]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}",
            "{% autoescape true %}<b>{{ '<' }}{% endautoescape %}{{ x is defined and 'y' or 'n' }}{{ 1 < 2 <= 3 }}",
            "{% with y = x ~ 1 %}{{ y }}{% endwith %}{% block b %}in {{ x }}{% endblock %}{{ dict(a=1)['a'] }}",
            "{{ 'a' in x }}{{ x == 'ab' }}{{ x != 'ab' }}{{ x >= 'b' }}{{ 3 not in list }}{{ 1 < 2 != 3 }}{{ 2 in list == true }}",
            "{{ list[-1] }}{{ x[0] }}{{ list[1:][0] }}{{ list[::-1] }}{{ list[:2] | length }}{{ x[1:] }}{{ (list * 2)[1:] }}",
            "{{ x is startingwith('a') }}{{ x is lower }}{{ list is sequence }}{{ list[1:] is sequence }}{{ y is defined }}",
            "{{ x.split(*['b']) }}{{ list | join(*['-']) }}{{ 3 is divisibleby(*[3]) }}{{ list | map('string') | join }}",
            "{{ list | select('in', [1, 2]) | list }}{{ list.count(2) }}{{ y | default('none') }}{{ {'a': x}.get('a') }}",
            "{% for a, b in {'a': 1}.items() %}{{ a }}{{ b }}{{ loop.cycle('o', 'e') }}{{ loop.changed(a) }}{% endfor %}",
        ] {
            let mut plain = Environment::new();
            let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
            plain.set_syntax(syntax);
            plain.set_unknown_method_callback(pycompat::unknown_method_callback);
            let expected = plain.render_str(source, context! { x => "ab", list => [1, 2, 3] });
            let found = render(source);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{source}"),
                (found, expected) => panic!("{source}: {found:?} instead of {expected:?}"),
            }
        }
    }

    /// Each template would build gigabytes within the step limit.
    #[test]
    fn templates_that_build_too_much_are_stopped() {
        let doubling = |step: &str| {
            format!(
                "{{% set ns = namespace(x='aaaaaaaa', l=['a']) %}}{{% for i in range(40) %}}{step}{{% endfor %}}{{{{ ns.x }}}}"
            )
        };
        let literal = "y".repeat(10_000);
        for source in [
            doubling("{% set ns.x = ns.x ~ ns.x %}"),
            doubling("{% set ns.x = ns.x + ns.x %}"),
            doubling("{% set ns.x = [ns.x, ns.x] | join %}"),
            doubling("{% set ns.x = ns.x | replace('a', 'aa') %}"),
            doubling("{% set ns.x = ns.x.replace('a', ns.x) %}"),
            doubling("{% set ns.x = ns.x.replace('', ns.x) %}"),
            doubling("{% set ns.x = ns.x.join(['', '', ns.x]) %}"),
            doubling("{% set ns.x = '{0}{0}'.format(ns.x) %}"),
            doubling("{% set ns.x = '%s%s' | format(ns.x, ns.x) %}"),
            doubling("{% set ns.l = ns.l + ns.l %}{% set ns.x = ns.l | join %}"),
            doubling("{% set ns.l = [ns.l, ns.l] %}{% set ns.x = ns.l ~ '' %}"),
            doubling("{% set ns.l = [ns.l, ns.l] %}{{ ns.l | length }}"),
            doubling("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
            doubling("{% set n = 99999999 %}{% set ns.x = ns.x * n %}"),
            doubling("{% set n = 99999999 %}{% set ns.l = ns.l * n %}{{ ns.l | list }}"),
            doubling("{% set ns.l = ns.l | list + [ns.x[:], ns.x[:]] %}{% set ns.x = ns.l | join %}"),
            "{{ 'a\nb' | indent(4000000000) }}".to_owned(),
            "{{ 'a\nb' | indent(width=4000000000) }}".to_owned(),
            "{{ '%4000000000d' | format(1) }}".to_owned(),
            "{{ '%*d' | format(4000000000, 1) }}".to_owned(),
            "{{ [1] | batch(4000000000, 0) | list }}".to_owned(),
            "{{ [1] | slice(4000000000, 0) | list }}".to_owned(),
            "{{ 'aaaaaaaa' * 99999999 }}".to_owned(),
            "{{ (range(20000) | list) | tojson(indent=16) }}".to_owned(),
            doubling("{% set ns.x = ns.x | tojson(ensure_ascii=true) %}"),
            "{{ 99999999 * ('aaaa' ~ 'aaaa') }}".to_owned(),
            "{{ ([1] * 99999999) | list }}".to_owned(),
            format!("{{% for i in range(100000) %}}{literal}{{% endfor %}}"),
            format!("{{% set z %}}{{% for i in range(100000) %}}{literal}{{% endfor %}}{{% endset %}}"),
            "{% macro m(s, n) %}{% if n %}{{ m(s ~ s, n - 1) }}{% else %}{{ s }}{% endif %}{% endmacro %}{{ m('aaaa', 40) }}"
                .to_owned(),
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(),
            "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}".to_owned(),
            "x".repeat(LONGEST + 1),
        ] {
            let error = render(&source).err().unwrap_or_else(|| panic!("{source}"));
            let told = error.to_string();
            assert!(!told.contains("not iterable") && !told.contains("unknown"), "{source}: {told}");
        }
    }

    /// Each template would read gigabytes within the step limit.
    #[test]
    fn templates_that_read_too_much_are_stopped() {
        let long = "{% set ns = namespace(s='aaaaaaaa') %}\
                    {% for i in range(18) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
        for step in [
            "ns.s.count('b')",
            "ns.s.find('b')",
            "ns.s.isdigit()",
            "ns.s.count(*['b'])",
            "'b' in ns.s",
            "ns.s == 'b'",
            "'b' < ns.s",
            "ns.s != 'b' != 'c'",
            "[ns.s] == ['b']",
            "[ns.s].count('b')",
            "ns.s is upper",
            "ns.s is startingwith('b')",
            "['a', 'b'] | select('in', ns.s) | first",
            "ns.s | length",
            "ns.s | int(0)",
            "ns.s | trim('a')",
            "'b'.strip(ns.s)",
            "ns.s[0]",
            "ns.s[:1]",
            "{ns.s: 1}",
            "loop.changed(ns.s)",
        ] {
            let source = format!("{long}{{% for i in range(9000) %}}{{% set x = {step} %}}{{% endfor %}}");
            let error = render(&source).err().unwrap_or_else(|| panic!("{step}")).to_string();
            assert!(error.contains("reads more than"), "{step}: {error}");
        }
    }

    #[test]
    fn panics_are_errors() {
        for source in ["{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "{{ 1 is divisibleby(0) }}"] {
            assert!(render(source).is_err(), "{source}");
        }
    }

    /// The parser, the compiler or the iterators would recurse for each operator.
    #[test]
    fn deep_templates_do_not_exhaust_the_stack() {
        let many = |text: &str| text.repeat(10_000);
        for source in [
            format!("{{{{ x{} }}}}", many("~x")),
            format!("{{{{ 1{} }}}}", many("+1")),
            format!("{{{{ x{} }}}}", many(".a")),
            format!("{{{{ x{} }}}}", many("[0]")),
            format!("{{{{ x{} }}}}", many("()")),
            format!("{{{{ x{} }}}}", many("|e")),
            format!("{{{{ x{} }}}}", many(" is a")),
            format!("{{{{ x{} }}}}", many(" if x")),
            format!("{{{{ {}x }}}}", many("not ")),
            format!("{{{{ {}1 }}}}", many("-")),
            format!("{{% filter e{} %}}{{% endfilter %}}", many("|e")),
        ] {
            let error = render(&source).unwrap_err().to_string();
            assert!(error.contains("a tag has more than 300"), "{source:.20}: {error}");
        }
        let source = format!("{{% if x %}}{}{{% endif %}}", many("{%elif x%}"));
        let error = render(&source).unwrap_err().to_string();
        assert!(error.contains("more than 200 `elif` tags"), "{error}");
        let longest = format!("{{{{ [{}] | length }}}}", many("'a', "));
        assert_eq!(render(&longest).unwrap(), "10000");
        let sliced = "{% set ns = namespace(l=[1]) %}\
                      {% for i in range(20000) %}{% set ns.l = ns.l[:] %}{% endfor %}{{ ns.l }}";
        assert_eq!(render(sliced).unwrap(), "[1]");
    }

    /// A long conversation whose messages are collected one by one, as in some published templates.
    #[test]
    fn lists_that_share_what_is_in_them_are_cheap() {
        let template = "{% set ns = namespace(kept=[]) %}{% for m in messages %}{% set ns.kept = ns.kept + [m] %}{% endfor %}\
                        {% for m in ns.kept %}{{ '<' + m.role + '>' + m.content | trim + '\n' }}{% endfor %}";
        let template = Template::new(template.to_owned()).unwrap();
        let content = "word ".repeat(200);
        let message = context! { role => "user", content => content };
        let messages = vec![message; 500];
        let text = template.render(context! { messages }, 500 * 1000).unwrap();
        assert_eq!(text.len(), 500 * (7 + 999));
    }

    #[test]
    fn the_budget_grows_with_the_input() {
        let template = Template::new("{% set y = x ~ x ~ x %}{{ y }}".to_owned()).unwrap();
        let long = "a".repeat(4 << 20);
        assert!(template.render(context! { x => &long }, 0).is_err());
        assert_eq!(template.render(context! { x => &long }, long.len()).unwrap().len(), 12 << 20);
    }
}
