//! Frame of the HTML pages: templates, escaping and the content-security policy.
//!
//! [`render_page`] fills one of the templates below `assets/`. A page loads nothing but its own style, its own script and, in
//! a folder, the files next to it: the policy names style and script by their hash.

use std::borrow::Cow;
use std::io;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, context};
use sha2::{Digest, Sha256};

use crate::display::is_hidden;

/// The style sheet of pages: colours, tables and text in light and dark.
pub const PAGE_STYLE: &str = include_str!("assets/page.css");
pub(super) const SCRIPT: &str = include_str!("assets/viewer.js");

/// Marks a page of this program, within its first kilobyte.
pub(super) const GENERATOR: &str = r#"<meta name="generator" content="lumos">"#;

/// Where a page is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageMode {
    /// One file that may be moved: nothing else is loaded.
    Single,
    /// A folder with chunks and screenshots next to the page.
    Folder,
}

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, _, value| {
        let text = value.to_string();
        let text = if value.is_safe() { text } else { escaped(&text) };
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_global("style", Value::from_safe_string(PAGE_STYLE.to_owned()));
    environment.add_global("script", Value::from_safe_string(SCRIPT.to_owned()));
    for (name, source) in [
        ("layout.html.jinja", include_str!("assets/layout.html.jinja")),
        ("report.html.jinja", include_str!("assets/report.html.jinja")),
        ("compare.html.jinja", include_str!("assets/compare.html.jinja")),
    ] {
        environment.add_template(name, source).expect("the shipped template is well-formed");
    }
    environment
});

/// Renders a template. `index` is the packed list of items; without it, the page has no script.
///
/// # Errors
/// If the contents lack a value that the template uses.
pub(crate) fn render_page(
    template: &str,
    contents: Value,
    index: Option<&str>,
    mode: PageMode,
) -> io::Result<String> {
    let policy = Value::from_safe_string(policy(index.is_some(), mode));
    let page = TEMPLATES.get_template(template);
    let contents = context! { policy, index, ..contents };
    page.and_then(|page| page.render(contents)).map_err(io::Error::other)
}

/// Returns the content-security policy of a page. `frame-ancestors` is missing because it is invalid in a
/// `<meta>` element.
fn policy(has_script: bool, mode: PageMode) -> String {
    static HASHES: LazyLock<(String, String)> = LazyLock::new(|| (hash(PAGE_STYLE), hash(SCRIPT)));
    let (style, script) = &*HASHES;
    let mut policy = "default-src 'none'".to_owned();
    if has_script {
        let chunks = if mode == PageMode::Folder { "'self' " } else { "" };
        policy.push_str(&format!("; script-src {chunks}{script}"));
    }
    policy.push_str(&format!("; style-src {style}"));
    if mode == PageMode::Folder {
        policy.push_str("; img-src 'self'");
    }
    policy + "; base-uri 'none'; form-action 'none'"
}

/// Formats the hash of an element's text as the policy names it.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Replaces characters that could disguise a text.
pub(super) fn visible_text(text: &str) -> Cow<'_, str> {
    if text.contains(is_hidden) {
        Cow::Owned(text.replace(is_hidden, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Escapes a text for use in an element or in a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in visible_text(text).chars() {
        match character {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            character => plain.push(character),
        }
    }
    plain
}
