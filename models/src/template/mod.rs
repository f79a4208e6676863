//! Renders templates of untrusted model folders within limits on steps (minijinja's fuel) and bytes.
//!
//! minijinja counts steps only, and one step can double a string (`x ~ x`), multiply it (`replace`, `indent`,
//! `join`, `*`) or copy a literal in a loop's body. [`Template`] therefore charges every value that a
//! template builds, and all text that it writes, to a [budget](mod@budget). The compiled instructions are
//! [rewritten](mod@metered) so that each one that builds a value is followed by a charge, and operations whose result can be
//! much larger than their operands are estimated before they run. Values that are nested too deeply are also
//! rejected, since printing or dropping them would exhaust the stack.
//!
//! One step can also read a long value for a short result (`s.count('a')`, `x in list`). Operands of comparisons,
//! filters, tests and methods are therefore charged to a second budget before they are read.
//!
//! minijinja's parser and compiler recurse for each operator, so long tags are [rejected](mod@tokens) before they are parsed.
//!
//! The rewriting uses minijinja's unstable machinery, so `Cargo.toml` pins its exact version.

mod budget;
mod metered;
mod operations;
mod tokens;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::machinery::{CompiledTemplate, TemplateConfig, eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter, filters};

use self::budget::{DEEPEST, Size, charge, charge_shared, fits, read, shallow_weight, weight};
use self::metered::{
    CHARGE, CHARGE_SHARED, FILTER, METHOD, MULTIPLY, READ, READ_SHALLOW, SLICE, TEST, metered,
};
use self::operations::{
    apply_filter, call_method, filled, formatted, indented, joined, method, multiply, perform_test, replaced,
    slice,
};
use self::tokens::check_tokens;
use super::template_functions::{WIDEST_INDENT, strftime_now, tojson};

/// Estimates the bytes that a call would build from its arguments.
type Estimate = fn(&[Value]) -> Result<u64, Error>;

/// Maximum steps of a rendering.
const FUEL: u64 = 1_000_000;
/// Maximum size of a template in bytes. Published ones have less than 32 KiB.
const LONGEST: usize = 128 << 10;

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
        budget::start(input_bytes);
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

#[cfg(test)]
mod tests {
    use minijinja::context;
    use minijinja_contrib::pycompat;

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

    /// With 148 nested macros around a long text, compiling would take seconds.
    #[test]
    fn deeply_nested_macros_are_rejected() {
        for (begin, end) in
            [("{% macro m() %}", "{% endmacro %}"), ("{%- call(a) m() -%}", "{%- endcall -%}")]
        {
            let nested = |depth| Template::new(begin.repeat(depth) + "x" + &end.repeat(depth));
            assert!(nested(4).is_ok());
            let error = nested(5).unwrap_err().to_string();
            assert!(error.contains("`macro` and `call` tags are nested more than 4 deep"), "{error}");
            assert!(Template::new((begin.to_owned() + end).repeat(100)).is_ok());
        }
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
