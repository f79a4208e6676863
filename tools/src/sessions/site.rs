//! The shop as a website: one server, with a separate visit for each user.
//!
//! The `<main>` element of a page has exactly the texts of the observation, in the same order: a clickable is
//! a button, a link or a radio button with the clickable's text. Reading the texts and clicking by role and
//! text, manually or with a browser driver, therefore has the same effect as the in-memory shop.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lumos_environments::shop::{ElementRole, Goal, Raised, ShopServices, ShopSession, TextElement};
use lumos_http::{HttpLimits, serve as serve_http};
use minijinja::{AutoEscape, Environment, Value, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rand::Rng;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Maximum size of a form, in bytes. Visits keep the search queries, in up to twenty times as much memory.
const LONGEST_FORM: usize = 32 << 10;
/// Maximum number of visits if any client can start them.
const MOST_OF_CLIENTS: usize = 400;
/// Maximum number of visits if only this process starts them, one for each running episode.
const MOST_OF_EPISODES: usize = 10_000;
/// Time limit for a request, from its headers to the response. It also ends forms that are sent byte by byte.
const REQUEST_TIME: Duration = Duration::from_secs(30);

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, text) in [("page", include_str!("site/page.html")), ("start", include_str!("site/start.html"))]
    {
        environment.add_template(name, text).expect("the shipped templates are well-formed");
    }
    environment
});

/// A visit and the effect of its last action.
#[derive(Debug)]
struct Place {
    /// The visit.
    visit: ShopSession,
    /// Number of actions so far. A client that waits for a page uses it to detect the next one.
    steps: u64,
    /// The exception raised by the last action.
    raised: Option<Raised>,
}

impl Place {
    /// Executes an action. An action that raises an exception in the original does not change the visit.
    fn step(&mut self, action: &str) {
        self.steps += 1;
        self.raised = self.visit.step(action).err();
    }
}

/// Visits by unguessable name, with their order, and the number of visits so far.
#[derive(Debug, Default)]
struct Visits {
    open: HashMap<String, (u64, Arc<Mutex<Place>>)>,
    begun: u64,
}

/// A shop and the goals for which clients can start visits.
#[derive(Debug)]
pub struct Site {
    staff: ShopServices,
    goals: Vec<Goal>,
    /// When there are more visits, the oldest one ends.
    most: usize,
    visits: Mutex<Visits>,
}

impl Site {
    /// Creates the site of a shop. Clients can start visits for `goals`. If there are too many visits, the
    /// oldest one ends.
    pub fn new(staff: ShopServices, goals: Vec<Goal>) -> Self {
        let most = if goals.is_empty() { MOST_OF_EPISODES } else { MOST_OF_CLIENTS };
        Self { staff, goals, most, visits: Mutex::default() }
    }

    /// Starts a visit for a goal. Returns its path on the site.
    pub fn begin(&self, goal: Goal) -> String {
        let name = format!("{:032x}", rand::rng().random::<u128>());
        let place = Place { visit: ShopSession::new(self.staff.clone(), goal), steps: 0, raised: None };
        let path = format!("/visits/{name}");
        let mut visits = self.visits();
        if visits.open.len() >= self.most {
            let oldest =
                visits.open.iter().min_by_key(|(_, (begun, _))| *begun).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| visits.open.remove(&oldest));
        }
        visits.begun += 1;
        let begun = visits.begun;
        visits.open.insert(name, (begun, Arc::new(Mutex::new(place))));
        path
    }

    /// Ends the visit at a path.
    pub fn end(&self, path: &str) {
        if let Some(name) = path.strip_prefix("/visits/") {
            self.visits().open.remove(name);
        }
    }

    /// Returns the visit with this name.
    fn find(&self, name: &str) -> Result<Arc<Mutex<Place>>, Refusal> {
        self.visits().open.get(name).map(|(_, place)| Arc::clone(place)).ok_or(Refusal::NoVisit)
    }

    fn visits(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The site's routes.
fn router(site: Arc<Site>) -> Router {
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
    html(render_start(site.goals.len(), site.staff.shop.shelf().on_sale()))
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
    let place = site.find(&name)?;
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    html(render_page(&place, &format!("/visits/{name}")))
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
    let place = site.find(&name)?;
    tokio::task::spawn_blocking(move || {
        place.lock().unwrap_or_else(PoisonError::into_inner).step(&action);
    })
    .await
    .map_err(|error| Refusal::Broken(error.to_string()))?;
    Ok(Redirect::to(&format!("/visits/{name}")))
}

/// Returns the state of a visit, to verify what a browser reads from its page.
async fn state(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let place = site.find(&name)?;
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let visit = &place.visit;
    let state = serde_json::json!({
        "observation": visit.observation(),
        "clickables": visit.clickables(),
        "reward": visit.bought().map(lumos_environments::shop::PurchaseReward::reward),
    });
    Ok(Json(state).into_response())
}

/// Renders the current page of a visit as HTML. `base` is the visit's address.
fn render_page(place: &Place, base: &str) -> Result<String, minijinja::Error> {
    let visit = &place.visit;
    let elements: Vec<Value> = visit.elements().iter().map(element).collect();
    let has_search_bar = visit.has_search_bar();
    let purchase = visit.purchase().map(|purchase| {
        let by_group = purchase.by_group.map(|reward| reward.to_string()).join(" ");
        let [reward, lowest, highest, r_type] =
            [purchase.reward, purchase.lowest, purchase.highest, purchase.r_type].map(|one| one.to_string());
        context! { asin => purchase.asin, reward, lowest, highest, by_group, r_type }
    });
    let raised = place.raised.as_ref().map(ToString::to_string);
    let step = place.steps;
    let context = context! { base, elements, has_search_bar, step, purchase, raised };
    TEMPLATES.get_template("page")?.render(context)
}

/// Renders the page on which visits start.
fn render_start(goals: usize, products: usize) -> Result<String, minijinja::Error> {
    TEMPLATES.get_template("start")?.render(context! { goals, products })
}

fn element(element: &TextElement) -> Value {
    let text = &element.text;
    let escaped = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let escaped = escaped.as_str();
    // HTML cannot represent these characters: parsers replace them.
    let exact = text.contains(['\r', '\0']).then_some(escaped);
    match &element.role {
        ElementRole::Text => context! { role => "text", text, exact },
        ElementRole::Heading => context! { role => "heading", text, exact },
        ElementRole::Button => context! { role => "button", text, escaped, exact },
        ElementRole::Link => context! { role => "link", text, escaped, exact },
        ElementRole::Choice { group, chosen } => {
            context! { role => "choice", text, escaped, exact, group, chosen }
        }
    }
}
