//! The encyclopaedia over HTTP, read as the original reads it: `--tool wiki=live`.
//!
//! | part | what it does |
//! |---|---|
//! | [`site`] | which addresses are asked: queries are a model's output |
//! | [`client`] | one document: pace, retries, redirects, limits |
//! | [`charset`] | bytes as text |
//! | [`documents`] | documents kept on disk, for a whole sweep and many processes |
//!
//! What a document says is read by [`page::read`], the one reader of pages.

mod charset;
mod client;
mod documents;
mod settings;
mod site;

use async_trait::async_trait;
use lumos_tasks::families::qa::page::{self, Page};
use lumos_tasks::{Behaviour, ToolCall, ToolReply, WikiRequest};
use serde::Deserialize;

use super::address::page_address;
use super::corpus::SEARCHED_SITE;
use super::set::not_mine;
use super::{ToolFault, Tools};
use client::{Attempt, Client, Missing};
use site::Site;

pub use settings::WikiSettings;

/// The encyclopaedia over HTTP.
#[derive(Debug)]
pub struct LiveWiki {
    site: Site,
    client: Client,
}

impl LiveWiki {
    /// Raised when answers change beyond what [`page::READING_VERSION`] tells.
    const OWN_VERSION: u32 = 1;

    /// What of the code the answers depend on.
    pub(super) const VERSION: u32 = Self::OWN_VERSION * 100 + page::READING_VERSION;

    /// Sets a client up.
    ///
    /// # Errors
    /// If the endpoint is not a valid address of a site, or the client cannot be built.
    pub fn new(settings: WikiSettings) -> Result<Self, String> {
        let site = Site::new(&settings.endpoint)?;
        Ok(Self { client: Client::new(site.clone(), settings)?, site })
    }

    async fn page(&self, request: &WikiRequest, reading: Behaviour) -> Result<Page, String> {
        let address = match self.site.address(request, reading) {
            Ok(address) => address,
            // The agent's doing: in the original such requests raise.
            Err(message) => return Ok(Page::Unreadable { message }),
        };
        let missing = match request {
            WikiRequest::Find(_) => Missing::IsFault,
            WikiRequest::Path(_) | WikiRequest::Address(_) => Missing::IsPage,
        };
        self.client.document(address, missing, move |html| Ok(page::read(html, reading))).await
    }

    /// The site's search in place of Google's: first for all words of the question, then for any.
    async fn search(&self, query: &str, most: u32) -> Result<Vec<String>, String> {
        let query = query.strip_suffix(SEARCHED_SITE).unwrap_or(query);
        for words in site::searches(query) {
            let address = self.site.search(&words, most);
            let titles = self.client.document(address, Missing::IsFault, found_titles).await?;
            if !titles.is_empty() {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                return Ok(titles.iter().take(most).map(|title| page_address(title)).collect());
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
        reply.map_err(|message| ToolFault { tool: "wiki", message })
    }
}

/// What the search's interface answers, as far as it is read.
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

fn found_titles(json: &str) -> Result<Vec<String>, Attempt> {
    let Found { query, error } = serde_json::from_str(json)
        .map_err(|error| Attempt::again(format!("invalid response of the search: {error}")))?;
    match (query, error) {
        (_, Some(FoundError { code })) if matches!(code.as_str(), "ratelimited" | "maxlag" | "readonly") => {
            Err(Attempt::again(format!("the search returned an error: {code}")))
        }
        (_, Some(FoundError { code })) => {
            Err(Attempt::Final(format!("the search returned an error: {code}")))
        }
        (Some(FoundPages { search }), None) => Ok(search.into_iter().map(|page| page.title).collect()),
        (None, None) => Err(Attempt::again("invalid response of the search: no results")),
    }
}
