//! Logs of inspect_ai: one `.eval` file per configuration.
//!
//! A log is a zip file with `header.json` (the log without samples), `samples/<id>_epoch_1.json` and `summaries.json`.
//! Every recorded unit is a sample; outstanding units are missing. Steps are events in a span per turn. Their times
//! are interpolated over the episode, because only start and duration of an episode are recorded.
//!
//! Readers drop logs with the same `eval_id`, and rows with the same id of a sample or an event, so all ids are
//! derived from the identities of configuration and unit. A field that is null where inspect expects an object makes
//! the header unreadable; such fields are omitted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lumos_coordinator::manifest::PlannedConfiguration;
use lumos_tasks::{Role, Step};
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::display::{prediction_text, task_text};
use crate::model_id::ModelNames;
use crate::report::json::generation_kwargs;
use crate::report::model::ConfigurationReport;

use super::ExportError;
use super::convert::{ExportFormat, ExportSummary};
use super::source::{RecordedUnit, RunSource};
use super::transcript::{ToolUse, exchanges, object, stop_reason, tokens_by_role, usage};

/// Version of the log format.
const VERSION: u32 = 2;

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "inspect",
    about: "logs of inspect_ai",
    rows: "samples",
    write: |folder, source, options, _| {
        let (files, samples) = write(folder, source, &options.names)?;
        Ok(ExportSummary::new(files, samples, source))
    },
};

/// Writes a log per configuration to a folder. Returns the files and the number of samples.
fn write(
    folder: &Path,
    source: &RunSource<'_>,
    names: &ModelNames,
) -> Result<(Vec<PathBuf>, u64), ExportError> {
    let created =
        source.manifest.created.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H-%M-%S-00-00").to_string();
    let (mut files, mut samples) = (Vec::new(), 0);
    for (position, key, planned, report) in source.cells() {
        let log = Log { source, position, key, planned, report, names };
        // inspect takes task and id from the parts between underscores.
        let file = folder.join(format!("{created}_{}_{}.eval", key.replace('_', "-"), log.id()));
        samples += log.write(&file)?;
        files.push(file);
    }
    Ok((files, samples))
}

/// The log of one configuration.
struct Log<'a> {
    source: &'a RunSource<'a>,
    position: usize,
    key: &'a str,
    planned: &'a PlannedConfiguration,
    report: &'a ConfigurationReport,
    names: &'a ModelNames,
}

/// What a pass over the samples adds up for the header.
#[derive(Default)]
struct Sums {
    ids: Vec<u64>,
    scored: u64,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
    tokens: BTreeMap<Role, (u64, u64)>,
}

impl Log<'_> {
    /// Returns 22 letters and digits, unique for the configuration.
    fn id(&self) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let digits = format!("{}{}", self.source.manifest.identity, self.planned.identity);
        let hash = lumos_tasks::ContentHash::of_bytes(digits.as_bytes());
        let mut rest = u128::from_str_radix(&hash.as_str()[..32], 16).unwrap_or_default();
        let mut id = String::with_capacity(22);
        for _ in 0..22 {
            id.push(char::from(DIGITS[(rest % 62) as usize]));
            rest /= 62;
        }
        id
    }

    fn model(&self) -> String {
        self.names.of_configuration(&self.planned.configuration).to_string()
    }

    /// Returns the name of the model of a role.
    fn model_of(&self, role: Role) -> String {
        let model = self.planned.configuration.models.get(&role);
        model.map_or_else(|| self.model(), |model| self.names.of_model(model).to_string())
    }

    fn write(&self, file: &Path) -> Result<u64, ExportError> {
        let fail = ExportError::at(file);
        let out = File::create(file).map_err(&fail)?;
        let mut zip = ZipWriter::new(BufWriter::new(out));
        // Summaries are one entry that follows the samples, and grow with the run.
        let mut summaries = BufWriter::new(tempfile::tempfile().map_err(&fail)?);
        let mut sums = Sums::default();
        self.source.for_each_recorded(self.position, |unit| {
            let (sample, summary) = self.sample(unit);
            let separator = if sums.ids.is_empty() { "[" } else { "," };
            sums.add(unit);
            let name = format!("samples/{}_epoch_1.json", unit.item.index);
            entry(&mut zip, &name, |out| Ok(serde_json::to_writer(out, &sample)?)).map_err(&fail)?;
            summaries.write_all(separator.as_bytes()).map_err(&fail)?;
            serde_json::to_writer(&mut summaries, &summary).map_err(|error| fail(error.into()))
        })?;
        let finish = || -> io::Result<()> {
            summaries.write_all(if sums.ids.is_empty() { b"[]" } else { b"]" })?;
            let mut summaries = summaries.into_inner().map_err(io::IntoInnerError::into_error)?;
            summaries.seek(SeekFrom::Start(0))?;
            entry(&mut zip, "summaries.json", |out| io::copy(&mut summaries, out).map(drop))?;
            let header = self.header(&sums);
            entry(&mut zip, "header.json", |out| Ok(serde_json::to_writer(out, &header)?))?;
            let out = zip.finish().map_err(io::Error::from)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        };
        finish().map_err(&fail)?;
        Ok(sums.ids.len() as u64)
    }

    /// Returns the log without its samples. `plan`, `stats` and `results` have to precede samples.
    fn header(&self, sums: &Sums) -> Value {
        let (manifest, ledger) = (self.source.manifest, &self.report.ledger);
        let configuration = &self.planned.configuration;
        let models = configuration.models.keys();
        let roles = models.map(|&role| (role.name().to_owned(), json!({"model": self.model_of(role)})));
        let metrics: Vec<String> = self.scores().map(|(name, _)| name).collect();
        let mut eval = json!({
            "eval_id": self.id(),
            "run_id": manifest.identity,
            "task_id": self.id(),
            "created": shown(manifest.created),
            "task": self.key,
            "task_version": 1,
            "dataset": {"name": configuration.benchmark, "samples": ledger.planned, "sample_ids": sums.ids},
            "model": self.model(),
            "model_roles": object(roles),
            "config": {"epochs": 1},
            "scorers": metrics.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "packages": manifest.versions,
            "metadata": {
                "label": self.report.label,
                "configuration": self.planned.identity,
                "formulation": configuration.formulation,
                "behaviour": configuration.behaviour,
                "seed": configuration.seed,
                "timing": "interpolated",
            },
        });
        if let Some(revision) = &manifest.git_revision {
            eval["revision"] =
                json!({"type": "git", "origin": env!("CARGO_PKG_REPOSITORY"), "commit": revision});
        }
        let scores = self.scores().map(|(name, estimate)| {
            let mut metrics = json!({"accuracy": {"name": "accuracy", "value": estimate.value}});
            if let Some(error) = estimate.standard_error {
                metrics["stderr"] = json!({"name": "stderr", "value": error});
            }
            let unscored = sums.ids.len() as u64 - estimate.items.min(sums.ids.len() as u64);
            json!({
                "name": name,
                "scorer": name,
                "scored_samples": estimate.items,
                "unscored_samples": unscored,
                "metrics": metrics,
            })
        });
        let started = sums.started_ms.map_or(manifest.created, milliseconds);
        json!({
            "version": VERSION,
            "status": if ledger.outstanding == 0 { "success" } else { "error" },
            "eval": eval,
            "plan": {"name": "lumos", "steps": [{"solver": "lumos"}]},
            "results": {
                "total_samples": ledger.planned,
                "completed_samples": sums.scored,
                "scores": scores.collect::<Vec<_>>(),
            },
            "stats": {
                "started_at": shown(started),
                "completed_at": shown(sums.ended_ms.map_or(started, milliseconds)),
                "model_usage": self.usage_by_model(&sums.tokens),
                "role_usage": usage_by_role(&sums.tokens),
            },
        })
    }

    /// Returns the figures of the configuration by name, the headline first: `exact_match` under the main scoring,
    /// `exact_match_corrected` under another.
    fn scores(&self) -> impl Iterator<Item = (String, &lumos_benchmarks::Estimate)> {
        self.report.scores.iter().enumerate().flat_map(|(index, scores)| {
            scores.metrics.iter().filter_map(move |metric| {
                let name = score_name(&metric.metric, (index > 0).then(|| scores.scoring.name()));
                Some((name, metric.estimate.as_ref()?))
            })
        })
    }

    /// Returns a sample and its summary.
    fn sample(&self, unit: &RecordedUnit<'_>) -> (Value, Value) {
        let (item, outcome, telemetry) = (unit.item, unit.outcome(), &unit.record.telemetry);
        let task = task_text(&item.task);
        let exchanges = exchanges(task, outcome);
        let mut messages = Vec::new();
        for one in &exchanges {
            let mut message = json!({"role": one.role, "content": one.text});
            if !one.uses.is_empty() {
                let call = |used: &ToolUse| json!({"id": used.id, "function": used.function, "arguments": used.arguments});
                message["tool_calls"] = one.uses.iter().map(call).collect();
            }
            messages.push(message);
            messages.extend(one.uses.iter().map(|used| {
                json!({
                    "role": "tool", "content": used.result, "tool_call_id": used.id, "function": used.function,
                })
            }));
        }
        for (index, message) in messages.iter_mut().enumerate() {
            message["id"] = json!(format!("{}-m{index}", unit.unit.short()));
        }
        let prediction = prediction_text(outcome);
        let mut scores = Vec::new();
        let main = self.source.scorings.first();
        for (scoring, metric, share) in unit.shares() {
            let name = score_name(metric.name, (Some(&scoring) != main).then(|| scoring.name()));
            let score = json!({
                "value": share.value(),
                "answer": prediction.as_deref().unwrap_or_default(),
                "metadata": {"numerator": share.numerator, "denominator": share.denominator},
            });
            scores.push((name, score));
        }
        let tokens = tokens_by_role(outcome);
        let times = Times::of(unit);
        let mut summary = json!({
            "id": item.index,
            "epoch": 1,
            "input": task,
            "target": item.target.text(),
            "metadata": {
                "item": item.name.as_deref().unwrap_or_default(),
                "group": item.group.as_deref().unwrap_or_default(),
                "status": outcome.ending.status(),
                "cost": telemetry.cost.map(lumos_tasks::NanoDollars::dollars),
                "worker": telemetry.worker,
                "attempt": telemetry.attempt,
            },
            "scores": object(scores.iter().cloned()),
            "model_usage": self.usage_by_model(&tokens),
            "role_usage": usage_by_role(&tokens),
            "started_at": times.at(0.0),
            "completed_at": times.at(1.0),
            "total_time": telemetry.seconds,
            "working_time": telemetry.seconds,
            "uuid": unit.unit,
        });
        let mut sample = summary.clone();
        sample["messages"] = json!(messages);
        sample["output"] = json!({
            "model": self.model(),
            "choices": [{
                "message": {"role": "assistant", "content": prediction.as_deref().unwrap_or_default()},
                "stop_reason": "stop",
            }],
        });
        sample["events"] = json!(self.events(unit, &times, &scores));
        if let Some(fault) = unit.fault() {
            sample["error"] = error_of(&fault);
            summary["error"] = json!(fault);
        }
        summary["completed"] = json!(true);
        summary["message_count"] = json!(messages.len());
        (sample, summary)
    }

    /// Returns an episode's events: a span per turn with models' replies and uses of tools, then scores or the error.
    fn events(&self, unit: &RecordedUnit<'_>, times: &Times, scores: &[(String, Value)]) -> Vec<Value> {
        let steps = &unit.outcome().steps;
        let short = unit.unit.short();
        let kwargs = generation_kwargs(&self.planned.configuration.generation);
        let mut config = json!({"max_tokens": kwargs["max_gen_toks"], "temperature": kwargs["temperature"]});
        for name in ["top_p", "top_k"] {
            if let Some(value) = kwargs.get(name) {
                config[name] = value.clone();
            }
        }
        let mut events: Vec<Value> = Vec::new();
        let mut push = |share: f64, span: Option<&str>, mut event: Value| {
            event["uuid"] = json!(format!("{short}-{}", events.len()));
            event["timestamp"] = json!(times.at(share));
            event["working_start"] = json!(times.seconds * share);
            if let Some(span) = span {
                event["span_id"] = json!(span);
            }
            events.push(event);
        };
        let share = |index: usize| (index + 1) as f64 / (steps.len() + 1) as f64;
        let (mut open, mut spans) = (None::<(u32, String)>, 0);
        for (index, step) in steps.iter().enumerate() {
            let (turn, at) = (step.turn(), share(index));
            if open.as_ref().is_none_or(|(number, _)| *number != turn) {
                if let Some((_, span)) = open.take() {
                    push(at, Some(&span), json!({"event": "span_end", "id": span}));
                }
                spans += 1;
                let span = format!("{short}-turn-{spans}");
                let name = format!("turn {turn}");
                push(
                    at,
                    Some(&span),
                    json!({"event": "span_begin", "id": span, "name": name, "type": "turn"}),
                );
                open = Some((turn, span));
            }
            let span = open.as_ref().map(|(_, span)| span.as_str());
            if let Step::Generate { role, prompt, reply, finish, prompt_tokens, completion_tokens, .. } = step
            {
                let model = self.model_of(*role);
                let tokens = [prompt_tokens, completion_tokens].map(|count| u64::from(count.unwrap_or(0)));
                let event = json!({
                    "event": "model",
                    "model": model,
                    "role": role.name(),
                    "input": [{"role": "user", "content": prompt}],
                    "tools": [],
                    "tool_choice": "none",
                    "config": config,
                    "output": {
                        "model": model,
                        "choices": [{
                            "message": {"role": "assistant", "content": reply},
                            "stop_reason": stop_reason(*finish),
                        }],
                        "usage": usage((tokens[0], tokens[1])),
                    },
                });
                push(at, span, event);
            } else if let Some(used) = ToolUse::of(index, step) {
                let event = json!({
                    "event": "tool",
                    "id": used.id,
                    "function": used.function,
                    "arguments": used.arguments,
                    "result": used.result,
                });
                push(at, span, event);
            }
        }
        if let Some((_, span)) = open {
            push(1.0, Some(&span), json!({"event": "span_end", "id": span}));
        }
        for (name, score) in scores {
            let event = json!({
                "event": "score", "score": score, "target": unit.item.target.text(), "scorer": name,
            });
            push(1.0, None, event);
        }
        if let Some(fault) = unit.fault() {
            push(1.0, None, json!({"event": "error", "error": error_of(&fault)}));
        }
        events
    }

    fn usage_by_model(&self, tokens: &BTreeMap<Role, (u64, u64)>) -> Value {
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (role, (read, written)) in tokens {
            let sum = sums.entry(self.model_of(*role)).or_default();
            sum.0 += read;
            sum.1 += written;
        }
        object(sums.into_iter().map(|(model, tokens)| (model, usage(tokens))))
    }
}

impl Sums {
    fn add(&mut self, unit: &RecordedUnit<'_>) {
        self.ids.push(unit.item.index);
        self.scored += u64::from(!unit.is_fault());
        let times = Times::of(unit);
        self.started_ms =
            Some(self.started_ms.map_or(times.started_ms, |before| before.min(times.started_ms)));
        let ended_ms = times.ms(1.0);
        self.ended_ms = Some(self.ended_ms.map_or(ended_ms, |before| before.max(ended_ms)));
        for (role, (read, written)) in tokens_by_role(unit.outcome()) {
            let sum = self.tokens.entry(role).or_default();
            sum.0 += read;
            sum.1 += written;
        }
    }
}

/// Start and duration of an episode.
struct Times {
    started_ms: i64,
    seconds: f64,
}

impl Times {
    fn of(unit: &RecordedUnit<'_>) -> Self {
        let telemetry = &unit.record.telemetry;
        Self { started_ms: telemetry.started_ms, seconds: telemetry.seconds.max(0.0) }
    }

    /// The time after a share of the duration, in milliseconds since 1970.
    fn ms(&self, share: f64) -> i64 {
        #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
        let passed = (self.seconds * 1000.0 * share) as i64;
        self.started_ms.saturating_add(passed)
    }

    fn at(&self, share: f64) -> String {
        shown(milliseconds(self.ms(share)))
    }
}

fn milliseconds(since_1970: i64) -> Timestamp {
    Timestamp::from_millisecond(since_1970).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn shown(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S.%3f+00:00").to_string()
}

fn score_name(metric: &str, scoring: Option<&str>) -> String {
    scoring.map_or_else(|| metric.to_owned(), |scoring| format!("{metric}_{scoring}"))
}

fn error_of(message: &str) -> Value {
    json!({"message": message, "traceback": "", "traceback_ansi": ""})
}

fn usage_by_role(tokens: &BTreeMap<Role, (u64, u64)>) -> Value {
    object(tokens.iter().map(|(role, tokens)| (role.name().to_owned(), usage(*tokens))))
}

/// Adds a compressed entry. Its time is constant, so that equal logs are equal files.
fn entry<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .last_modified_time(zip::DateTime::default());
    zip.start_file(name, options).map_err(io::Error::from)?;
    fill(zip)
}
