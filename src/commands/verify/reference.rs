//! `lumos verify --reference`: compares the engine with candle-transformers on the prompts of a sample.
//!
//! The engine continues each recorded prompt greedily by as many tokens as were recorded. candle-transformers computes
//! the same tokens, so that each position is compared once: a flip is a position whose most likely token differs. At a
//! near tie, rounding decides, and both are right.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lumos_engine::{GenerateRequest, Generation, StopCondition};
use lumos_models::{InProcessModel, ModelRegistry, ReferenceTrace};
use lumos_tasks::{BackendChoice, Formulation, ModelIdentity, PromptTemplate, Role, Step, UnitId};
use serde::Serialize;
use serde_json::json;

use super::Sampled;
use crate::exit::{CommandResult, Exit, Failure};

/// Differences of logits at which rounding decides between two tokens.
const NEAR_TIE: f32 = 0.002;

/// A recorded request.
struct Recorded<'a> {
    unit: &'a UnitId,
    turn: u32,
    prompt: &'a str,
    /// Length of the reply in tokens, including the token that ended it.
    reply_tokens: usize,
    /// Length of prompt and reply in tokens, if counted.
    tokens: Option<usize>,
}

/// A model of the run and its requests.
struct Requests<'a> {
    identity: &'a ModelIdentity,
    role: Role,
    formulation: Formulation,
    recorded: Vec<Recorded<'a>>,
}

/// The first position whose most likely token differs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Flip {
    index: usize,
    native: u32,
    reference: u32,
    /// Logit of the reference's token minus that of the engine's, as the reference computes them.
    margin: f32,
}

/// Comparison of one reply.
#[derive(Debug, PartialEq)]
struct Compared {
    logit_difference: f32,
    flips: Vec<Flip>,
}

impl Compared {
    fn of(native: &Generation, reference: &ReferenceTrace) -> Self {
        let difference = |(id, logit): &(u32, f32)| {
            let other = reference.first_logits.get(*id as usize).copied().unwrap_or(f32::NAN);
            (logit - other).abs()
        };
        let differences = native.first_logits.iter().map(difference);
        let logit_difference =
            differences.fold(0.0, |most, one| if one > most || one.is_nan() { one } else { most });
        let flips = native.tokens.iter().zip(&reference.choices).enumerate();
        let flips = flips.filter(|(_, (native, choice))| **native != choice.token).map(
            |(index, (native, choice))| Flip {
                index,
                native: *native,
                reference: choice.token,
                margin: choice.margin,
            },
        );
        Self { logit_difference, flips: flips.collect() }
    }
}

/// Totals of all replies.
#[derive(Debug, Default, Serialize)]
struct Totals {
    units: usize,
    replies: usize,
    largest_logit_difference: f32,
    flips: usize,
    near_ties: usize,
}

/// Compares the models of a sample and prints the differences.
pub(super) async fn compare(models: &ModelRegistry, sample: &[Sampled], json: bool) -> CommandResult {
    let mut totals = Totals { units: sample.len(), ..Totals::default() };
    let mut out = io::stdout().lock();
    for requests in requests_of(sample)? {
        let (native, reference) = load(models, &requests).await?;
        for recorded in &requests.recorded {
            let compared = compared(&native, &reference, recorded).await?;
            let is_near = |flip: &&Flip| flip.margin < NEAR_TIE;
            totals.replies += 1;
            totals.near_ties += compared.flips.iter().filter(is_near).count();
            totals.flips += compared.flips.iter().filter(|flip| !is_near(flip)).count();
            totals.largest_logit_difference = totals.largest_logit_difference.max(compared.logit_difference);
            print(&mut out, recorded, &compared, json)?;
        }
    }
    if json {
        writeln!(out, "{}", json!(totals))?;
    } else {
        let Totals { units, replies, largest_logit_difference, flips, near_ties } = &totals;
        writeln!(
            out,
            "{units} units, {replies} replies compared with candle-transformers: largest difference of logits \
             {largest_logit_difference:.2e}, {flips} flips, {near_ties} near ties"
        )?;
    }
    Ok(if totals.flips > 0 { Exit::CheckFailed } else { Exit::Complete })
}

/// Groups the recorded requests by model.
fn requests_of(sample: &[Sampled]) -> Result<Vec<Requests<'_>>, Failure> {
    let mut all: BTreeMap<_, Requests<'_>> = BTreeMap::new();
    for sampled in sample {
        let configuration = &sampled.unit.configuration;
        // Prompts are recorded before they are rendered with another template, so their length is unknown.
        let is_counted = configuration.format.template == PromptTemplate::Tulu;
        for step in &sampled.recorded.steps {
            let Step::Generate { turn, role, prompt, prompt_tokens, completion_tokens, .. } = step else {
                continue;
            };
            let Some(identity) = configuration.models.get(role) else { continue };
            let Some(computed_in) = &identity.dtype else { continue };
            if computed_in.contains("candle-transformers") {
                let name = &identity.name;
                return Err(Failure::input(format!(
                    "model `{name}` was computed with candle-transformers already"
                ))
                .hint("--reference compares runs of the engine"));
            }
            let size = |tokens: u32| usize::try_from(tokens).unwrap_or(usize::MAX);
            let reply_tokens = completion_tokens.unwrap_or(configuration.generation.max_new_tokens);
            let recorded = Recorded {
                unit: &sampled.unit.id,
                turn: *turn,
                prompt,
                reply_tokens: size(reply_tokens).max(1),
                tokens: prompt_tokens
                    .filter(|_| is_counted)
                    .map(|tokens| size(tokens).saturating_add(size(reply_tokens).max(1))),
            };
            let requests = all.entry((&identity.content, computed_in)).or_insert_with(|| Requests {
                identity,
                role: *role,
                formulation: configuration.formulation,
                recorded: Vec::new(),
            });
            requests.recorded.push(recorded);
        }
    }
    if all.is_empty() {
        return Err(Failure::input("no replies of models that this process computes in the sample"));
    }
    Ok(all.into_values().collect())
}

/// Loads a model with both backends.
async fn load(
    models: &ModelRegistry,
    requests: &Requests<'_>,
) -> Result<(InProcessModel, InProcessModel), Failure> {
    let Requests { identity, role, formulation, recorded } = requests;
    let load = |backend, longest| models.load_with(identity, *role, *formulation, backend, longest);
    // Configurations with windows are computed correctly up to the window.
    let longest: Option<usize> =
        recorded.iter().map(|one| one.tokens).try_fold(0, |most, tokens| Some(most.max(tokens?)));
    let reference = load(BackendChoice::CandleTransformers, longest.map(|tokens| tokens + 1)).await;
    let native = load(BackendChoice::Native, None).await;
    Ok((native.map_err(Failure::usage)?, reference.map_err(Failure::usage)?))
}

async fn compared(
    native: &InProcessModel,
    reference: &InProcessModel,
    recorded: &Recorded<'_>,
) -> Result<Compared, Failure> {
    let request = GenerateRequest {
        stop: StopCondition::Never,
        ignore_eos: true,
        first_logits: native.description().vocabulary,
        ..GenerateRequest::text(recorded.prompt, recorded.reply_tokens)
    };
    let generation = native.generate(request).await.map_err(Failure::usage)?;
    let InProcessModel::CandleTransformers(reference) = reference else {
        return Err(Failure::input("candle-transformers did not load the model"));
    };
    let trace = reference.trace(generation.prompt_tokens.clone(), generation.tokens.clone()).await;
    Ok(Compared::of(&generation, &trace.map_err(Failure::usage)?))
}

fn print(out: &mut impl Write, recorded: &Recorded<'_>, compared: &Compared, json: bool) -> io::Result<()> {
    let Recorded { unit, turn, .. } = recorded;
    let Compared { logit_difference, flips } = compared;
    let first = flips.first();
    if json {
        let line = json!({
            "unit": unit, "turn": turn, "logit_difference": logit_difference, "flips": flips.len(),
            "first_flip": first,
        });
        writeln!(out, "{line}")?;
    } else if let Some(Flip { index, native, reference, margin }) = first {
        writeln!(
            out,
            "{unit}, turn {turn}: {} flips, first at token {index}: {native} instead of {reference} (margin {margin:.4})",
            flips.len()
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lumos_engine::{FinishReason, TokenUsage};
    use lumos_models::ReferenceChoice;

    use super::*;

    #[test]
    fn flips_are_positions_with_another_most_likely_token() {
        let native = Generation {
            prompt_tokens: vec![1],
            tokens: vec![4, 2, 3],
            text: String::new(),
            finish: FinishReason::Length,
            usage: TokenUsage::default(),
            first_logits: vec![(1, 2.0), (0, 0.5)],
        };
        let choice = |token, margin| ReferenceChoice { token, margin };
        let reference = ReferenceTrace {
            first_logits: vec![0.25, 2.0],
            choices: vec![choice(4, 0.0), choice(5, 0.001), choice(6, 0.5)],
        };
        let compared = Compared::of(&native, &reference);
        let flip = |index, native, reference, margin| Flip { index, native, reference, margin };
        assert_eq!(
            compared,
            Compared { logit_difference: 0.25, flips: vec![flip(1, 2, 5, 0.001), flip(2, 3, 6, 0.5)] }
        );
        let shorter = ReferenceTrace { first_logits: vec![0.25], ..reference };
        assert!(Compared::of(&native, &shorter).logit_difference.is_nan());
    }
}
