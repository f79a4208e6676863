//! The server.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lumos_environments::shop::{Goal, Staff};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::render;
use super::visits::Visits;
use crate::http_server::{self, HttpLimits};

/// The longest form that is taken, in bytes: visits keep what was searched for, twenty times as large.
const LONGEST_FORM: usize = 32 << 10;
/// Visits at a time where whoever comes may begin them.
const MOST_OF_CLIENTS: usize = 400;
/// Visits at a time where this process begins them, one for each episode at hand.
const MOST_OF_EPISODES: usize = 10_000;
/// How long a request may take, from its headers to its answer; a form that is sent byte by byte ends then.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// What the site serves: a shop, and the goals that visits may be for.
#[derive(Debug)]
pub struct Site {
    staff: Staff,
    goals: Vec<Goal>,
    visits: Visits,
}

impl Site {
    /// The site of a shop. Clients may begin visits for these goals; the visit that was begun first ends where there are
    /// too many.
    pub fn new(staff: Staff, goals: Vec<Goal>) -> Self {
        let most = if goals.is_empty() { MOST_OF_EPISODES } else { MOST_OF_CLIENTS };
        Self { staff, goals, visits: Visits::at_most(most) }
    }

    /// Begins a visit for a goal; its path on the site.
    pub fn begin(&self, goal: Goal) -> String {
        format!("/visits/{}", self.visits.begin(&self.staff, goal))
    }

    /// Ends a visit by its path.
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

/// Serves the site until `drain` is cancelled and what was asked is answered.
pub async fn serve(listener: TcpListener, site: Arc<Site>, limits: HttpLimits, drain: CancellationToken) {
    http_server::serve(listener, router(site), limits, drain).await;
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "the request took too long").into_response();
    tokio::time::timeout(REQUEST_TIME, next.run(request)).await.unwrap_or_else(late)
}

/// Why a page is not shown.
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
    // A page that is shown again from a cache would show another state of the visit.
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

/// The text is part of the address, because forms change the ends of lines.
async fn click(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    Query(clicked): Query<Clicked>,
) -> Result<Redirect, Refusal> {
    act(site, name, format!("click[{}]", clicked.text)).await
}

/// Carries an action out and shows where that leads.
async fn act(site: Arc<Site>, name: String, action: String) -> Result<Redirect, Refusal> {
    let place = site.visits.find(&name).ok_or(Refusal::NoVisit)?;
    tokio::task::spawn_blocking(move || {
        place.lock().unwrap_or_else(PoisonError::into_inner).step(&action);
    })
    .await
    .map_err(|error| Refusal::Broken(error.to_string()))?;
    Ok(Redirect::to(&format!("/visits/{name}")))
}

/// Where a visit stands, for those who check a browser's reading of it.
async fn state(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let place = site.visits.find(&name).ok_or(Refusal::NoVisit)?;
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let visit = &place.visit;
    let state = serde_json::json!({
        "observation": visit.observation(),
        "clickables": visit.clickables(),
        "reward": visit.bought().map(lumos_environments::shop::Reward::reward),
    });
    Ok(Json(state).into_response())
}
