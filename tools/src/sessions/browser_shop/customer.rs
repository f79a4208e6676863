//! Controls a page of the shop with keyboard and mouse.

use std::time::Duration;

use lumos_environments::shop::ShopAction;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::page::{Page, Target};
use crate::browser::webdriver::{BrowserError, BrowserLease, PageElement};

/// Reads the content of the page.
const READ: &str = include_str!("read.js");
/// Sets the content of a field, as if pasted.
const PASTE: &str = "const [field, text] = arguments; field.focus(); field.value = text;\
                     field.dispatchEvent(new InputEvent('input', { bubbles: true }));";
/// Returns the content of a field.
const HELD: &str = "return arguments[0].value;";
/// Returns the exact texts of elements.
const TEXTS: &str = "return Array.from(arguments, (element) => element.dataset.exact === undefined ? \
                     element.textContent : decodeURIComponent(element.dataset.exact));";

/// Time limit for loading the next page.
const NEXT_PAGE: Duration = Duration::from_secs(30);
/// Interval at which the page is polled.
const LOOKS: Duration = Duration::from_millis(10);
/// Maximum length of text that is typed, in bytes. Longer text is pasted.
const TYPED: usize = 2_000;

/// Infrastructure errors of a shop visit in a browser.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Browser(#[from] BrowserError),
    #[error("the next page of the site did not load within {} s", NEXT_PAGE.as_secs())]
    NoPage,
    #[error("not a page of the shop: {0}")]
    OtherPage(String),
    #[error("{role} {text:?} is on the page, but not found in the browser")]
    NotFound { role: &'static str, text: String },
    #[error("the search field does not contain the typed text")]
    NotTyped,
}

/// A browser that shows the page of a visit.
pub(super) struct ShopDriver {
    pub(super) lease: BrowserLease,
    pub(super) page: Page,
    /// Whether the last action clicked something.
    pub(super) has_clicked: bool,
}

impl ShopDriver {
    /// Opens the page of a visit.
    pub(super) async fn enter(mut lease: BrowserLease, address: &str) -> Result<Self, Trouble> {
        lease.goto(address).await?;
        let page = next_page(&mut lease, None).await?;
        Ok(Self { lease, page, has_clicked: false })
    }

    /// Executes an action. Invalid actions and targets that cannot be clicked have no effect. The inner error
    /// is the exception that the original raises.
    pub(super) async fn act(&mut self, action: &str) -> Result<Result<(), String>, Trouble> {
        self.has_clicked = false;
        match ShopAction::parse(action) {
            Some(ShopAction::Search(text)) => self.search(&text).await?,
            // The original does not accept a click as a search.
            Some(ShopAction::Click(text)) if text != "search" => {
                let Some(target) = self.page.target(&text) else { return Ok(Ok(())) };
                self.click(target).await?;
                self.has_clicked = true;
            }
            Some(ShopAction::Click(_)) | None => return Ok(Ok(())),
        }
        self.page = next_page(&mut self.lease, Some(self.page.step + 1)).await?;
        Ok(match self.page.raised.take() {
            Some(raised) => Err(raised),
            None => Ok(()),
        })
    }

    /// Types into the search field and clicks the search button.
    async fn search(&mut self, text: &str) -> Result<(), Trouble> {
        // Browsers remove carriage returns from single-line fields.
        let text = text.replace('\r', "\u{b}");
        let field = self.lease.find_by_role_and_text("searchbox", "Search").await?;
        if can_be_typed(&text) {
            self.lease.type_text(&field, &text).await?;
        } else {
            self.lease.execute(PASTE, vec![field.argument(), json!(text)]).await?;
        }
        if self.lease.execute(HELD, vec![field.argument()]).await? != Value::String(text) {
            return Err(Trouble::NotTyped);
        }
        let button = self.lease.find_by_role_and_text("button", "Search").await?;
        Ok(self.lease.click(&button).await?)
    }

    /// Clicks the element with this role and text. The browser compares names without white space; if several
    /// match, their exact texts are compared.
    async fn click(&mut self, Target { role, text, visible }: Target) -> Result<(), Trouble> {
        let found = self.lease.find_all(role, Some(&visible)).await?;
        let element = match <[PageElement; 1]>::try_from(found) {
            Ok([only]) => Some(only),
            Err(found) => {
                let arguments = found.iter().map(PageElement::argument).collect();
                let texts = self.lease.execute(TEXTS, arguments).await?;
                let same = texts.as_array().and_then(|texts| texts.iter().rposition(|one| *one == text));
                same.and_then(|index| found.into_iter().nth(index))
            }
        };
        let element = element.ok_or(Trouble::NotFound { role, text })?;
        Ok(self.lease.click(&element).await?)
    }
}

/// Waits for the page after `step` actions of the visit, or for any page, and reads it.
async fn next_page(lease: &mut BrowserLease, step: Option<u64>) -> Result<Page, Trouble> {
    let asked = Instant::now();
    loop {
        let read = lease.execute(READ, vec![json!(step)]).await?;
        if !read.is_null() {
            return match Page::of(read) {
                Some(page) => Ok(page),
                None => Err(Trouble::OtherPage(lease.address().await?)),
            };
        }
        if asked.elapsed() > NEXT_PAGE {
            return Err(Trouble::NoPage);
        }
        sleep(LOOKS).await;
    }
}

/// Whether a text can be typed: every character has a key, and the text is not too long.
fn can_be_typed(text: &str) -> bool {
    let has_key = |character: char| {
        !character.is_control()
            && u32::from(character) <= 0xffff
            && !('\u{e000}'..='\u{f8ff}').contains(&character)
    };
    text.len() <= TYPED && text.chars().all(has_key)
}
