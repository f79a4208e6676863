//! Pages of the shop: their elements, observation and clickable texts.
//!
//! A `ShopPage` is a list of [`TextElement`]s. The observation is the visible texts joined by ` [SEP] `;
//! clickable texts are buttons, product links and option values.

use lumos_tasks::python::strip;
use serde_json::{Map, Value};

use super::price::written;

/// Separator between the texts of an observation.
const SEPARATOR: &str = " [SEP] ";

/// The labels of the shop's buttons.
pub(super) const BACK_TO_SEARCH: &str = "Back to Search";
/// See [`BACK_TO_SEARCH`].
pub(super) const PREVIOUS: &str = "< Prev";
/// See [`BACK_TO_SEARCH`].
pub(super) const NEXT: &str = "Next >";
/// See [`BACK_TO_SEARCH`].
pub(super) const BUY_NOW: &str = "Buy Now";
/// See [`BACK_TO_SEARCH`].
const SEARCH: &str = "Search";

/// A page of the shop.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ShopPage {
    /// The start page with the search bar.
    Start,
    /// Results of a search.
    Results {
        /// The page number, counted from 1.
        number: u64,
        /// Number of products found.
        total: usize,
        /// The products on this page, at most ten.
        items: Vec<ListedProduct>,
    },
    /// A product.
    Product(Box<ProductPage>),
    /// Details of a product: the texts in order.
    Details(Vec<String>),
    /// The final page, after a purchase.
    Done {
        /// The purchased product.
        asin: String,
        /// The chosen options, by group.
        options: Vec<(String, String)>,
        /// The reward.
        reward: f64,
    },
}

/// A product in a list of results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedProduct {
    /// The product's ASIN.
    pub(super) asin: String,
    /// The product's title.
    pub(super) title: String,
    /// The price as shown.
    pub(super) price_tag: String,
}

/// The contents of a product's page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProductPage {
    /// Groups of options.
    pub(super) options: Vec<(String, Vec<String>)>,
    /// The options chosen so far, by group.
    pub(super) chosen: Vec<(String, String)>,
    /// The product's title.
    pub(super) title: String,
    /// The price as shown.
    pub(super) price_tag: String,
}

/// The kind of a details page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The description.
    Description,
    /// The features.
    Features,
    /// The reviews, which are always empty.
    Reviews,
    /// The attributes. No button leads there, but an option of that name does.
    Attributes,
}

impl About {
    /// The pages of details.
    pub(super) const ALL: [Self; 4] = [Self::Description, Self::Features, Self::Reviews, Self::Attributes];

    /// The label of its button.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Description => "Description",
            Self::Features => "Features",
            Self::Reviews => "Reviews",
            Self::Attributes => "Attributes",
        }
    }
}

/// The buttons of a product's page that lead to details.
const DETAILS: [About; 3] = [About::Description, About::Features, About::Reviews];

/// The effect of a click on a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clickable {
    /// A button, identified by its text.
    Button,
    /// The link to a product.
    Product,
    /// An option of this group.
    Choice(String),
}

/// The role of an element on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementRole {
    /// Plain text.
    Text,
    /// A heading.
    Heading,
    /// A button.
    Button,
    /// A link to a product.
    Link,
    /// An option value.
    Choice {
        /// The group that it belongs to.
        group: String,
        /// Whether it is chosen.
        chosen: bool,
    },
}

/// A text on a page. Blanks around it are part of it, because they decide whether it is visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextElement {
    /// Its role.
    pub role: ElementRole,
    /// Its text.
    pub text: String,
}

impl TextElement {
    fn new(role: ElementRole, text: impl Into<String>) -> Self {
        Self { role, text: text.into() }
    }

    fn text(text: impl Into<String>) -> Self {
        Self::new(ElementRole::Text, text)
    }

    fn heading(text: impl Into<String>) -> Self {
        Self::new(ElementRole::Heading, text)
    }

    fn button(label: &str) -> Self {
        Self::new(ElementRole::Button, label)
    }
}

impl ShopPage {
    /// All elements of the page, in order.
    pub(super) fn elements(&self, instruction: &str) -> Vec<TextElement> {
        let mut elements = Vec::new();
        if matches!(self, Self::Start) {
            elements.push(TextElement::heading("WebShop"));
        }
        if !matches!(self, Self::Done { .. }) {
            elements.extend([TextElement::heading("Instruction:"), TextElement::text(instruction)]);
        }
        match self {
            Self::Start => elements.push(TextElement::button(SEARCH)),
            Self::Results { number, total, items } => {
                elements.push(TextElement::button(BACK_TO_SEARCH));
                elements.push(TextElement::heading(format!("Page {number} (Total results: {total})")));
                if *number > 1 {
                    elements.push(TextElement::button(PREVIOUS));
                }
                elements.push(TextElement::button(NEXT));
                for item in items {
                    elements.push(TextElement::new(ElementRole::Link, &item.asin));
                    elements.extend([TextElement::text(&item.title), TextElement::text(&item.price_tag)]);
                }
            }
            Self::Product(page) => {
                elements.extend([BACK_TO_SEARCH, PREVIOUS].map(TextElement::button));
                page.options.iter().for_each(|(name, values)| elements.extend(page.group(name, values)));
                elements.push(TextElement::heading(&page.title));
                elements.push(TextElement::text(format!("Price: {}", page.price_tag)));
                elements.push(TextElement::text("Rating: N.A."));
                elements.extend(DETAILS.map(|about| TextElement::button(about.label())));
                elements.push(TextElement::button(BUY_NOW));
            }
            Self::Details(texts) => {
                elements.extend([BACK_TO_SEARCH, PREVIOUS].map(TextElement::button));
                elements.extend(texts.iter().map(TextElement::text));
            }
            Self::Done { asin, options, reward } => elements.extend(done(asin, options, *reward)),
        }
        elements
    }

    /// The observation: visible texts, joined by ` [SEP] `.
    pub(super) fn observation(&self, instruction: &str) -> String {
        observation_of(self.elements(instruction).iter().map(|element| element.text.as_str()))
    }

    /// The clickable texts; see [`clickables_of`].
    pub(super) fn clickables(&self) -> Vec<(String, Clickable)> {
        clickables_of(self.elements(""))
    }
}

/// The observation of texts in page order: the visible ones, joined by ` [SEP] `.
pub fn observation_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut observation = String::new();
    let mut fields = texts.into_iter().filter(|text| shows(text));
    if let Some(first) = fields.next() {
        observation.push_str(strip(first));
    }
    for field in fields {
        observation.push_str(SEPARATOR);
        observation.push_str(strip(field));
    }
    observation
}

/// The clickable texts of some elements in lower case, with the effect of a click: buttons and links in order, then
/// options. Equal texts are merged: they keep the position of the first and the effect of the last.
pub fn clickables_of(elements: impl IntoIterator<Item = TextElement>) -> Vec<(String, Clickable)> {
    let (mut clickables, mut choices) = (Vec::new(), Vec::new());
    for TextElement { role, text } in elements {
        match role {
            ElementRole::Button => clickables.push((text.to_lowercase(), Clickable::Button)),
            ElementRole::Link => clickables.push((text.to_lowercase(), Clickable::Product)),
            ElementRole::Choice { group, .. } => {
                choices.push((text, Clickable::Choice(group.to_lowercase())));
            }
            ElementRole::Text | ElementRole::Heading => {}
        }
    }
    clickables.append(&mut choices);
    merged(clickables)
}

impl ProductPage {
    /// A group of options: its name and its values.
    fn group(&self, name: &str, values: &[String]) -> Vec<TextElement> {
        let chosen = self.chosen.iter().find(|(group, _)| *group == name.to_lowercase());
        let choice = |value: &String| {
            let chosen = chosen.is_some_and(|(_, chosen)| chosen == value);
            TextElement::new(ElementRole::Choice { group: name.to_owned(), chosen }, value)
        };
        [TextElement::heading(name)].into_iter().chain(values.iter().map(choice)).collect()
    }
}

/// Whether a text is visible. Empty texts, and texts of only blanks with a newline among them, are not; other
/// texts of only blanks are visible as empty fields.
fn shows(text: &str) -> bool {
    let blank = text.chars().all(|character| matches!(character, ' ' | '\n' | '\t' | '\u{c}' | '\r'));
    !(text.is_empty() || (blank && text.contains('\n')))
}

fn merged(clickables: Vec<(String, Clickable)>) -> Vec<(String, Clickable)> {
    let mut places = std::collections::HashMap::new();
    let mut merged: Vec<(String, Clickable)> = Vec::with_capacity(clickables.len());
    for (text, meaning) in clickables {
        let place = *places.entry(text.clone()).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => known.1 = meaning,
            None => merged.push((text, meaning)),
        }
    }
    merged
}

/// The page after a purchase. Most of its fields are now empty, but its headings remain.
fn done(asin: &str, options: &[(String, String)], reward: f64) -> Vec<TextElement> {
    const BEFORE: [&str; 6] = [
        "Thank you for shopping with us!",
        "Your code:",
        "None",
        "(Paste it in your MTurk interface.)",
        "Purchased",
        "asin",
    ];
    const BETWEEN: [&str; 21] = [
        "attrs",
        "None",
        "category",
        "None",
        "query",
        "None",
        "product category",
        "None",
        "Target",
        "asin",
        "options",
        "attrs",
        "price upper",
        "instuction text",
        "category",
        "product category",
        "query",
        "Goal",
        "None",
        "Reward",
        "Your score (min 0.0, max 1.0)",
    ];
    let (options, reward) = (options_as_json(options), written(reward));
    let bought = [asin, "options", &options];
    let last = [&*reward, "Reward Details", "None"];
    let texts = BEFORE.iter().chain(&bought).chain(&BETWEEN).chain(&last).copied();
    texts.map(TextElement::text).collect()
}

/// Options in the format of the original's template: JSON in ASCII with sorted keys, escaped for HTML.
fn options_as_json(options: &[(String, String)]) -> String {
    let mut sorted: Vec<&(String, String)> = options.iter().collect();
    sorted.sort();
    let entries: Map<String, Value> =
        sorted.into_iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    let entries: Vec<String> =
        entries.into_iter().map(|(name, value)| format!("{}: {value}", Value::String(name))).collect();
    let mut text = String::new();
    for character in format!("{{{}}}", entries.join(", ")).chars() {
        match character {
            '<' | '>' | '&' | '\'' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            '\u{7f}' => text.push(character),
            _ if character.is_ascii() => text.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_show_as_they_do_on_a_page() {
        let texts = [" ", " \n", "", "\u{a0}", " a "].map(str::to_owned).to_vec();
        let page = ShopPage::Details(texts);
        let expected = "Instruction: [SEP] i [SEP] Back to Search [SEP] < Prev [SEP]  [SEP]  [SEP] a";
        assert_eq!(page.observation("i"), expected);
    }

    #[test]
    fn equal_texts_are_one_clickable() {
        let options = vec![
            ("a".to_owned(), vec!["x".to_owned(), "reviews".to_owned()]),
            ("b".to_owned(), vec!["x".to_owned()]),
        ];
        let page = ShopPage::Product(Box::new(ProductPage {
            options,
            chosen: Vec::new(),
            title: "t".to_owned(),
            price_tag: "$1.0".to_owned(),
        }));
        let clickables = page.clickables();
        let texts: Vec<&str> = clickables.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["back to search", "< prev", "description", "features", "reviews", "buy now", "x"]);
        assert_eq!(clickables[4].1, Clickable::Choice("a".to_owned()));
        assert_eq!(clickables[6].1, Clickable::Choice("b".to_owned()));
    }

    #[test]
    fn options_are_written_safely() {
        let options = [("size".to_owned(), "<5'".to_owned()), ("color".to_owned(), "crème 😀".to_owned())];
        let expected = r#"{"color": "cr\u00e8me \ud83d\ude00", "size": "\u003c5\u0027"}"#;
        assert_eq!(options_as_json(&options), expected);
    }
}
