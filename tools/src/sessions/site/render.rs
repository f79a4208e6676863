//! Renders pages as HTML.

use std::sync::LazyLock;

use lumos_environments::shop::{ElementRole, TextElement};
use minijinja::{AutoEscape, Environment, Value, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::visits::Place;

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, text) in [("page", include_str!("page.html")), ("start", include_str!("start.html"))] {
        environment.add_template(name, text).expect("the shipped templates are well-formed");
    }
    environment
});

/// Renders the current page of a visit as HTML. `base` is the visit's address.
pub(super) fn page(place: &Place, base: &str) -> Result<String, minijinja::Error> {
    let visit = &place.visit;
    let elements: Vec<Value> =
        visit.page().elements(&visit.goal().instruction_text).iter().map(element).collect();
    let has_search_bar = visit.page().has_search_bar();
    let purchase = visit.purchase().map(|purchase| {
        let by_group = purchase.by_group.map(|reward| reward.to_string()).join(" ");
        let [reward, lowest, highest, r_type] =
            [purchase.reward, purchase.lowest, purchase.highest, purchase.r_type].map(|one| one.to_string());
        context! { asin => purchase.asin, reward, lowest, highest, by_group, r_type }
    });
    let raised = place.raised.as_ref().map(ToString::to_string);
    let step = place.steps;
    let context = context! { base, elements, has_search_bar, step, purchase, raised };
    TEMPLATES.get_template("page")?.render(context)
}

/// Renders the page on which visits start.
pub(super) fn start(goals: usize, products: usize) -> Result<String, minijinja::Error> {
    TEMPLATES.get_template("start")?.render(context! { goals, products })
}

fn element(element: &TextElement) -> Value {
    let text = &element.text;
    let escaped = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let escaped = escaped.as_str();
    // HTML cannot represent these characters: parsers replace them.
    let exact = text.contains(['\r', '\0']).then_some(escaped);
    match &element.role {
        ElementRole::Text => context! { role => "text", text, exact },
        ElementRole::Heading => context! { role => "heading", text, exact },
        ElementRole::Button => context! { role => "button", text, escaped, exact },
        ElementRole::Link => context! { role => "link", text, escaped, exact },
        ElementRole::Choice { group, chosen } => {
            context! { role => "choice", text, escaped, exact, group, chosen }
        }
    }
}
