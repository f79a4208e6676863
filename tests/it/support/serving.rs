//! `lumos serve-model` and `lumos serve shop` as processes.

use super::{Followed, lumos};

/// A server that runs until it is dropped.
pub(crate) struct Serving {
    pub(crate) process: Followed,
    pub(crate) url: String,
    /// Its output about its models.
    pub(crate) models: Vec<String>,
}

impl Serving {
    /// Starts a server of models.
    pub(crate) fn models(names: &[&str]) -> Self {
        let command = lumos().args("serve-model --listen 127.0.0.1:0 --threads 1");
        let mut process =
            names.iter().fold(command, |command, name| command.args("--model").arg(name)).follow();
        process.until_said("listening on ");
        let said = process.said();
        let (models, listening) = said.split_once("listening on ").unwrap();
        let url = listening.split(';').next().unwrap().to_owned();
        Self { process, url, models: models.lines().map(str::to_owned).collect() }
    }

    /// Starts the website of the shop.
    pub(crate) fn shop() -> Self {
        let mut process = lumos().args("serve shop --port 0").follow();
        let url = process.first_line();
        Self { process, url, models: Vec::new() }
    }
}
