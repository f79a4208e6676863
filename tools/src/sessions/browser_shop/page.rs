//! A page of the site, as read from the browser.

use lumos_environments::shop::{Clickable, ElementRole, TextElement, clickables_of, observation_of};
use lumos_tasks::families::shop::{Purchase, ShopReply};
use serde::Deserialize;
use serde_json::Value;

/// Content of a page.
#[derive(Debug)]
pub(super) struct Page {
    /// Number of actions of the visit so far.
    pub(super) step: u64,
    elements: Vec<TextElement>,
    /// The texts of the elements as displayed. HTML cannot represent some characters.
    visible: Vec<String>,
    /// The exception raised by the last action.
    pub(super) raised: Option<String>,
    purchase: Option<Purchase>,
}

/// The element to click: its ARIA role, its exact text and its displayed text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) role: &'static str,
    pub(super) text: String,
    pub(super) visible: String,
}

/// The output of the script that reads the page.
#[derive(Deserialize)]
struct Read {
    step: u64,
    elements: Vec<(String, String, String)>,
    raised: Option<String>,
    purchase: Option<ReadPurchase>,
}

/// Attributes of the page after a purchase. Numbers are strings, so that they are not rounded.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadPurchase {
    asin: String,
    reward: String,
    lowest: String,
    highest: String,
    by_group: String,
    r_type: String,
}

impl Page {
    /// Parses the output of the script. Returns `None` if it is not a page of the site.
    pub(super) fn of(value: Value) -> Option<Self> {
        let read: Read = serde_json::from_value(value).ok()?;
        let mut visible = Vec::with_capacity(read.elements.len());
        let elements = read.elements.into_iter().map(|(role, text, seen)| {
            visible.push(seen);
            let role = match role.as_str() {
                "heading" => ElementRole::Heading,
                "text" => ElementRole::Text,
                "link" => ElementRole::Link,
                "button" => ElementRole::Button,
                // The group of a choice is not needed: the shop determines it from the text of the click.
                "radio" => ElementRole::Choice { group: String::new(), chosen: false },
                _ => return None,
            };
            Some(TextElement { role, text })
        });
        let purchase = match read.purchase {
            Some(purchase) => Some(purchase.parse()?),
            None => None,
        };
        let elements = elements.collect::<Option<_>>()?;
        Some(Self { step: read.step, elements, visible, raised: read.raised, purchase })
    }

    /// Returns the reply to the action that led to this page. It contains the purchase only if the action was
    /// a click.
    pub(super) fn reply(&self, has_clicked: bool) -> ShopReply {
        ShopReply {
            observation: observation_of(self.elements.iter().map(|element| element.text.as_str())),
            clickables: self.clickables().into_iter().map(|(text, _)| text).collect(),
            purchase: self.purchase.clone().filter(|_| has_clicked),
        }
    }

    fn clickables(&self) -> Vec<(String, Clickable)> {
        clickables_of(self.elements.iter().cloned())
    }

    /// Returns the element that a click on this text selects. As in the original, the last of several
    /// matching elements is used, and choices have precedence over other elements.
    pub(super) fn target(&self, text: &str) -> Option<Target> {
        let found = |is: &dyn Fn(&TextElement) -> bool| {
            self.elements.iter().zip(&self.visible).rev().find(|(element, _)| is(element))
        };
        let choice =
            found(&|element| matches!(element.role, ElementRole::Choice { .. }) && element.text == text);
        let (element, visible) = choice.or_else(|| {
            let is_other = |role: &ElementRole| matches!(role, ElementRole::Button | ElementRole::Link);
            found(&|element| is_other(&element.role) && element.text.to_lowercase() == text)
        })?;
        let role = match element.role {
            ElementRole::Choice { .. } => "radio",
            ElementRole::Link => "link",
            _ => "button",
        };
        Some(Target { role, text: element.text.clone(), visible: visible.clone() })
    }
}

impl ReadPurchase {
    fn parse(self) -> Option<Purchase> {
        let by_group: Vec<f64> = self.by_group.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Purchase {
            asin: self.asin,
            reward: self.reward.parse().ok()?,
            lowest: self.lowest.parse().ok()?,
            highest: self.highest.parse().ok()?,
            by_group: by_group.try_into().ok()?,
            r_type: self.r_type.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(elements: &[[&str; 2]]) -> Page {
        let elements: Vec<_> = elements.iter().map(|[role, text]| [role, text, text]).collect();
        Page::of(json!({ "step": 3, "elements": elements, "raised": null, "purchase": null })).unwrap()
    }

    #[test]
    fn the_last_meaning_of_a_text_is_clicked() {
        let page = page(&[
            ["button", "Buy Now"],
            ["radio", "red"],
            ["heading", "blue"],
            ["radio", "buy now"],
            ["link", "B01"],
        ]);
        let target = |text| page.target(text).map(|target| (target.role, target.visible));
        assert_eq!(target("buy now"), Some(("radio", "buy now".to_owned())));
        assert_eq!(target("b01"), Some(("link", "B01".to_owned())));
        assert_eq!(target("B01"), None);
        assert_eq!(target("blue"), None);
        assert_eq!(page.reply(true).clickables, ["buy now", "b01", "red"]);
    }

    #[test]
    fn rewards_are_read_to_the_last_bit() {
        let reward = 0.1 + 0.2;
        let purchase = json!({
            "step": "4", "asin": "B01", "reward": reward.to_string(), "lowest": "0", "highest": "1",
            "byGroup": "0.3333333333333333 0 1", "rType": "0.5",
        });
        let value = json!({ "step": 4, "elements": [], "raised": null, "purchase": purchase });
        let page = Page::of(value).unwrap();
        let purchase = page.reply(true).purchase.unwrap();
        assert_eq!((purchase.reward, purchase.by_group[0]), (reward, 1.0 / 3.0));
        assert_eq!(page.reply(false).purchase, None);
    }

    #[test]
    fn other_pages_are_none() {
        assert!(Page::of(json!({ "step": 1 })).is_none());
        let odd = json!({ "step": 1, "elements": [["marquee", "x", "x"]], "raised": null, "purchase": null });
        assert!(Page::of(odd).is_none());
    }
}
