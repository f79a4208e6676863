//! `lumos serve` and `lumos serve-model`: serve runs as a live page, an environment as a website, and models over an
//! API.

mod live;
#[cfg(feature = "serve-model")]
mod model;

use std::path::Path;
use std::sync::Arc;

use lumos_environments::shop::Goal;
use lumos_http::HttpLimits;
use lumos_tools::sessions::catalogue::ShopFiles;
use lumos_tools::sessions::shop::staff;
use lumos_tools::sessions::site::{Site, serve as serve_site};
use tokio::net::TcpListener;

#[cfg(not(feature = "serve-model"))]
use crate::cli::ServeModelArgs;
use crate::cli::{ServeArgs, ServeCommand, ServeShopArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::settings;

#[cfg(feature = "serve-model")]
pub(crate) use model::models;

/// `lumos serve`: serves runs, or the environment that is named.
pub(crate) async fn serve(arguments: &ServeArgs) -> CommandResult {
    match &arguments.environment {
        Some(ServeCommand::Shop(arguments)) => shop(arguments).await,
        None => live::serve_runs(&arguments.live).await,
    }
}

/// `lumos serve shop`: serves WebShop as a website for manual inspection.
async fn shop(arguments: &ServeShopArgs) -> CommandResult {
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
    serve_site(listener, Arc::new(site), HttpLimits::default(), interrupts.drain.clone()).await;
    Ok(Exit::Complete)
}

/// Loads the goals of a data folder, or those of the samples.
fn goals(data: Option<&Path>) -> Result<Vec<Goal>, Failure> {
    let benchmark = settings::benchmark("webshop")?;
    let source = benchmark.source(data);
    let items = benchmark.open(source).map_err(Failure::usage)?;
    let goal = |record| serde_json::from_value(record).map_err(|error| Failure::input(error.to_string()));
    items.map(|item| item.map_err(Failure::usage).and_then(|item| goal(item.record))).collect()
}

/// `lumos serve-model` of a build without the model server.
#[cfg(not(feature = "serve-model"))]
pub(crate) async fn models(arguments: &ServeModelArgs, _quiet: bool) -> CommandResult {
    let ServeModelArgs { models: _models, listen: _listen, engine: _engine } = arguments;
    Err(Failure::input("this program was built without `serve-model`")
        .hint("build it with `--features serve-model`"))
}
