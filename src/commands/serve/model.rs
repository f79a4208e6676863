//! `lumos serve-model`: serve models over an OpenAI-compatible API.

use std::collections::BTreeSet;

use lumos_engine::{ModelSource, until_gpu_lost};
use lumos_models::EngineSettings;
use lumos_models::ModelName;
use lumos_models::serve_model::{ApiKey, ServeSettings, ServedModel, folder_id, serve_models};
use lumos_tasks::{BackendChoice, Formulation, Role};
use tokio::net::TcpListener;

use crate::cli::ServeModelArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::progress::write_line;
use crate::settings;

/// Environment variable that contains the API key.
const KEY: &str = "LUMOS_API_KEY";

/// The models included in lumos, by the suffix of their name.
const TINY: [(&str, Role, Formulation); 3] = [
    ("planner-iterative", Role::Planner, Formulation::Iterative),
    ("planner-onetime", Role::Planner, Formulation::OneTime),
    ("grounder", Role::Grounder, Formulation::Iterative),
];

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
    let loopback_hosts_only = key.is_none() && address.ip().to_canonical().is_loopback();
    if key.is_none() && !loopback_hosts_only {
        tracing::warn!(
            "no API key is set: anyone who can reach {address} can use the models; set {KEY} to require a key"
        );
    }
    let interrupts = Interrupts::watch_releasing();
    let placement = settings::placement(&arguments.engine, BackendChoice::Native)?;
    let device = placement.single().ok_or_else(|| {
        Failure::input(format!(
            "invalid value `{placement}` for --device: expected one device, not devices by role"
        ))
        .hint("for example --device cpu")
    })?;
    let engine = settings::engine(&arguments.engine, device)?;
    let loading = tokio::task::spawn_blocking(move || load(named, engine));
    let models = tokio::select! {
        models = loading => models??,
        () = interrupts.drain.cancelled() => return Ok(Exit::Interrupted),
    };
    if !quiet {
        for model in &models {
            write_line(format_args!("{}: context length {} tokens", model.id(), model.context_length()));
        }
        write_line(format_args!("listening on http://{}/v1; press Ctrl-C to stop", listener.local_addr()?));
    }
    let serve_settings = ServeSettings { key, loopback_hosts_only, ..ServeSettings::default() };
    let (drain, stop) = (interrupts.drain.child_token(), interrupts.stop.child_token());
    let serving = serve_models(listener, models, serve_settings, drain.clone(), stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        message = until_gpu_lost() => {
            // Requests in progress end with an error.
            drain.cancel();
            stop.cancel();
            serving.await;
            return Err(anyhow::Error::msg(message).into());
        }
    }
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

fn load(named: Vec<(String, ModelSource)>, engine: EngineSettings) -> Result<Vec<ServedModel>, Failure> {
    let settings = ServedModel::shared_settings(&named, engine).map_err(Failure::usage)?;
    let models = named.into_iter().zip(settings);
    models
        .map(|((id, source), settings)| ServedModel::load(id, source, settings).map_err(Failure::usage))
        .collect()
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
