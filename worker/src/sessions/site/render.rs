//! Pages as HTML.

use std::sync::LazyLock;

use lumos_environments::shop::{Element, Role, Visit};
use minijinja::{AutoEscape, Environment, Value, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, text) in [("page", include_str!("page.html")), ("start", include_str!("start.html"))] {
        environment.add_template(name, text).expect("the shipped templates are well-formed");
    }
    environment
});

/// Where a visit stands, as HTML; `base` is the visit's address.
pub(super) fn page(visit: &Visit, base: &str) -> Result<String, minijinja::Error> {
    let elements: Vec<Value> =
        visit.page().elements(&visit.goal().instruction_text).iter().map(element).collect();
    let has_search_bar = visit.page().has_search_bar();
    TEMPLATES.get_template("page")?.render(context! { base, elements, has_search_bar })
}

/// The page on which visits begin.
pub(super) fn start(goals: usize, products: usize) -> Result<String, minijinja::Error> {
    TEMPLATES.get_template("start")?.render(context! { goals, products })
}

fn element(element: &Element) -> Value {
    let text = &element.text;
    match &element.role {
        Role::Text => context! { role => "text", text },
        Role::Heading => context! { role => "heading", text },
        Role::Button => context! { role => "button", text },
        Role::Link => {
            let escaped = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            context! { role => "link", text, escaped }
        }
        Role::Choice { group, chosen } => context! { role => "choice", text, group, chosen },
    }
}
