//! [`ShopSession`]: a customer's session with one goal, from the start page to a purchase.
//!
//! A visit executes actions ([`ShopAction`]: `search[red lamp]`, `click[buy now]`), one at a time
//! ([`ShopSession::step`]) or those of an episode's whole request ([`ShopSession::serve`]). It keeps the current
//! page, the chosen options and the reward of the purchase.

use std::sync::Arc;

use lumos_tasks::families::shop::{Purchase, ShopReply, ShopRequest};
use serde::{Deserialize, Serialize};

use super::goal::Goal;
use super::page::{
    About, BACK_TO_SEARCH, BUY_NOW, Clickable, ListedProduct, NEXT, PREVIOUS, ProductPage, ShopPage,
    TextElement,
};
use super::reward::{PurchaseReward, Tagger, reward};
use super::shop::{Raised, SearchEngine, Shop};

/// Products per page of results.
const WINDOW: u64 = 10;

/// An action, its argument in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShopAction {
    /// Types into the search bar and searches; valid on every page.
    Search(String),
    /// Clicks the element with this text.
    Click(String),
}

impl ShopAction {
    /// Parses an action: a name, an opening bracket, an argument up to the last closing bracket, all on the
    /// first line (upstream `parse_action`). The rest is ignored. `None` for anything else, on which the shop
    /// does nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.split('\n').next().unwrap_or_default();
        let close = line.rfind(']')?;
        let before = line.get(..close)?;
        let argument_at = |open: &usize| before.get(open + 1..).is_some_and(|argument| !argument.is_empty());
        let open = before.rmatch_indices('[').map(|(open, _)| open).find(argument_at)?;
        let argument = before.get(open + 1..)?.to_lowercase();
        match before.get(..open)? {
            "search" => Some(Self::Search(argument)),
            "click" => Some(Self::Click(argument)),
            _ => None,
        }
    }
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShopStep {
    /// The observation of the page.
    pub observation: String,
    /// The reward: 0 until a purchase.
    pub reward: f64,
    /// Whether this action was a purchase.
    pub done: bool,
    /// The clickable texts, in lower case.
    pub clickables: Vec<String>,
}

/// The shop and the services that visits use.
#[derive(Clone)]
pub struct ShopServices {
    /// The products.
    pub shop: Arc<Shop>,
    /// The search engine.
    pub search: Arc<dyn SearchEngine>,
    /// The noun tagger for rewards.
    pub tagger: Arc<dyn Tagger>,
}

impl std::fmt::Debug for ShopServices {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Staff").field("shop", &self.shop).finish_non_exhaustive()
    }
}

/// The state of a session.
#[derive(Debug)]
pub struct ShopSession {
    staff: ShopServices,
    goal: Goal,
    page: ShopPage,
    /// The page's address without the session's id: the original identifies pages by names found in it.
    address: String,
    clickables: Vec<(String, Clickable)>,
    keywords: Vec<String>,
    number: u64,
    product: Option<u32>,
    /// By group, in the order of first choice.
    options: Vec<(String, String)>,
    bought: Option<PurchaseReward>,
}

impl ShopSession {
    /// A session on the start page.
    pub fn new(staff: ShopServices, goal: Goal) -> Self {
        let page = ShopPage::Start;
        Self {
            staff,
            goal,
            clickables: page.clickables(),
            page,
            address: String::new(),
            keywords: Vec::new(),
            number: 1,
            product: None,
            options: Vec::new(),
            bought: None,
        }
    }

    /// All elements of the current page, in order.
    pub fn elements(&self) -> Vec<TextElement> {
        self.page.elements(&self.goal.instruction_text)
    }

    /// Whether the current page has a search bar.
    pub fn has_search_bar(&self) -> bool {
        matches!(self.page, ShopPage::Start)
    }

    /// The reward of the last purchase.
    pub fn bought(&self) -> Option<&PurchaseReward> {
        self.bought.as_ref()
    }

    /// The observation of the current page.
    pub fn observation(&self) -> String {
        self.page.observation(&self.goal.instruction_text)
    }

    /// The clickable texts, in lower case, in order.
    pub fn clickables(&self) -> Vec<String> {
        self.clickables.iter().map(|(text, _)| text.clone()).collect()
    }

    /// Executes an action; an invalid action, or a click on something that is not clickable, has no effect.
    ///
    /// # Errors
    /// Fails where the original raises. The session is unchanged in that case.
    pub fn step(&mut self, action: &str) -> Result<ShopStep, Raised> {
        let reward = self.act(action)?;
        Ok(ShopStep {
            observation: self.observation(),
            reward: reward.unwrap_or(0.0),
            done: reward.is_some(),
            clickables: self.clickables(),
        })
    }

    /// Executes an action. Returns the reward if it is a purchase.
    fn act(&mut self, action: &str) -> Result<Option<f64>, Raised> {
        match ShopAction::parse(action) {
            Some(ShopAction::Search(text)) => {
                let keywords = text.split(' ').map(str::to_owned).collect();
                self.show_results(keywords, 1).map(|()| None)
            }
            Some(ShopAction::Click(text)) => self.click(&text),
            None => Ok(None),
        }
    }

    /// Executes an episode's request.
    ///
    /// # Errors
    /// Fails where the original raises.
    pub fn serve(&mut self, request: &ShopRequest) -> Result<ShopReply, Raised> {
        if request.reset {
            self.show_start();
            self.bought = None;
        }
        for action in &request.replay {
            self.act(action)?;
        }
        let bought = self.act(&request.action)?;
        Ok(ShopReply {
            observation: self.observation(),
            clickables: self.clickables(),
            purchase: bought.and_then(|_| self.purchase()),
        })
    }

    /// The purchase whose page is shown, with the bounds of its reward.
    pub fn purchase(&self) -> Option<Purchase> {
        let bought = self.bought?;
        let ShopPage::Done { asin, .. } = &self.page else { return None };
        let by_group = [bought.r_type, bought.r_type_lowest, bought.r_type_highest];
        Some(Purchase {
            asin: asin.clone(),
            reward: bought.reward(),
            lowest: bought.met * bought.r_type_lowest,
            highest: bought.met * bought.r_type_highest,
            by_group: by_group.map(|factor| bought.met_by_group * factor),
            r_type: bought.r_type,
        })
    }

    /// Clicks a text. Returns the reward if it is a purchase.
    fn click(&mut self, text: &str) -> Result<Option<f64>, Raised> {
        let Some((_, meaning)) = self.clickables.iter().find(|(clickable, _)| clickable == text) else {
            return Ok(None);
        };
        let meaning = meaning.clone();
        let is = |label: &str| label.to_lowercase() == text;
        if text == "search" {
            return Ok(None);
        }
        // Only the text identifies what is clicked, so an option with the name of a button acts like the
        // button.
        if is(BUY_NOW) {
            return self.buy().map(Some);
        }
        if is(BACK_TO_SEARCH) {
            self.show_start();
        } else if is(NEXT) && self.page_name() == "search_results" {
            self.show_results(self.keywords.clone(), self.number + 1)?;
        } else if is(PREVIOUS) && self.page_name() == "search_results" {
            self.show_results(self.keywords.clone(), self.number.saturating_sub(1))?;
        } else if is(PREVIOUS) && self.page_name() == "item_page" {
            self.show_results(self.keywords.clone(), self.number)?;
        } else if let Some(about) = About::ALL.into_iter().find(|about| is(about.label())) {
            self.show_details(about)?;
        } else {
            self.show_product(text, meaning)?;
        }
        Ok(None)
    }

    /// The original searches for the first of these names anywhere in the page's address, including keywords
    /// and options.
    fn page_name(&self) -> &'static str {
        let names = ["search_results", "item_page", "item_sub_page", "done"];
        names.into_iter().find(|name| self.address.contains(name)).unwrap_or("")
    }

    fn show(&mut self, page: ShopPage, address: String) {
        self.clickables = page.clickables();
        self.page = page;
        self.address = address;
    }

    fn show_start(&mut self) {
        self.keywords.clear();
        self.number = 1;
        self.product = None;
        self.options.clear();
        self.show(ShopPage::Start, String::new());
    }

    fn show_results(&mut self, keywords: Vec<String>, number: u64) -> Result<(), Raised> {
        let words: Vec<&str> = keywords.iter().map(String::as_str).collect();
        let found = self.staff.search.search(&words)?;
        let first = number.saturating_sub(1).saturating_mul(WINDOW);
        let window = found.iter().skip(usize::try_from(first).unwrap_or(usize::MAX)).take(if number == 0 {
            0
        } else {
            WINDOW as usize
        });
        let shelf = self.staff.shop.shelf();
        let items = window
            .filter_map(|position| shelf.product(*position))
            .map(|product| ListedProduct {
                asin: product.asin.to_owned(),
                title: product.title.to_owned(),
                price_tag: product.price_tag.to_owned(),
            })
            .collect();
        let address = format!("search_results/{}/{number}", keywords.join("+"));
        self.keywords = keywords;
        self.number = number;
        self.product = None;
        self.options.clear();
        self.show(ShopPage::Results { number, total: found.len(), items }, address);
        Ok(())
    }

    fn show_product(&mut self, text: &str, meaning: Clickable) -> Result<(), Raised> {
        match meaning {
            Clickable::Product => {
                let asin = text.to_uppercase();
                self.product = Some(self.staff.shop.shelf().find(&asin).ok_or_else(|| unknown(&asin))?);
            }
            Clickable::Choice(group) => match self.options.iter_mut().find(|(known, _)| *known == group) {
                Some((_, value)) => text.clone_into(value),
                None => self.options.push((group, text.to_owned())),
            },
            Clickable::Button => {}
        }
        let product = self.current()?;
        let page = ProductPage {
            options: product
                .options
                .iter()
                .map(|(name, values)| {
                    ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
                })
                .collect(),
            chosen: self.options.clone(),
            title: product.title.to_owned(),
            price_tag: product.price_tag.to_owned(),
        };
        let address = self.address_of("item_page");
        self.show(ShopPage::Product(Box::new(page)), address);
        Ok(())
    }

    fn show_details(&mut self, about: About) -> Result<(), Raised> {
        let product = self.current()?;
        // The templates put a blank before each entry of a list.
        let listed = |texts: &[&str]| texts.iter().map(|text| format!(" {text}")).collect::<Vec<_>>();
        let texts = match about {
            About::Description => vec![product.description.to_owned()],
            About::Features => listed(&product.bullet_points),
            About::Reviews => Vec::new(),
            About::Attributes => {
                let mut texts = listed(&product.attributes);
                texts.extend([product.category, product.query, product.product_category].map(str::to_owned));
                texts
            }
        };
        let address = self.address_of("item_sub_page");
        self.show(ShopPage::Details(texts), address);
        Ok(())
    }

    fn address_of(&self, page: &str) -> String {
        let options: Vec<String> =
            self.options.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{page}/{}/{}/{}", self.keywords.join("+"), self.number, options.join(", "))
    }

    fn current(&self) -> Result<super::product::ProductView<'_>, Raised> {
        self.product
            .and_then(|position| self.staff.shop.shelf().product(position))
            .ok_or_else(|| unknown("None"))
    }

    fn buy(&mut self) -> Result<f64, Raised> {
        let product = self.current()?;
        let price = self.product.and_then(|position| self.staff.shop.shelf().price(position));
        let price = price.unwrap_or(f64::INFINITY);
        let bought = reward(&product, &self.goal, price, &self.options, &*self.staff.tagger);
        let reward = bought.reward();
        let page = ShopPage::Done { asin: product.asin.to_owned(), options: self.options.clone(), reward };
        self.show(page, "done".to_owned());
        self.bought = Some(bought);
        Ok(reward)
    }
}

fn unknown(asin: &str) -> Raised {
    Raised { exception: "KeyError", message: format!("there is no product {asin}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn brackets_are_read_greedily() {
        for (text, action) in [
            ("click[Buy Now] please", Some(ShopAction::Click("buy now".to_owned()))),
            ("search[ a ]]", Some(ShopAction::Search(" a ]".to_owned()))),
            ("click[]]", Some(ShopAction::Click("]".to_owned()))),
            ("search[a[b]", None),
            ("Click[a]", None),
            ("click[]", None),
            ("click[a\n]", None),
            ("buy now", None),
        ] {
            assert_eq!(ShopAction::parse(text), action, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(click|search)?[\\[\\]a-zİé\n ]{0,20}") {
            ShopAction::parse(&text);
        }
    }
}
