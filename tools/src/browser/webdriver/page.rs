//! Commands of a browser session, and the folder of its screenshots.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fantoccini::elements::{Element, ElementRef};
use lumos_tasks::UnitId;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::error::{BrowserError, BrowserFault, BrowserRefusal};
use super::hosts::{BLANK, checked};
use super::pool::Shared;
use super::session::{Session, Shown};

/// Finds elements by role and accessible name.
const FIND: &str = include_str!("scripts/find.js");
/// Selects an option of a select element.
const OPTION: &str = include_str!("scripts/option.js");
/// Records whether the click on an element leaves the page. Returns whether the element is disabled.
const WATCH: &str = include_str!("scripts/watch.js");
/// Returns whether the page is about to be left after the click that [`WATCH`] recorded.
const LEAVING: &str = include_str!("scripts/leaving.js");
/// Time limit for a page to be left after a click. Downloads and answers without content never leave it.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);
/// Time between two checks whether the page was left.
const LEAVING_PAUSE: Duration = Duration::from_millis(10);
/// The key of an element reference in JSON, as defined by the WebDriver standard.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Maximum number of bytes of an element's identifier. Those of chromedriver have about 80.
const LONGEST_ID: usize = 256;
/// Maximum number of elements returned by a search.
const MOST_FOUND: usize = 1000;
/// Maximum number of bytes typed.
const MOST_TYPED: usize = 10_000;
/// Begins a document whose scripts, requests and form submissions are blocked.
const CONTAIN: &str = "document.open(); document.write(`<!DOCTYPE html><meta http-equiv=\"Content-Security-Policy\" \
                       content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; \
                       base-uri 'none'\">`); document.close();";

/// A leased browser. Dropping it returns the browser to the pool, or ends the browser if its last command
/// failed or was cancelled.
pub(crate) struct BrowserLease {
    session: Option<Session>,
    shared: Arc<Shared>,
    // Must be dropped after the session was returned.
    _place: OwnedSemaphorePermit,
}

/// An element of a page, valid until the page changes.
#[derive(Debug, Clone)]
pub(crate) struct PageElement(Element);

impl PageElement {
    /// Returns the element as an argument of [`BrowserLease::execute`].
    pub(crate) fn argument(&self) -> Value {
        json!({ ELEMENT: &*self.0.element_id() })
    }
}

impl Drop for BrowserLease {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.shared.take_back(session);
        }
    }
}

impl BrowserLease {
    pub(super) fn new(session: Session, shared: Arc<Shared>, place: OwnedSemaphorePermit) -> Self {
        Self { session: Some(session), shared, _place: place }
    }

    fn session(&mut self) -> Result<&mut Session, BrowserFault> {
        self.session.as_mut().ok_or_else(|| {
            BrowserFault::new("using a browser", "the session was already returned to the pool")
        })
    }

    /// Loads a page and waits until it is loaded.
    ///
    /// # Errors
    /// Refused if the address, or an address it redirects to, is not allowed. A fault if the page cannot be
    /// loaded within the time limit.
    pub(crate) async fn goto(&mut self, address: &str) -> Result<(), BrowserError> {
        const DOING: &str = "loading a page";
        let url = checked(&self.shared.settings.hosts, address)?;
        let session = self.session()?;
        session.set_offline(false).await?;
        session.shown = Shown::Site;
        let client = session.client();
        session.loading(DOING, client.goto(url.as_str())).await?;
        self.script(DOING, "", Vec::new()).await.map(drop)
    }

    /// Builds a page with a function body that reads its arguments from `arguments` and adds to the empty document.
    /// The page has no network access, and its own scripts are blocked, so that it cannot be left: commands on it do
    /// not wait for another page and do not check whether an element is disabled.
    ///
    /// # Errors
    /// A fault if the script fails, or with a browser other than Chromium.
    pub(crate) async fn build(&mut self, body: &str, arguments: Vec<Value>) -> Result<(), BrowserError> {
        let session = self.session()?;
        if session.shown != Shown::Nothing {
            session.reset().await?;
        }
        session.set_offline(true).await?;
        session.shown = Shown::Built;
        self.script("building a page", &format!("{CONTAIN}\n{body}"), arguments).await.map(drop)
    }

    /// Returns the page's address.
    ///
    /// # Errors
    /// See [`execute`](Self::execute).
    pub(crate) async fn address(&mut self) -> Result<String, BrowserError> {
        let address = self.script("reading the address", "return location.href;", Vec::new()).await?;
        Ok(address.as_str().unwrap_or_default().to_owned())
    }

    /// Returns the first visible element with an ARIA role (`button`, `link`, `textbox`, `searchbox`,
    /// `combobox`, `checkbox`, `radio`, `heading`, `listitem`, `img`, or any other that the page sets) and an
    /// accessible name. The name must be equal except for white space or, if no element matches, except for
    /// white space and case. Names are taken from labels, text, `aria-label`, `alt`, `placeholder` and
    /// `title`.
    ///
    /// # Errors
    /// Refused if no element matches.
    pub(crate) async fn find_by_role_and_text(
        &mut self,
        role: &str,
        text: &str,
    ) -> Result<PageElement, BrowserError> {
        let found = self.find_all(role, Some(text)).await?;
        let what = || format!("visible {role} named {text:?}");
        found.into_iter().next().ok_or_else(|| BrowserRefusal::NotFound(what()).into())
    }

    /// Returns all visible elements with a role, in document order, at most 1,000. If `text` is given, the
    /// name must match as in [`find_by_role_and_text`](Self::find_by_role_and_text).
    ///
    /// # Errors
    /// Faults only. If no element matches, the list is empty.
    pub(crate) async fn find_all(
        &mut self,
        role: &str,
        text: Option<&str>,
    ) -> Result<Vec<PageElement>, BrowserError> {
        let arguments = vec![json!(role), json!(text), json!(MOST_FOUND)];
        let found = self.script("finding elements", FIND, arguments).await?;
        let session = self.session()?;
        let found = found.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(found.iter().filter_map(|value| element(session, value)).collect())
    }

    /// Clicks in the middle of an element and waits for a page load that results from it.
    ///
    /// # Errors
    /// Refused if the element is hidden, covered, disabled or no longer on the page, or if the click led to an
    /// address that is not allowed.
    pub(crate) async fn click(&mut self, element: &PageElement) -> Result<(), BrowserError> {
        const DOING: &str = "clicking";
        self.prepare(DOING, element).await?;
        self.click_and_load(DOING, &element.0).await
    }

    /// Clicks and waits for a page load that results from it.
    ///
    /// chromedriver waits for page loads that it knows of. It returns before that if the browser reports the
    /// load late: a form is submitted in a task after the click. The page itself, which [`WATCH`] prepared, knows at
    /// once.
    async fn click_and_load(&mut self, doing: &'static str, element: &Element) -> Result<(), BrowserError> {
        self.session()?.loading(doing, element.click()).await?;
        if self.is_built()? {
            return Ok(());
        }
        let until = Instant::now() + LEAVING_LIMIT;
        while self.script(doing, LEAVING, Vec::new()).await? == Value::Bool(true) && Instant::now() < until {
            sleep(LEAVING_PAUSE).await;
        }
        Ok(())
    }

    /// Replaces the content of a text field, as if typed. Control characters become spaces, because a line
    /// break would submit the form.
    ///
    /// # Errors
    /// Refused if the element is not an editable field, or if the text is longer than 10,000 bytes.
    pub(crate) async fn type_text(&mut self, element: &PageElement, text: &str) -> Result<(), BrowserError> {
        const DOING: &str = "typing";
        if text.len() > MOST_TYPED {
            return Err(BrowserRefusal::TooLarge { bytes: text.len(), most: MOST_TYPED }.into());
        }
        // Drivers interpret characters of this private-use area as keys.
        let is_key = |character: char| ('\u{e000}'..='\u{f8ff}').contains(&character);
        let text: String = text
            .chars()
            .filter(|character| !is_key(*character))
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        self.prepare(DOING, element).await?;
        self.session()?.command(DOING, element.0.clear()).await?;
        if text.chars().all(|character| u32::from(character) <= 0xffff) {
            self.session()?.command(DOING, element.0.send_keys(&text)).await?;
        } else {
            // chromedriver cannot type characters outside the Basic Multilingual Plane; they are inserted
            // instead.
            self.script(DOING, "arguments[0].focus();", vec![element.argument()]).await?;
            self.session()?.devtools("Input.insertText", json!({ "text": text })).await?;
        }
        if self.is_built()? {
            return Ok(());
        }
        self.script(DOING, "", Vec::new()).await.map(drop)
    }

    /// Selects the option of a select element by its text or, if no text matches, by its value.
    ///
    /// # Errors
    /// Refused if the option does not exist, or if the element is not a select element.
    pub(crate) async fn select(&mut self, element: &PageElement, option: &str) -> Result<(), BrowserError> {
        const DOING: &str = "choosing an option";
        self.prepare(DOING, element).await?;
        let arguments = vec![element.argument(), json!(option)];
        let Ok(PageElement(chosen)) = self.find(OPTION, arguments).await? else {
            return Err(BrowserRefusal::NotFound(format!("option {option:?}")).into());
        };
        self.click_and_load(DOING, &chosen).await
    }

    /// Runs a function body in the page and returns its result as JSON. The body reads its arguments from
    /// `arguments`. Promises are not awaited.
    ///
    /// # Errors
    /// Refused if the page is not allowed. A fault if the script fails or times out.
    pub(crate) async fn execute(&mut self, body: &str, arguments: Vec<Value>) -> Result<Value, BrowserError> {
        self.script("running a script", body, arguments).await
    }

    /// Runs a function body, as [`execute`](Self::execute) does, that returns an element. The inner error is another
    /// value that it returned.
    ///
    /// # Errors
    /// See [`execute`](Self::execute).
    pub(crate) async fn find(
        &mut self,
        body: &str,
        arguments: Vec<Value>,
    ) -> Result<Result<PageElement, Value>, BrowserError> {
        let found = self.script("finding an element", body, arguments).await?;
        Ok(element(self.session()?, &found).ok_or(found))
    }

    /// Returns a screenshot of the visible part of the page, as PNG.
    ///
    /// # Errors
    /// Faults only.
    pub(crate) async fn screenshot(&mut self) -> Result<Vec<u8>, BrowserError> {
        let session = self.session()?;
        let client = session.client();
        session.command("taking a screenshot", client.screenshot()).await
    }

    /// Prepares the page for an action on an element. Refused if the element is disabled: clicks and keys on it would
    /// have no effect and cause no error.
    async fn prepare(&mut self, doing: &'static str, element: &PageElement) -> Result<(), BrowserError> {
        if self.is_built()? {
            return Ok(());
        }
        let is_disabled = self.script(doing, WATCH, vec![element.argument()]).await?;
        if is_disabled == Value::Bool(true) {
            return Err(BrowserRefusal::NotUsable("the element is disabled".to_owned()).into());
        }
        Ok(())
    }

    fn is_built(&mut self) -> Result<bool, BrowserFault> {
        Ok(self.session()?.shown == Shown::Built)
    }

    /// Runs a script and checks that the page it ran on is allowed.
    async fn script(
        &mut self,
        doing: &'static str,
        body: &str,
        arguments: Vec<Value>,
    ) -> Result<Value, BrowserError> {
        let wrapped = format!(
            "const value = (function() {{\n{body}\n}}).apply(null, arguments); return [location.href, value];"
        );
        let session = self.session()?;
        let client = session.client();
        let answer = session.loading(doing, client.execute(&wrapped, arguments)).await?;
        let Value::Array(parts) = answer else {
            return Err(BrowserFault::new(doing, "the script returned no address").into());
        };
        let mut parts = parts.into_iter();
        let (Some(Value::String(place)), value) = (parts.next(), parts.next()) else {
            return Err(BrowserFault::new(doing, "the script returned no address").into());
        };
        self.check_place(doing, &place).await?;
        Ok(value.unwrap_or_default())
    }

    /// Leaves a page that is not allowed.
    async fn check_place(&mut self, doing: &'static str, place: &str) -> Result<(), BrowserError> {
        if place == BLANK {
            return Ok(());
        }
        let failed = place.starts_with("chrome-error:");
        let session = self.session()?;
        let is_offline = session.is_offline;
        let place = if failed {
            // The address that failed to load.
            let client = session.client();
            session.command(doing, client.current_url()).await?.to_string()
        } else {
            place.to_owned()
        };
        let allowed = checked(&self.shared.settings.hosts, &place);
        let refusal = match allowed {
            Err(refusal) => refusal,
            Ok(_) if is_offline => BrowserRefusal::NotAllowed(place),
            Ok(_) if failed => {
                return Err(BrowserFault::new(doing, format!("failed to load {place}")).into());
            }
            Ok(_) => return Ok(()),
        };
        let session = self.session()?;
        session.shown = Shown::Site;
        session.show_nothing().await?;
        Err(refusal.into())
    }
}

/// Returns the element that a script returned.
fn element(session: &Session, value: &Value) -> Option<PageElement> {
    let id = value.get(ELEMENT)?.as_str().filter(|id| is_element_id(id))?;
    Some(PageElement(Element::from_element_id(session.client(), ElementRef::from(id.to_owned()))))
}

/// Whether the WebDriver server may have chosen an identifier. It becomes a segment of the path of requests, and a page
/// can make scripts return any value: `../..` would be another command.
fn is_element_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    id.len() <= LONGEST_ID
        && id.bytes().all(is_allowed)
        && id.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// A folder for the screenshots of one episode, named by the identifier of its unit as in the samples.
/// Failures are logged and do not stop the episode.
#[derive(Debug)]
pub(crate) struct Screenshots {
    folder: PathBuf,
    taken: AtomicU32,
}

impl Screenshots {
    /// Starts the screenshots of an episode. Removes those of an earlier attempt.
    pub(crate) async fn begin(below: Option<&Path>, unit: &UnitId) -> Option<Self> {
        let folder = below?.join(unit.as_str());
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %folder.display(), %error, "failed to remove older screenshots");
            }
            _ => {}
        }
        Some(Self { folder, taken: AtomicU32::new(0) })
    }

    /// Writes the screenshot of the next step, a PNG.
    pub(crate) async fn keep_next(&self, picture: Vec<u8>) {
        self.keep(self.taken.fetch_add(1, Ordering::Relaxed) + 1, picture).await;
    }

    /// Writes the screenshot of the step with this number, a PNG.
    pub(crate) async fn keep(&self, number: u32, picture: Vec<u8>) {
        let path = self.folder.join(format!("{number:04}.png"));
        let kept = async {
            tokio::fs::create_dir_all(&self.folder).await?;
            tokio::fs::write(&path, picture).await
        };
        if let Err(error) = kept.await {
            tracing::warn!(path = %path.display(), %error, "failed to write a screenshot");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_elements_stay_within_a_path_segment() {
        for id in ["f.0AB3C1.d.77F2.e.12", "3b1f6c9e-8a0d-4c2b-9a57-0c1d2e3f4a5b", "node_1"] {
            assert!(is_element_id(id), "{id}");
        }
        let long = "a".repeat(LONGEST_ID + 1);
        for id in ["", ".", "..", "../../url", "a/../b", "a%2f", "a?b", "a#b", "é", "a b", &long] {
            assert!(!is_element_id(id), "{id}");
        }
    }
}
