//! JSON format with lm-eval's layout and additional fields of lumos.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use lumos_coordinator::manifest::PlannedConfiguration;
use lumos_tasks::{GenerationSettings, Sampling};

use crate::model_id::{ModelNames, models_by_role};

use super::model::{ConfigurationReport, Report};
use super::render::DocumentFormat;

/// Incremented when the scores of equal records change.
pub(crate) const TASK_VERSION: f64 = 1.0;

/// The version of lm-eval whose layout this is.
const LM_EVAL: &str = "0.4.13";

pub(super) const FORMAT: DocumentFormat =
    DocumentFormat { name: "json", write: |report, out| render(report, &ModelNames::default(), out) };

/// Writes a report with lm-eval's layout: `results`, `configs`, `versions`, `n-shot`, `higher_is_better`,
/// `n-samples`, `config`, `git_hash`, `date`, `task_hashes`.
pub(crate) fn render(report: &Report, names: &ModelNames, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(report, names))?;
    writeln!(out)
}

/// Returns lm-eval's names of generation settings.
pub(crate) fn generation_kwargs(generation: &GenerationSettings) -> Value {
    let mut kwargs = json!({"temperature": 0.0, "max_gen_toks": generation.max_new_tokens});
    if let Sampling::Random { temperature, top_p, top_k } = generation.sampling {
        kwargs["temperature"] = json!(temperature);
        if let Some(top_p) = top_p {
            kwargs["top_p"] = json!(top_p);
        }
        if let Some(top_k) = top_k {
            kwargs["top_k"] = json!(top_k);
        }
    }
    kwargs
}

/// Returns the key of each configuration, which is also part of the name of its samples file: the benchmark's name
/// if it has one configuration, otherwise a longer name.
pub(crate) fn keys(report: &Report) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for (planned, configuration) in report.manifest.configurations.iter().zip(&report.configurations) {
        let alone =
            report.configurations.iter().filter(|other| other.benchmark == configuration.benchmark).count()
                == 1;
        let cell = &planned.configuration;
        let mut key = configuration.benchmark.clone();
        if !alone {
            key = format!("{key}_{}_{}_seed{}", cell.formulation, cell.behaviour, cell.seed);
            if keys.contains(&key) {
                key = format!("{key}_{}", planned.identity.short());
            }
        }
        keys.push(key);
    }
    keys
}

fn document(report: &Report, names: &ModelNames) -> Value {
    let manifest = &report.manifest;
    let model = names.of_run(manifest);
    let keys = keys(report);
    let cells = || manifest.configurations.iter().zip(&report.configurations);
    let by_key = |value: &dyn Fn(&PlannedConfiguration, &ConfigurationReport) -> Value| -> Value {
        keys.iter()
            .zip(cells())
            .map(|(key, (planned, report))| (key.clone(), value(planned, report)))
            .collect()
    };
    let configs: Value = keys
        .iter()
        .zip(cells())
        .map(|(key, (planned, report))| (key.clone(), configs(key, planned, report)))
        .collect();
    let models = models_by_role(manifest);
    let models: Vec<_> = models.iter().map(|(role, names)| format!("{role}={}", names.join("|"))).collect();
    let models = format!("pretrained={model},{}", models.join(","));
    let throughput = report
        .throughput()
        .map(|(items, tokens)| json!({"items_per_second": items, "tokens_per_second": tokens}));
    let mut document = json!({
        "results": by_key(&|_, configuration| results(configuration)),
        "group_subtasks": by_key(&|_, _| json!([])),
        "configs": configs,
        "versions": by_key(&|_, _| json!(TASK_VERSION)),
        "n-shot": by_key(&|_, _| json!(0)),
        "higher_is_better": by_key(&|_, configuration| {
            let metrics = configuration.scores.first().map(|scores| scores.metrics.as_slice());
            metrics
                .unwrap_or_default()
                .iter()
                .map(|metric| (metric.metric.clone(), json!(metric.higher_is_better)))
                .collect()
        }),
        "n-samples": by_key(&|_, configuration| {
            let original = manifest.data_of(&configuration.benchmark).map_or(0, |data| data.records);
            json!({"original": original, "effective": configuration.ledger.settled()})
        }),
        "config": {
            "model": "lumos",
            "model_args": models,
            "batch_size": manifest.spec.batch_size,
            "device": manifest.spec.device,
            "limit": Value::Null,
            "bootstrap_iters": 0,
            "gen_kwargs": manifest.spec.generation,
            "random_seed": manifest.spec.seed.first(),
        },
        "git_hash": manifest.git_revision,
        "date": manifest.created.as_second(),
        "task_hashes": by_key(&|_, configuration| {
            json!(manifest.data_of(&configuration.benchmark).map(|data| &data.items))
        }),
        "lm_eval_version": LM_EVAL,
        "system_instruction": Value::Null,
        "chat_template": Value::Null,
        "model_source": "lumos",
        "model_name": model.to_string(),
        "model_name_sanitized": model.sanitized(),
        // A string, as in lm-eval's files.
        "total_evaluation_time_seconds": report.seconds.unwrap_or(0.0).to_string(),
        "lumos": {
            "run": manifest.identity,
            "versions": manifest.versions,
            "spec": manifest.spec,
            "ledger": report.total,
            // Values that depend on the schedule are kept separate.
            "telemetry": {"duplicates": report.duplicates, "throughput": throughput},
            "configurations": by_key(&|planned, configuration| {
                let attribution: Value =
                    configuration.attribution.iter().map(|(cause, count)| (cause.name(), *count)).collect();
                let mut value = json!({
                    "label": configuration.label,
                    "identity": planned.identity,
                    "ledger": configuration.ledger,
                    "scores": configuration.scores,
                    "attribution": attribution,
                    "faults": configuration.faults.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                    "fault_messages": configuration.fault_messages,
                    "usage": configuration.usage,
                });
                if let Some(stopped) = &planned.stopped {
                    value["stopped"] = json!(stopped);
                }
                value
            }),
        },
    });
    if !report.computing.is_empty() {
        document["lumos"]["telemetry"]["computing"] = json!(report.computing);
    }
    if !report.workers.is_empty() {
        document["lumos"]["telemetry"]["workers"] = json!(report.workers);
    }
    if report.in_progress {
        document["lumos"]["telemetry"]["in_progress"] = json!(true);
    }
    if let Some(queue) = &report.queue {
        document["lumos"]["telemetry"]["queue"] = json!(queue);
    }
    if let Some(matrix) = &report.matrix {
        document["lumos"]["matrix"] = json!(matrix);
    }
    if !report.groups.is_empty() {
        document["lumos"]["groups"] = json!(report.groups);
    }
    let interfaces = super::rows::interfaces(report);
    if !interfaces.is_empty() {
        document["lumos"]["interface"] = json!(interfaces);
    }
    if let Some(judge) = &report.judge {
        document["lumos"]["judge"] = json!(judge);
    }
    document
}

/// Returns a configuration's figures under lm-eval's names: `metric,none` for the main scoring,
/// `metric,SCORING` for each one.
fn results(configuration: &ConfigurationReport) -> Value {
    let mut results = Map::new();
    results.insert("alias".to_owned(), json!(configuration.label));
    let mut put = |metric: &str, filter: &str, estimate: &lumos_benchmarks::Estimate| {
        results.insert(format!("{metric},{filter}"), json!(estimate.value));
        let error = estimate.standard_error.map_or_else(|| json!("N/A"), |error| json!(error));
        results.insert(format!("{metric}_stderr,{filter}"), error);
    };
    for (index, scores) in configuration.scores.iter().enumerate() {
        for metric in &scores.metrics {
            let Some(estimate) = &metric.estimate else { continue };
            if index == 0 {
                put(&metric.metric, "none", estimate);
            }
            put(&metric.metric, scores.scoring.name(), estimate);
        }
    }
    results.insert("sample_len".to_owned(), json!(configuration.ledger.settled()));
    Value::Object(results)
}

fn configs(key: &str, planned: &PlannedConfiguration, configuration: &ConfigurationReport) -> Value {
    let metrics = configuration.scores.first().map(|scores| scores.metrics.as_slice()).unwrap_or_default();
    let metrics: Vec<Value> = metrics
        .iter()
        .map(|metric| {
            json!({
                "metric": metric.metric,
                "aggregation": "mean",
                "higher_is_better": metric.higher_is_better,
                "kind": metric.kind.name(),
                "unit": metric.unit,
            })
        })
        .collect();
    json!({
        "task": key,
        "output_type": "generate_until",
        "num_fewshot": 0,
        "repeats": 1,
        "metric_list": metrics,
        "generation_kwargs": generation_kwargs(&planned.configuration.generation),
        "metadata": {"version": TASK_VERSION},
        "lumos": *planned.configuration,
    })
}
