//! Executes an action on a page in a browser.
//!
//! The page is built in an empty document without network access and without its own scripts. Data from the
//! page or from a model is passed to the browser as arguments, never as script source.

use std::sync::Arc;
use std::time::Duration;

use lumos_tasks::families::web::{ActionName, Obstacle, PageAction, PageExecution, WebResult, WebStep};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::sheet;
use crate::browser::webdriver::{
    BrowserError, BrowserFault, BrowserLease, BrowserPool, BrowserRefusal, PageElement,
};
use crate::tool::{ToolFault, blocking};

/// Builds the page.
const BUILD: &str = include_str!("scripts/build.js");
/// Finds the element that an action really applies to and prepares it, or returns the obstacle.
const LOOK: &str = include_str!("scripts/look.js");
/// Returns whether an action took effect.
const EFFECT: &str = include_str!("scripts/effect.js");
/// Marks the prediction and the true element.
const MARK: &str = include_str!("scripts/mark.js");
/// Time limit for executing an action, once a browser is leased.
const LIMIT: Duration = Duration::from_secs(120);

/// Executes an action in a browser of the pool. Returns the result and, if `takes_picture`, a screenshot of the page
/// afterwards.
///
/// # Errors
/// If the browser fails. This is not a result of the action.
pub(super) async fn carry(
    pool: &BrowserPool,
    page: Arc<WebStep>,
    attempt: &PageAction,
    takes_picture: bool,
) -> Result<(PageExecution, Option<Vec<u8>>), ToolFault> {
    let truth = page.positives.first().cloned();
    let rows = match blocking("web", move || sheet::written(&page.page)).await? {
        Ok(rows) => rows,
        Err(obstacle) => {
            let refused = WebResult::Refused(obstacle);
            return Ok((PageExecution { action: refused, truth: truth.map(|_| refused) }, None));
        }
    };
    let mut stage = Stage { lease: pool.session().await? };
    let carrying = stage.carry(rows, attempt, truth.as_deref(), takes_picture);
    let late = || BrowserFault { doing: "executing an action", reason: format!("timed out after {LIMIT:?}") };
    Ok(timeout(LIMIT, carrying).await.map_err(|_| late())??)
}

/// Reasons why an action was not completed.
enum Stopped {
    Refused(Obstacle),
    Fault(BrowserFault),
}

impl Stopped {
    /// Reads the obstacle that [`LOOK`] returns.
    fn of(found: Value) -> Self {
        match serde_json::from_value(found) {
            Ok(obstacle) => Self::Refused(obstacle),
            Err(error) => {
                Self::Fault(BrowserFault { doing: "finding an element", reason: error.to_string() })
            }
        }
    }
}

impl From<BrowserError> for Stopped {
    fn from(error: BrowserError) -> Self {
        match error {
            BrowserError::Fault(fault) => Self::Fault(fault),
            BrowserError::Refused(refusal) => Self::Refused(obstacle(&refusal)),
        }
    }
}

/// Maps a browser's refusal to an obstacle. Its message is dropped: it contains pixel coordinates, which
/// differ between machines.
fn obstacle(refusal: &BrowserRefusal) -> Obstacle {
    match refusal {
        BrowserRefusal::NotFound(_) | BrowserRefusal::Gone => Obstacle::NoElement,
        BrowserRefusal::NotAllowed(_) => Obstacle::PageLeft,
        BrowserRefusal::TooLarge { .. } => Obstacle::TextTooLong,
        BrowserRefusal::NotUsable(reason) if reason.starts_with("element click intercepted") => {
            Obstacle::Covered
        }
        BrowserRefusal::NotUsable(reason) if reason.starts_with("invalid element state") => {
            Obstacle::NotEditable
        }
        BrowserRefusal::NotUsable(reason) if reason.contains("disabled") => Obstacle::Disabled,
        BrowserRefusal::NotUsable(_) => Obstacle::Hidden,
    }
}

/// Converts a refusal to a result. Fails if the browser failed.
fn executed(result: Result<(), Stopped>) -> Result<WebResult, BrowserFault> {
    match result {
        Ok(()) => Ok(WebResult::Done),
        Err(Stopped::Refused(obstacle)) => Ok(WebResult::Refused(obstacle)),
        Err(Stopped::Fault(fault)) => Err(fault),
    }
}

/// A browser with a page.
struct Stage {
    lease: BrowserLease,
}

impl Stage {
    async fn carry(
        &mut self,
        rows: String,
        attempt: &PageAction,
        truth: Option<&str>,
        takes_picture: bool,
    ) -> Result<(PageExecution, Option<Vec<u8>>), BrowserFault> {
        let built = executed(self.build(rows).await)?;
        if !built.is_done() {
            return Ok((PageExecution { action: built, truth: truth.map(|_| built) }, None));
        }
        let text = attempt.text.as_deref().unwrap_or_default();
        let action = executed(self.act(&attempt.element, attempt.action, text).await)?;
        let truth = match truth {
            None => None,
            Some(id) if attempt.action == ActionName::Click && id == attempt.element => Some((id, action)),
            Some(id) => Some((id, executed(self.act(id, ActionName::Click, "").await)?)),
        };
        let carried = PageExecution { action, truth: truth.map(|(_, executed)| executed) };
        let picture = if takes_picture {
            Some(self.picture(attempt, action, truth.map(|(id, _)| id)).await?)
        } else {
            None
        };
        Ok((carried, picture))
    }

    async fn build(&mut self, rows: String) -> Result<(), Stopped> {
        Ok(self.lease.build(BUILD, vec![json!(rows)]).await?)
    }

    /// Executes an action on the element with this id and checks that it took effect.
    async fn act(&mut self, id: &str, action: ActionName, text: &str) -> Result<(), Stopped> {
        let target = match self.lease.find(LOOK, vec![json!(sheet::selector(id)), json!(action)]).await? {
            Ok(target) => target,
            Err(found) => return Err(Stopped::of(found)),
        };
        match action {
            ActionName::Click => self.lease.click(&target).await?,
            ActionName::Type => self.lease.type_text(&target, text).await?,
            ActionName::Select => self.select(&target, text).await?,
        }
        let arguments = vec![target.argument(), json!(action), json!(text)];
        match self.lease.execute(EFFECT, arguments).await? {
            Value::Bool(true) => Ok(()),
            _ => Err(Stopped::Refused(Obstacle::NoEffect)),
        }
    }

    async fn select(&mut self, list: &PageElement, option: &str) -> Result<(), Stopped> {
        match self.lease.select(list, option).await {
            Err(BrowserError::Refused(BrowserRefusal::NotFound(_))) => {
                Err(Stopped::Refused(Obstacle::NoOption))
            }
            other => Ok(other?),
        }
    }

    /// Takes a screenshot that marks the prediction and the true element.
    async fn picture(
        &mut self,
        attempt: &PageAction,
        action: WebResult,
        truth: Option<&str>,
    ) -> Result<Vec<u8>, BrowserFault> {
        let word = attempt.action.word();
        let label = match action {
            WebResult::Done => format!("prediction: {word}"),
            WebResult::Refused(obstacle) => format!("prediction: {word} ({})", obstacle.words()),
        };
        let [prediction, truth] =
            [Some(attempt.element.as_str()), truth].map(|id| json!(id.map(sheet::selector)));
        let marked = self.lease.execute(MARK, vec![prediction, truth, json!(label), json!("truth")]).await;
        let pictured = match marked {
            Ok(_) => self.lease.screenshot().await,
            Err(error) => Err(error),
        };
        pictured.map_err(|error| match error {
            BrowserError::Fault(fault) => fault,
            BrowserError::Refused(refusal) => {
                BrowserFault { doing: "taking a screenshot", reason: refusal.to_string() }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_obstacles_without_the_browsers_words() {
        let not_usable = |reason: &str| BrowserRefusal::NotUsable(reason.to_owned());
        for (refusal, expected) in [
            (BrowserRefusal::Gone, Obstacle::NoElement),
            (BrowserRefusal::NotAllowed("file:///".to_owned()), Obstacle::PageLeft),
            (BrowserRefusal::TooLarge { bytes: 2, most: 1 }, Obstacle::TextTooLong),
            (not_usable("element click intercepted: <p> disabled </p>"), Obstacle::Covered),
            (not_usable("invalid element state"), Obstacle::NotEditable),
            (not_usable("it is disabled"), Obstacle::Disabled),
            (not_usable("element not interactable"), Obstacle::Hidden),
        ] {
            assert_eq!(obstacle(&refusal), expected, "{refusal}");
        }
    }
}
