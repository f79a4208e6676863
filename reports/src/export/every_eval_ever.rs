//! Records of every_eval_ever, schema 0.3.0: an aggregate and its instances per configuration.
//!
//! `data/<benchmark>/<developer>/<model>/<uuid>.json` contains the figures, `<uuid>_samples.jsonl` a row per settled
//! unit, metric and scoring. The schema refuses unknown keys, and values in `additional_details` and `metadata` that
//! are not strings. Metrics without bounds are omitted, because a continuous score needs a range.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lumos_benchmarks::statistics::LEVEL;
use lumos_benchmarks::{Estimate, MetricKind, Unit, main_metric};
use lumos_coordinator::manifest::PlannedConfiguration;
use lumos_tasks::{Configuration, ContentHash};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::display::{prediction_text, task_text};
use crate::model_id::{ModelId, ModelNames};
use crate::report::json::generation_kwargs;
use crate::report::model::{ConfigurationReport, MetricReport};

use super::convert::{ExportFormat, ExportSummary};
use super::source::{RecordedUnit, RunSource};
use super::transcript::{exchanges, usage};
use super::{ExportError, create_folder, write_file, write_line};

const SCHEMA: &str = "0.3.0";

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "every-eval-ever",
    about: "records of that project",
    rows: "instances",
    write: |folder, source, options, now| {
        let (files, instances) = write(folder, source, &options.names, now)?;
        Ok(ExportSummary::new(files, instances, source).without("faulted", source.report.total.faulted))
    },
};

/// Writes the records of every configuration below a folder. Returns the files and the number of rows.
fn write(
    folder: &Path,
    source: &RunSource<'_>,
    names: &ModelNames,
    now: Timestamp,
) -> Result<(Vec<PathBuf>, u64), ExportError> {
    let (mut files, mut rows) = (Vec::new(), 0);
    for (position, _, planned, report) in source.cells() {
        let configuration = &planned.configuration;
        let model = names.of_configuration(configuration);
        let created = source.manifest.created.as_second();
        let record = EvaluationRecord {
            source,
            planned,
            report,
            evaluation: format!(
                "{}/{}_{}/{created}.0/{}",
                configuration.benchmark,
                model.developer,
                model.name,
                planned.identity.short()
            ),
            model,
        };
        let place = ["data", &configuration.benchmark, &record.model.developer, &record.model.name];
        let place: PathBuf = place.iter().collect();
        create_folder(&folder.join(&place))?;
        let uuid = uuid(&format!("{}{}", source.manifest.identity, planned.identity));
        let samples = place.join(format!("{uuid}_samples.jsonl"));
        let count = record.write_samples(&folder.join(&samples), position)?;
        let aggregate = folder.join(&place).join(format!("{uuid}.json"));
        let document = record.aggregate(&samples, &sha256(&folder.join(&samples))?, count, now);
        write_file(&aggregate, |out| {
            serde_json::to_writer_pretty(out, &document)
                .map_err(|error| ExportError::at(&aggregate)(error.into()))
        })?;
        files.extend([aggregate, folder.join(samples)]);
        rows += count;
    }
    Ok((files, rows))
}

/// The record of one configuration.
struct EvaluationRecord<'a> {
    source: &'a RunSource<'a>,
    planned: &'a PlannedConfiguration,
    report: &'a ConfigurationReport,
    model: ModelId,
    evaluation: String,
}

impl EvaluationRecord<'_> {
    fn write_samples(&self, file: &Path, position: usize) -> Result<u64, ExportError> {
        let mut rows = 0;
        write_file(file, |out| {
            self.source.for_each_recorded(position, |unit| {
                for row in self.rows(unit) {
                    rows += 1;
                    write_line(out, &row).map_err(ExportError::at(file))?;
                }
                Ok(())
            })
        })?;
        Ok(rows)
    }

    /// Returns a row per metric and scoring of a unit.
    fn rows<'b>(&'b self, unit: &'b RecordedUnit<'b>) -> impl Iterator<Item = Value> + 'b {
        let (item, outcome) = (unit.item, unit.outcome());
        let mut messages = Vec::new();
        let mut calls = 0;
        for one in exchanges(task_text(&item.task), outcome) {
            let mut message = json!({"turn_idx": messages.len(), "role": one.role, "content": one.text});
            if !one.uses.is_empty() {
                calls += one.uses.len();
                let call = |used: &super::transcript::ToolUse| json!({"id": used.id, "name": used.function, "arguments": used.arguments});
                message["tool_calls"] = one.uses.iter().map(call).collect();
            }
            messages.push(message);
            for used in one.uses {
                messages.push(json!({
                    "turn_idx": messages.len(),
                    "role": "tool",
                    "content": used.result,
                    "tool_call_id": [used.id],
                }));
            }
        }
        let last = messages.len().saturating_sub(1);
        let attribution: Vec<Value> = prediction_text(outcome)
            .map(|prediction| {
                json!({
                    "turn_idx": last,
                    "source": format!("messages[{last}].content"),
                    "extracted_value": prediction,
                    "extraction_method": "final state of the episode",
                    "is_terminal": true,
                })
            })
            .into_iter()
            .collect();
        let telemetry = &unit.record.telemetry;
        let bounded = unit.shares().filter(|(_, metric, _)| metric.kind.range().is_some());
        bounded.map(move |(scoring, metric, share)| {
            let main = main_metric(unit.metrics, |metric| {
                unit.shares().any(|(by, one, _)| by == scoring && one.name == metric.name)
            });
            json!({
                "schema_version": SCHEMA,
                "evaluation_id": self.evaluation,
                "model_id": self.model.to_string(),
                "evaluation_name": self.planned.configuration.benchmark,
                "evaluation_result_id": result_id(metric.name, scoring.name()),
                "sample_id": item.index.to_string(),
                "sample_hash": item.id.content,
                "interaction_type": "agentic",
                "input": {"raw": task_text(&item.task), "reference": [item.target.text()]},
                "output": null,
                "messages": messages,
                "answer_attribution": attribution,
                "evaluation": {
                    "score": share.value(),
                    "is_correct": metric.decides(main) && metric.is_full(share),
                    "num_turns": messages.len(),
                    "tool_calls_count": calls,
                },
                "token_usage": usage(outcome.tokens()),
                "performance": {"latency_ms": telemetry.seconds.max(0.0) * 1000.0},
                "error": null,
                "metadata": {
                    "status": outcome.ending.status(),
                    "unit": unit.unit.as_str(),
                    "numerator": share.numerator.to_string(),
                    "denominator": share.denominator.to_string(),
                },
            })
        })
    }

    fn aggregate(&self, samples: &Path, checksum: &str, rows: u64, now: Timestamp) -> Value {
        let manifest = self.source.manifest;
        let configuration = &self.planned.configuration;
        let created = manifest.created.as_second().to_string();
        let results = self.report.scores.iter().flat_map(|scores| {
            let estimated =
                scores.metrics.iter().filter_map(|metric| Some((metric, metric.estimate.as_ref()?)));
            let bounded = estimated.filter(|(metric, _)| metric.kind.range().is_some());
            bounded.map(|(metric, estimate)| self.result(metric, estimate, scores.scoring.name(), &created))
        });
        let mut details = Map::new();
        details.insert("deployment_type".to_owned(), json!("self_deployed"));
        details.insert("model_availability".to_owned(), json!("unknown"));
        for (role, model) in &configuration.models {
            details.insert(role.name().to_owned(), json!(model.name));
        }
        let mut document = json!({
            "schema_version": SCHEMA,
            "evaluation_id": self.evaluation,
            "evaluation_timestamp": created,
            "retrieved_timestamp": now.as_second().to_string(),
            "source_metadata": {
                "source_name": "lumos",
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "third_party",
            },
            "eval_library": {
                "name": "lumos",
                "version": manifest.versions.get("lumos").map_or("unknown", String::as_str),
            },
            "model_info": {
                "name": self.model.name,
                "id": self.model.to_string(),
                "developer": self.model.developer,
                "inference_engine": {"name": "lumos"},
                "additional_details": details,
            },
            "evaluation_results": results.collect::<Vec<_>>(),
        });
        if rows > 0 {
            document["detailed_evaluation_results"] = json!({
                "format": "jsonl",
                "file_path": samples,
                "hash_algorithm": "sha256",
                "checksum": checksum,
                "total_rows": rows,
            });
        }
        document
    }

    fn result(&self, metric: &MetricReport, estimate: &Estimate, scoring: &str, created: &str) -> Value {
        let configuration = &self.planned.configuration;
        let (least, most) = metric.kind.range().unwrap_or((0.0, 1.0));
        let mut uncertainty = json!({"num_samples": estimate.items});
        if let Some(error) = estimate.standard_error {
            uncertainty["standard_error"] = json!({"value": error, "method": "analytic"});
        }
        if let (Some((low, high)), Some(method)) = (estimate.interval, estimate.method) {
            uncertainty["confidence_interval"] =
                json!({"lower": low, "upper": high, "confidence_level": LEVEL, "method": method.name()});
        }
        let unit = match metric.unit {
            Unit::Percent => "proportion",
            Unit::Count(counted) => counted,
        };
        let kind = match metric.kind {
            MetricKind::Proportion => "accuracy",
            MetricKind::BoundedMean { .. } | MetricKind::UnboundedMean => "mean",
        };
        json!({
            "evaluation_result_id": result_id(&metric.metric, scoring),
            "evaluation_name": configuration.benchmark,
            "source_data": self.source_data(),
            "evaluation_timestamp": created,
            "metric_config": {
                "metric_id": metric.metric.replace('_', "-"),
                "metric_name": metric.metric,
                "metric_kind": kind,
                "metric_unit": unit,
                "lower_is_better": !metric.higher_is_better,
                "score_type": "continuous",
                "min_score": least,
                "max_score": most,
            },
            "score_details": {"score": estimate.value, "uncertainty": uncertainty},
            "generation_config": {
                "generation_args": generation_args(configuration),
                "additional_details": {
                    "formulation": configuration.formulation.to_string(),
                    "behaviour": configuration.behaviour.to_string(),
                    "scoring": scoring,
                    "seed": configuration.seed.to_string(),
                    "configuration": self.planned.identity.as_str(),
                },
            },
        })
    }

    fn source_data(&self) -> Value {
        let benchmark = &self.planned.configuration.benchmark;
        let mut details = Map::new();
        if let Some(data) = self.source.manifest.data_of(benchmark) {
            details.insert("sha256".to_owned(), json!(data.sha256.as_str()));
            details.insert("items".to_owned(), json!(data.selected.to_string()));
        }
        json!({"dataset_name": benchmark, "source_type": "other", "additional_details": details})
    }
}

/// Returns the id that relates rows to a figure: `exact_match:paper`.
fn result_id(metric: &str, scoring: &str) -> String {
    format!("{metric}:{scoring}")
}

fn generation_args(configuration: &Configuration) -> Value {
    let kwargs = generation_kwargs(&configuration.generation);
    let tools: Vec<Value> = configuration.tools.iter().map(|tool| json!({"name": tool.tool})).collect();
    let mut given = json!({
        "temperature": kwargs["temperature"],
        "max_tokens": kwargs["max_gen_toks"],
        "agentic_eval_config": {"available_tools": tools},
    });
    for name in ["top_p", "top_k"] {
        if let Some(value) = kwargs.get(name) {
            given[name] = value.clone();
        }
    }
    given
}

/// Returns a UUID of version 4 with the bits of a text's hash, so that equal records have equal names.
fn uuid(text: &str) -> String {
    let hash = ContentHash::of_bytes(text.as_bytes());
    let hex = hash.as_str();
    // The variant's two bits are 10: the digit is 8, 9, a or b.
    let variant = u8::from_str_radix(&hex[16..17], 16).unwrap_or_default() & 3 | 8;
    format!("{}-{}-4{}-{variant:x}{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// Returns the SHA-256 of a file.
fn sha256(file: &Path) -> Result<String, ExportError> {
    let read = || {
        let mut source = File::open(file)?;
        let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
        loop {
            match source.read(&mut buffer)? {
                0 => return Ok(hex::encode(hasher.finalize())),
                length => hasher.update(&buffer[..length]),
            }
        }
    };
    read().map_err(ExportError::at(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_of_version_four_and_derived_from_the_text() {
        let one = uuid("a");
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
        assert_eq!(one, uuid("a"));
        assert_ne!(one, uuid("b"));
    }
}
