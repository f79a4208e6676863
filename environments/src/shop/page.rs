//! Pages: what they show and what can be clicked.

use lumos_tasks::python::strip;
use serde_json::{Map, Value};

use super::price::written;

/// What joins the fields of an observation.
pub const SEPARATOR: &str = " [SEP] ";

/// The labels of the shop's buttons.
pub const BACK_TO_SEARCH: &str = "Back to Search";
/// See [`BACK_TO_SEARCH`].
pub const PREVIOUS: &str = "< Prev";
/// See [`BACK_TO_SEARCH`].
pub const NEXT: &str = "Next >";
/// See [`BACK_TO_SEARCH`].
pub const BUY_NOW: &str = "Buy Now";
/// See [`BACK_TO_SEARCH`].
pub const SEARCH: &str = "Search";

/// A page of the shop.
#[derive(Debug, Clone, PartialEq)]
pub enum Page {
    /// The start, with the search bar.
    Start,
    /// Results of a search.
    Results {
        /// The page's number, from 1.
        number: u64,
        /// How many products were found.
        total: usize,
        /// At most ten of them.
        items: Vec<Item>,
    },
    /// A product.
    Product(Box<ProductPage>),
    /// More about a product.
    Details {
        /// What about it.
        about: About,
        /// The texts in order.
        texts: Vec<String>,
    },
    /// The end, after a purchase.
    Done {
        /// What was bought.
        asin: String,
        /// With which options, by group.
        options: Vec<(String, String)>,
        /// The reward.
        reward: f64,
    },
}

/// A product in a list of results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its id.
    pub asin: String,
    /// Its title.
    pub title: String,
    /// Its price as shown.
    pub price_tag: String,
    /// Its picture; not part of the observation.
    pub image: String,
}

/// What a product's own page shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductPage {
    /// Its id, which is not shown.
    pub asin: String,
    /// Groups of options.
    pub options: Vec<(String, Vec<String>)>,
    /// What is chosen so far, by group.
    pub chosen: Vec<(String, String)>,
    /// Its title.
    pub title: String,
    /// Its price as shown.
    pub price_tag: String,
    /// Its picture; not part of the observation.
    pub image: String,
}

/// What a page of details is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The description.
    Description,
    /// The features.
    Features,
    /// What others say; nobody does.
    Reviews,
    /// What the product is praised for. No button leads there, but an option of that name does.
    Attributes,
}

impl About {
    /// The pages of details.
    pub const ALL: [Self; 4] = [Self::Description, Self::Features, Self::Reviews, Self::Attributes];

    /// The label of its button.
    pub fn label(self) -> &'static str {
        match self {
            Self::Description => "Description",
            Self::Features => "Features",
            Self::Reviews => "Reviews",
            Self::Attributes => "Attributes",
        }
    }
}

/// The buttons of a product's page that lead to details.
pub const DETAILS: [About; 3] = [About::Description, About::Features, About::Reviews];

/// What clicking a text means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clickable {
    /// A button; its text says which.
    Button,
    /// The link to a product.
    Product,
    /// An option of this group.
    Choice(String),
}

/// What an element of a page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A text to be read.
    Text,
    /// A heading.
    Heading,
    /// A button.
    Button,
    /// A link to a product.
    Link,
    /// A value that can be chosen.
    Choice {
        /// The group it is one of.
        group: String,
        /// Whether it is the one that is chosen.
        chosen: bool,
    },
}

/// A text on a page. Blanks around it are part of it, for they decide whether it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// What it is.
    pub role: Role,
    /// What it says.
    pub text: String,
}

impl Element {
    fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into() }
    }

    fn text(text: impl Into<String>) -> Self {
        Self::new(Role::Text, text)
    }

    fn heading(text: impl Into<String>) -> Self {
        Self::new(Role::Heading, text)
    }

    fn button(label: &str) -> Self {
        Self::new(Role::Button, label)
    }
}

impl Page {
    /// Everything on the page, in order.
    pub fn elements(&self, instruction: &str) -> Vec<Element> {
        let mut elements = Vec::new();
        if matches!(self, Self::Start) {
            elements.push(Element::heading("WebShop"));
        }
        if !matches!(self, Self::Done { .. }) {
            elements.extend([Element::heading("Instruction:"), Element::text(instruction)]);
        }
        match self {
            Self::Start => elements.push(Element::button(SEARCH)),
            Self::Results { number, total, items } => {
                elements.push(Element::button(BACK_TO_SEARCH));
                elements.push(Element::heading(format!("Page {number} (Total results: {total})")));
                if *number > 1 {
                    elements.push(Element::button(PREVIOUS));
                }
                elements.push(Element::button(NEXT));
                for item in items {
                    elements.push(Element::new(Role::Link, &item.asin));
                    elements.extend([Element::text(&item.title), Element::text(&item.price_tag)]);
                }
            }
            Self::Product(page) => {
                elements.extend([BACK_TO_SEARCH, PREVIOUS].map(Element::button));
                page.options.iter().for_each(|(name, values)| elements.extend(page.group(name, values)));
                elements.push(Element::heading(&page.title));
                elements.push(Element::text(format!("Price: {}", page.price_tag)));
                elements.push(Element::text("Rating: N.A."));
                elements.extend(DETAILS.map(|about| Element::button(about.label())));
                elements.push(Element::button(BUY_NOW));
            }
            Self::Details { texts, .. } => {
                elements.extend([BACK_TO_SEARCH, PREVIOUS].map(Element::button));
                elements.extend(texts.iter().map(Element::text));
            }
            Self::Done { asin, options, reward } => elements.extend(done(asin, options, *reward)),
        }
        elements
    }

    /// The observation: visible texts, joined by ` [SEP] `.
    pub fn observation(&self, instruction: &str) -> String {
        observation_of(self.elements(instruction).iter().map(|element| element.text.as_str()))
    }

    /// Whether there is a search bar.
    pub fn has_search_bar(&self) -> bool {
        matches!(self, Self::Start)
    }

    /// The texts that can be clicked, in lower case, with what a click means: buttons and links in order, then options.
    /// Equal texts are one: the first one's place, the last one's meaning.
    pub fn clickables(&self) -> Vec<(String, Clickable)> {
        clickables_of(self.elements(""))
    }
}

/// The observation of texts in the order of their page: those that show, joined by ` [SEP] `.
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

/// What of some elements can be clicked; see [`Page::clickables`].
pub fn clickables_of(elements: impl IntoIterator<Item = Element>) -> Vec<(String, Clickable)> {
    let (mut clickables, mut choices) = (Vec::new(), Vec::new());
    for Element { role, text } in elements {
        match role {
            Role::Button => clickables.push((text.to_lowercase(), Clickable::Button)),
            Role::Link => clickables.push((text.to_lowercase(), Clickable::Product)),
            Role::Choice { group, .. } => choices.push((text, Clickable::Choice(group.to_lowercase()))),
            Role::Text | Role::Heading => {}
        }
    }
    clickables.append(&mut choices);
    merged(clickables)
}

impl ProductPage {
    /// A group of options: its name and its values.
    fn group(&self, name: &str, values: &[String]) -> Vec<Element> {
        let chosen = self.chosen.iter().find(|(group, _)| *group == name.to_lowercase());
        let choice = |value: &String| {
            let chosen = chosen.is_some_and(|(_, chosen)| chosen == value);
            Element::new(Role::Choice { group: name.to_owned(), chosen }, value)
        };
        [Element::heading(name)].into_iter().chain(values.iter().map(choice)).collect()
    }
}

/// Whether a text shows: not where it is empty or only blanks with a newline among them. Where it is only other blanks
/// it is an empty field.
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

/// The page after a purchase. Most of what it once showed is empty by now, but its headings are there.
fn done(asin: &str, options: &[(String, String)], reward: f64) -> Vec<Element> {
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
    texts.map(Element::text).collect()
}

/// Options as the original's template writes them: JSON in ASCII with sorted keys, safe within HTML.
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
        let page = Page::Details { about: About::Features, texts };
        let expected = "Instruction: [SEP] i [SEP] Back to Search [SEP] < Prev [SEP]  [SEP]  [SEP] a";
        assert_eq!(page.observation("i"), expected);
    }

    #[test]
    fn equal_texts_are_one_clickable() {
        let options = vec![
            ("a".to_owned(), vec!["x".to_owned(), "reviews".to_owned()]),
            ("b".to_owned(), vec!["x".to_owned()]),
        ];
        let page = Page::Product(Box::new(ProductPage {
            asin: "B".to_owned(),
            options,
            chosen: Vec::new(),
            title: "t".to_owned(),
            price_tag: "$1.0".to_owned(),
            image: String::new(),
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
