//! `lumos serve` and `lumos serve-model`: serve an environment as a website, and models over an API.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lumos_benchmarks::DataSource;
use lumos_engine::ModelSource;
use lumos_environments::shop::Goal;
use lumos_http::HttpLimits;
use lumos_models::ModelName;
use lumos_models::serve_model::{ApiKey, ServeSettings, ServedModel, folder_id, serve_models};
use lumos_tasks::{Formulation, Role};
use lumos_tools::sessions::catalogue::ShopFiles;
use lumos_tools::sessions::shop::staff;
use lumos_tools::sessions::site::{Site, serve};
use tokio::net::TcpListener;

use crate::cli::{ServeArgs, ServeCommand, ServeModelArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::settings;

/// Environment variable that contains the API key.
const KEY: &str = "LUMOS_API_KEY";

/// The models included in lumos, by the suffix of their name.
const TINY: [(&str, Role, Formulation); 3] = [
    ("planner-iterative", Role::Planner, Formulation::Iterative),
    ("planner-onetime", Role::Planner, Formulation::OneTime),
    ("grounder", Role::Grounder, Formulation::Iterative),
];

/// `lumos serve`: serves an environment as a website for manual inspection.
pub(crate) async fn environment(arguments: &ServeArgs) -> CommandResult {
    let ServeCommand::Shop(arguments) = &arguments.world;
    let folder = arguments.data.as_ref().map(|data| data.join("webshop"));
    let files = ShopFiles { folder, nouns: arguments.pos_nouns.clone() };
    let source = arguments.data.clone();
    let site = tokio::task::spawn_blocking(move || {
        let goals = goals(source.as_deref())?;
        Ok::<_, Failure>(Site::new(staff(&files).map_err(Failure::usage)?, goals))
    })
    .await
    .map_err(|error| Failure::input(error.to_string()))??;
    let listener = TcpListener::bind((arguments.bind, arguments.port)).await?;
    println!("http://{}/", listener.local_addr()?);
    let interrupts = Interrupts::watch();
    serve(listener, Arc::new(site), HttpLimits::default(), interrupts.drain.clone()).await;
    Ok(Exit::Complete)
}

/// Loads the goals of a data folder, or those of the samples.
fn goals(data: Option<&Path>) -> Result<Vec<Goal>, Failure> {
    let benchmark = settings::benchmark("webshop")?;
    let source = data.map_or(DataSource::Samples, |data| DataSource::in_folder(data, benchmark));
    let items = benchmark.open(source).map_err(Failure::usage)?;
    let goal = |record| serde_json::from_value(record).map_err(|error| Failure::input(error.to_string()));
    items.map(|item| item.map_err(Failure::usage).and_then(|item| goal(item.record))).collect()
}

/// `lumos serve-model`: serves models over an OpenAI-compatible API.
pub(crate) async fn models(arguments: &ServeModelArgs, quiet: bool) -> CommandResult {
    let mut named = Vec::new();
    for text in &arguments.models {
        named.extend(models_of(text)?);
    }
    let ids: BTreeSet<&str> = named.iter().map(|(id, _)| id.as_str()).collect();
    if ids.len() < named.len() {
        return Err(Failure::input("several models have the same name")
            .hint("give each a name: --model planner=candle:… --model grounder=candle:…"));
    }
    let key = key()?;
    let address = arguments.listen;
    // Bind before loading models, so that an address in use is reported at once.
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::input(format!("cannot listen on {address}: {error}")))?;
    if key.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "no API key is set: anyone who can reach {address} can use the models; set {KEY} to require a key"
        );
    }
    let interrupts = Interrupts::watch_releasing();
    let placement = settings::placement(&arguments.engine)?;
    let device = placement.single().ok_or_else(|| {
        Failure::input(format!(
            "invalid value `{placement}` for --device: expected one device, not devices by role"
        ))
        .hint("for example --device cpu")
    })?;
    let engine = settings::engine(&arguments.engine, device)?;
    let load = move |(id, source): (String, ModelSource)| {
        ServedModel::load(id, source, engine).map_err(Failure::usage)
    };
    let loading =
        tokio::task::spawn_blocking(move || named.into_iter().map(load).collect::<Result<Vec<_>, Failure>>());
    let models = tokio::select! {
        models = loading => models??,
        () = interrupts.drain.cancelled() => return Ok(Exit::Interrupted),
    };
    if !quiet {
        for model in &models {
            eprintln!("{}: context length {} tokens", model.id(), model.context_length());
        }
        eprintln!("listening on http://{}/v1; press Ctrl-C to stop", listener.local_addr()?);
    }
    let serve_settings = ServeSettings { key, ..ServeSettings::default() };
    let (drain, stop) = (interrupts.drain.clone(), interrupts.stop.clone());
    serve_models(listener, models, serve_settings, drain, stop).await;
    Ok(if interrupts.stop.is_cancelled() { Exit::Interrupted } else { Exit::Complete })
}

/// Returns the models of one `--model` argument, each with the name that clients use.
fn models_of(text: &str) -> Result<Vec<(String, ModelSource)>, Failure> {
    let (id, name) = match text.split_once('=') {
        Some((id, name)) if !id.contains(':') => (Some(id), name),
        _ => (None, text),
    };
    if id.is_some_and(|id| id.trim().is_empty()) {
        return Err(Failure::input(format!(
            "invalid value `{text}` for --model: missing the name before `=`"
        ))
        .hint("for example --model NAME=candle:<folder>"));
    }
    let parsed = ModelName::given(name).map_err(Failure::usage)?;
    match parsed {
        ModelName::BuiltinTiny => TINY
            .into_iter()
            .map(|(part, role, formulation)| {
                let id = format!("{}-{part}", id.unwrap_or("tiny"));
                Ok::<_, Failure>((id, settings::model_source(name, role, formulation)?))
            })
            .collect(),
        ModelName::Lumos(pair) => {
            Err(Failure::input(format!("`{pair}` is a pair of models, a planner and a grounder"))
                .hint("pass each of them: --model planner=candle:ai2lumos/lumos_maths_plan_iterative"))
        }
        parsed => {
            let source = settings::model_source(name, Role::Planner, Formulation::Iterative)?;
            let own = match (id, parsed) {
                (Some(id), _) => id.to_owned(),
                (None, ModelName::Candle(folder)) => folder_id(&folder),
                (None, other) => other.to_string(),
            };
            Ok(vec![(own, source)])
        }
    }
}

/// Reads the API key from the environment. An empty key disables authentication.
fn key() -> Result<Option<ApiKey>, Failure> {
    match std::env::var(KEY) {
        Ok(key) if key.trim().is_empty() => Ok(None),
        Ok(key) => Ok(Some(ApiKey::new(&key))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::input(format!("invalid value for {KEY}: not valid UTF-8")))
        }
    }
}
