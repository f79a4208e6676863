//! Wikipedia over HTTP, read as by the original: `--tool wiki=live`.
//!
//! | module | purpose |
//! |---|---|
//! | [`site`] | addresses that may be requested; queries are a model's output |
//! | [`client`] | fetches a document: statuses, cache, decoding of the body |
//! | [`documents`] | cache on disk, for a whole sweep and many processes |
//!
//! Documents are parsed by [`page::read`], the only parser of pages.

mod client;
mod documents;
mod settings;
mod site;

use std::sync::Arc;

use async_trait::async_trait;
use client::{Client, Missing};
use lumos_http::HttpError;
use lumos_tasks::families::qa::page::{self, WikiPage};
use lumos_tasks::{Behaviour, ToolCall, ToolReply, WikiRequest};
use serde::Deserialize;
use site::Site;

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use super::corpus::{SEARCHED_SITE, page_address};
use super::replies::Remembering;
use super::tool::not_mine;
use super::{ToolFault, Tools};

pub use settings::WikiSettings;

/// `wiki=live`.
pub(super) const BACKEND: BackendDescription = BackendDescription {
    tool: Some("wiki"),
    forms: &["live"],
    parse: |_, backend| Ok((backend == "live").then(|| Box::new(NamedWiki) as Box<dyn NamedBackend>)),
};

/// Wikipedia with the settings of the environment.
struct NamedWiki;

impl NamedBackend for NamedWiki {
    fn version(&self) -> u32 {
        LiveWiki::VERSION
    }

    /// The environment sets the address, not the run.
    fn content(&self) -> Result<String, BackendError> {
        let settings = WikiSettings::from_environment().map_err(unusable)?;
        Ok(settings.other_site().map(|site| format!("#{site}")).unwrap_or_default())
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let wiki = WikiSettings::from_environment().and_then(LiveWiki::new).map_err(unusable)?;
        Ok(Arc::new(Remembering::new(Arc::new(wiki))))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn unusable(why: String) -> BackendError {
    BackendError::Named(format!("wiki=live: {why}"))
}

/// Wikipedia over HTTP.
#[derive(Debug)]
pub struct LiveWiki {
    site: Site,
    client: Client,
}

impl LiveWiki {
    /// Incremented when replies change for reasons other than [`page::READING_VERSION`].
    const OWN_VERSION: u32 = 1;

    /// Version of the code that determines the replies.
    const VERSION: u32 = Self::OWN_VERSION * 100 + page::READING_VERSION;

    /// Creates a client.
    ///
    /// # Errors
    /// If the endpoint is not a valid site address, or the client cannot be built.
    pub fn new(settings: WikiSettings) -> Result<Self, String> {
        let site = Site::new(&settings.endpoint)?;
        Ok(Self { client: Client::new(site.clone(), settings)?, site })
    }

    async fn page(&self, request: &WikiRequest, reading: Behaviour) -> Result<WikiPage, String> {
        let address = match self.site.address(request, reading) {
            Ok(address) => address,
            // An error of the agent: in the original such requests raise an exception.
            Err(message) => return Ok(WikiPage::Unreadable { message }),
        };
        let missing = match request {
            WikiRequest::Find(_) => Missing::IsFault,
            WikiRequest::Path(_) | WikiRequest::Address(_) => Missing::IsPage,
        };
        let page = self.client.document(address, missing, move |html| Ok(page::read(html, reading))).await;
        match page {
            // Also an error of the agent: every attempt at this address would end like this.
            Err(error) if error.is_refused => Ok(WikiPage::Unreadable { message: error.message }),
            page => page.map_err(|error| error.message),
        }
    }

    /// Uses the site's search instead of Google's: first for all words of the question, then for any of them.
    async fn search(&self, query: &str, most: u32) -> Result<Vec<String>, String> {
        let query = query.strip_suffix(SEARCHED_SITE).unwrap_or(query);
        for words in site::searches(query) {
            let address = self.site.search(&words, most);
            let titles = self.client.document(address, Missing::IsFault, found_titles).await;
            let titles = titles.map_err(|error| error.message)?;
            if !titles.is_empty() {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                return Ok(titles.iter().take(most).map(|title| page_address(&escaped(title))).collect());
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Tools for LiveWiki {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let reply = match call {
            ToolCall::Wiki { request, reading } => self.page(request, *reading).await.map(ToolReply::Wiki),
            ToolCall::Search { query, most } => self.search(query, *most).await.map(ToolReply::Search),
            _ => return Err(not_mine(call, "live")),
        };
        reply.map_err(|message| ToolFault { tool: "wiki".into(), message })
    }
}

/// A title in which what would end a path or begin an escape is percent-encoded, as in the addresses of a search engine.
fn escaped(title: &str) -> String {
    title.replace('%', "%25").replace('?', "%3F")
}

/// The fields of a search response that are used.
#[derive(Deserialize)]
struct Found {
    query: Option<FoundPages>,
    error: Option<FoundError>,
}

#[derive(Deserialize)]
struct FoundPages {
    search: Vec<FoundPage>,
}

#[derive(Deserialize)]
struct FoundPage {
    title: String,
}

#[derive(Deserialize)]
struct FoundError {
    code: String,
}

fn found_titles(json: &str) -> Result<Vec<String>, HttpError> {
    let Found { query, error } = serde_json::from_str(json)
        .map_err(|error| HttpError::again(format!("invalid response of the search: {error}")))?;
    match (query, error) {
        (_, Some(FoundError { code })) if matches!(code.as_str(), "ratelimited" | "maxlag" | "readonly") => {
            Err(HttpError::again(format!("the search returned an error: {code}")))
        }
        (_, Some(FoundError { code })) => {
            Err(HttpError::last(format!("the search returned an error: {code}")))
        }
        (Some(FoundPages { search }), None) => Ok(search.into_iter().map(|page| page.title).collect()),
        (None, None) => Err(HttpError::again("invalid response of the search: no results")),
    }
}
