//! `lumos show`: prints the trajectory of an item, or the prompts that its models received.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::sync::Arc;

use lumos_benchmarks::replay::{RecordedRequest, recorded_requests};
use lumos_coordinator::manifest::Manifest;
use lumos_models::hub::HubSettings;
use lumos_models::{ModelFile, ModelRegistry, ModelsSettings, PromptRenderer, SentPrompt};
use lumos_reports::trajectory::{self, FoundUnit, Show, harmless};
use lumos_tasks::{
    Configuration, ContentHash, Formulation, Item, Message, ModelIdentity, Role, UnitId, WorkUnit,
};
use serde::Serialize;

use super::results::open;
use crate::cli::ShowArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::terminal::colours;

/// `lumos show`: prints one item's trajectory.
pub(crate) fn run(arguments: &ShowArgs) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let (manifest, checkpoint) = open(&folder)?;
    let found = trajectory::find(&manifest, &checkpoint, &arguments.item, |planned| {
        arguments.task.as_ref().is_none_or(|task| planned.configuration.benchmark == *task)
    })?;
    if found.is_empty() {
        let most = manifest.configurations.iter().map(|one| one.planned).max().unwrap_or(0);
        return Err(Failure::input(format!("item `{}` not found in {}", arguments.item, folder.display()))
            .hint(format!(
                "pass the item's index (counted from 0; the run has {most} items of a benchmark), its name in the data \
                 set, or its unit's id"
            )));
    }
    let how = Show { colours: colours(&io::stdout()), prompts: arguments.prompts, ..Show::default() };
    let mut rendering = Rendering::new(&manifest);
    let mut out = io::stdout().lock();
    for (index, found) in found.iter().enumerate() {
        if arguments.rendered {
            rendering.print(&mut out, found, arguments.json)?;
            continue;
        }
        if arguments.json {
            for record in &found.records {
                writeln!(out, "{}", serde_json::to_string(record)?)?;
            }
            continue;
        }
        if index > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", trajectory::show(found, &manifest.spec.scoring, how)?)?;
    }
    Ok(Exit::Complete)
}

/// Renders prompts with the models of a run.
struct Rendering<'a> {
    manifest: &'a Manifest,
    models: ModelRegistry,
    renderers: HashMap<(ContentHash, Role, Formulation), PromptRenderer>,
}

impl<'a> Rendering<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        // Only cached models are used: showing a prompt must not download weights.
        let offline = |hub| HubSettings { offline: true, ..hub };
        let hub = HubSettings::from_environment().ok().map(offline);
        let models = ModelRegistry::new(ModelsSettings { hub, ..ModelsSettings::default() });
        Self { manifest, models, renderers: HashMap::new() }
    }

    /// Prints the prompts of all attempts at a unit.
    fn print(&mut self, out: &mut impl Write, found: &FoundUnit<'_>, json: bool) -> Result<(), Failure> {
        let configuration = Arc::clone(&found.configuration.configuration);
        let Item { id, task, setup, index, .. } = found.item.clone();
        let unit = WorkUnit::new(id, task, setup, Arc::clone(&configuration));
        if found.records.is_empty() && !json {
            writeln!(out, "item {index}, {}: not recorded yet", found.configuration.label)?;
        }
        for record in &found.records {
            let requests = recorded_requests(&unit, &record.outcome).map_err(Failure::input)?;
            for (number, RecordedRequest { turn, request }) in requests.iter().enumerate() {
                let identity = identity_of(&configuration, request.role)?;
                let sent = self.renderer(identity, request.role, configuration.formulation)?.sent(request);
                let line = RenderedLine {
                    unit: &found.unit,
                    attempt: record.attempt,
                    turn: *turn,
                    role: request.role,
                    model: &identity.name,
                    template: template_of(&configuration, request.role),
                    sent: sent.map_err(|message| Failure::input(format!("turn {turn}: {message}")))?,
                };
                if json {
                    writeln!(out, "{}", serde_json::to_string(&line)?)?;
                } else {
                    writeln!(out, "== item {index}, {}, prompt {}", found.configuration.label, number + 1)?;
                    line.print(out)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the renderer of a model, after checking that its files are those of the run.
    fn renderer(
        &mut self,
        identity: &ModelIdentity,
        role: Role,
        formulation: Formulation,
    ) -> Result<&PromptRenderer, Failure> {
        // The built-in models of two roles differ, and so do those of two formulations.
        let key = (identity.content.clone(), role, formulation);
        let Self { manifest, models, renderers } = self;
        Ok(match renderers.entry(key) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(slot) => {
                let renderer = models.renderer(identity, role, formulation).map_err(Failure::usage)?;
                let recorded = manifest.models.iter().find(|model| model.identity == *identity);
                let recorded = recorded.map_or(&[][..], |model| &model.files);
                let is_recorded = |file: &ModelFile| {
                    recorded.iter().any(|one| one.name == file.name && one.sha256 == file.sha256)
                };
                if let Some(changed) = renderer.files.iter().find(|file| !is_recorded(file)) {
                    let message = format!("model {}: {} changed after the run", identity.name, changed.name);
                    return Err(Failure::input(message).hint("--prompts prints the recorded conversations"));
                }
                slot.insert(renderer)
            }
        })
    }
}

fn identity_of(configuration: &Configuration, role: Role) -> Result<&ModelIdentity, Failure> {
    let found = configuration.models.get(&role);
    found.ok_or_else(|| Failure::input(format!("the run has no model for the role {role}")))
}

/// Names the template of a role's prompts.
fn template_of(configuration: &Configuration, role: Role) -> String {
    if configuration.is_chat(role) { "chat".to_owned() } else { configuration.format.template.to_string() }
}

/// A prompt as a model received it.
#[derive(Serialize)]
struct RenderedLine<'a> {
    unit: &'a UnitId,
    attempt: u32,
    turn: u32,
    role: Role,
    model: &'a str,
    template: String,
    #[serde(flatten)]
    sent: SentPrompt,
}

impl RenderedLine<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { attempt, turn, role, model, template, sent, .. } = self;
        writeln!(out, "attempt {attempt}, turn {turn}, {role} {model}, template {template}")?;
        match sent {
            SentPrompt::Text { text, bos } => {
                writeln!(out, "BOS: {bos}")?;
                writeln!(out, "{}", harmless(text))
            }
            SentPrompt::Messages { messages } => {
                writeln!(out, "messages: {}", messages.len())?;
                messages.iter().try_for_each(|Message { role, content }| {
                    writeln!(out, "-- {role}\n{}", harmless(content))
                })
            }
        }
    }
}
