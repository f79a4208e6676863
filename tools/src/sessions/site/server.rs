//! The HTTP server of the site.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lumos_environments::shop::{Goal, ShopServices};
use lumos_http::{HttpLimits, serve as serve_http};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::render;
use super::visits::Visits;

/// Maximum size of a form, in bytes. Visits keep the search queries, in up to twenty times as much memory.
const LONGEST_FORM: usize = 32 << 10;
/// Maximum number of visits if any client can start them.
const MOST_OF_CLIENTS: usize = 400;
/// Maximum number of visits if only this process starts them, one for each running episode.
const MOST_OF_EPISODES: usize = 10_000;
/// Time limit for a request, from its headers to the response. It also ends forms that are sent byte by byte.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// A shop and the goals for which clients can start visits.
#[derive(Debug)]
pub struct Site {
    staff: ShopServices,
    goals: Vec<Goal>,
    visits: Visits,
}

impl Site {
    /// Creates the site of a shop. Clients can start visits for `goals`. If there are too many visits, the
    /// oldest one ends.
    pub fn new(staff: ShopServices, goals: Vec<Goal>) -> Self {
        let most = if goals.is_empty() { MOST_OF_EPISODES } else { MOST_OF_CLIENTS };
        Self { staff, goals, visits: Visits::at_most(most) }
    }

    /// Starts a visit for a goal. Returns its path on the site.
    pub fn begin(&self, goal: Goal) -> String {
        format!("/visits/{}", self.visits.begin(&self.staff, goal))
    }

    /// Ends the visit at a path.
    pub fn end(&self, path: &str) {
        if let Some(name) = path.strip_prefix("/visits/") {
            self.visits.end(name);
        }
    }
}

/// The site's routes.
pub fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(start))
        .route("/visits", post(begin))
        .route("/visits/{visit}", get(show))
        .route("/visits/{visit}/search", post(search))
        .route("/visits/{visit}/click", get(click).post(click))
        .route("/visits/{visit}/state", get(state))
        .layer(DefaultBodyLimit::max(LONGEST_FORM))
        .layer(middleware::from_fn(in_time))
        .with_state(site)
}

/// Serves the site until `drain` is cancelled and all requests in progress are answered.
pub async fn serve(listener: TcpListener, site: Arc<Site>, limits: HttpLimits, drain: CancellationToken) {
    serve_http(listener, router(site), limits, drain).await;
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "request timed out").into_response();
    tokio::time::timeout(REQUEST_TIME, next.run(request)).await.unwrap_or_else(late)
}

/// Errors of a page request.
enum Refusal {
    NoVisit,
    NoGoal,
    Broken(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoVisit => (StatusCode::NOT_FOUND, "visit not found; start one at /").into_response(),
            Self::NoGoal => (StatusCode::BAD_REQUEST, "goal not found").into_response(),
            Self::Broken(message) => (StatusCode::INTERNAL_SERVER_ERROR, message).into_response(),
        }
    }
}

fn html(rendered: Result<String, minijinja::Error>) -> Result<Response, Refusal> {
    let page = rendered.map_err(|error| Refusal::Broken(error.to_string()))?;
    // A cached page would show an outdated state of the visit.
    Ok(([(header::CACHE_CONTROL, "no-store")], Html(page)).into_response())
}

async fn start(State(site): State<Arc<Site>>) -> Result<Response, Refusal> {
    html(render::start(site.goals.len(), site.staff.shop.shelf().on_sale()))
}

#[derive(Deserialize)]
struct Chosen {
    goal: usize,
}

async fn begin(State(site): State<Arc<Site>>, Form(chosen): Form<Chosen>) -> Result<Redirect, Refusal> {
    let goal = site.goals.get(chosen.goal).ok_or(Refusal::NoGoal)?.clone();
    Ok(Redirect::to(&site.begin(goal)))
}

async fn show(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let place = site.visits.find(&name).ok_or(Refusal::NoVisit)?;
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    html(render::page(&place, &format!("/visits/{name}")))
}

#[derive(Deserialize)]
struct Asked {
    query: String,
}

async fn search(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    Form(asked): Form<Asked>,
) -> Result<Redirect, Refusal> {
    act(site, name, format!("search[{}]", asked.query)).await
}

#[derive(Deserialize)]
struct Clicked {
    text: String,
}

/// The text is part of the address, because forms normalize line breaks.
async fn click(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    Query(clicked): Query<Clicked>,
) -> Result<Redirect, Refusal> {
    act(site, name, format!("click[{}]", clicked.text)).await
}

/// Executes an action and redirects to the resulting page.
async fn act(site: Arc<Site>, name: String, action: String) -> Result<Redirect, Refusal> {
    let place = site.visits.find(&name).ok_or(Refusal::NoVisit)?;
    tokio::task::spawn_blocking(move || {
        place.lock().unwrap_or_else(PoisonError::into_inner).step(&action);
    })
    .await
    .map_err(|error| Refusal::Broken(error.to_string()))?;
    Ok(Redirect::to(&format!("/visits/{name}")))
}

/// Returns the state of a visit, to verify what a browser reads from its page.
async fn state(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let place = site.visits.find(&name).ok_or(Refusal::NoVisit)?;
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let visit = &place.visit;
    let state = serde_json::json!({
        "observation": visit.observation(),
        "clickables": visit.clickables(),
        "reward": visit.bought().map(lumos_environments::shop::PurchaseReward::reward),
    });
    Ok(Json(state).into_response())
}
