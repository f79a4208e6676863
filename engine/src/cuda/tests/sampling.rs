//! Compares the tokens that the device chooses with those that the CPU chooses: they are bit-identical.

use lumos_kernels::DType;

use super::{buffer, bytes_of};
use crate::cuda::accelerator::Accelerator;
use crate::cuda::emulator::Emulator;
use crate::cuda::kernels;
use crate::cuda::step::rule;
use crate::fixtures::Uniform;
use crate::request::SamplingParams;
use crate::sampler::{Choosing, choose};
use proptest::prelude::*;

/// Chooses from rows of logits on both.
fn check(logits: &[Vec<f32>], choosing: &[Choosing]) -> Result<(), String> {
    // Small vocabularies go through the same accesses, with sanitizers.
    let start = if logits[0].len() > 1_000 { Emulator::unsanitized } else { Emulator::start };
    let Some(device) = start(DType::F32) else { return Ok(()) };
    let rules: Vec<u32> = choosing.iter().flat_map(rule).collect();
    let rules = buffer(&device, bytemuck::cast_slice(&rules));
    let vocabulary = logits[0].len();
    let rows = buffer(&device, &bytes_of(&logits.concat(), DType::F32));
    let chosen = device.allocate(logits.len() * 4).unwrap();
    kernels::choose(&device, logits.len(), vocabulary, (&rows, 0), (&rules, 0), (&chosen, 0)).unwrap();
    let mut found = vec![0u32; logits.len()];
    device.download(&chosen, 0, bytemuck::cast_slice_mut(&mut found)).map_err(|error| error.to_string())?;
    for (row, ((logits, choosing), found)) in logits.iter().zip(choosing).zip(found).enumerate() {
        let expected = choose(logits, choosing).unwrap_or(u32::MAX);
        if found != expected {
            return Err(format!("row {row} of {vocabulary}, {choosing:?}: {found} instead of {expected}"));
        }
    }
    Ok(())
}

/// The highest random number selects the last token that remains: with descending logits, the one at which
/// the cuts end.
fn last(logits: &mut [f32], choosing: Choosing) -> Choosing {
    logits.sort_by(|one, other| other.total_cmp(one));
    match choosing {
        Choosing::Draw(draw) => Choosing::Draw(draw.at(u64::MAX)),
        Choosing::Highest => Choosing::Highest,
    }
}

/// Typical and extreme rows of logits.
fn row(kind: usize, vocabulary: usize, random: &mut Uniform) -> Vec<f32> {
    let mut value = |width: f32| random.values(1, width)[0];
    let mut logits: Vec<f32> = match kind {
        0 => (0..vocabulary).map(|_| value(12.0)).collect(),
        // Few distinct values.
        1 => (0..vocabulary).map(|_| (value(3.0)).round()).collect(),
        2 => vec![value(5.0); vocabulary],
        // Both zeros.
        3 => (0..vocabulary).map(|_| if value(1.0) < 0.0 { -0.0 } else { 0.0 }).collect(),
        // Nearly all tokens have the lowest possible logit.
        4 => (0..vocabulary).map(|id| if id % 37 == 5 { value(2.0) } else { f32::MIN }).collect(),
        // All magnitudes of floats.
        _ => (0..vocabulary).map(|_| value(1.0) * 2f32.powf(value(126.0))).collect(),
    };
    if random.below(12) == 0 {
        let at = random.below(vocabulary);
        logits[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][random.below(3)];
    }
    logits
}

fn sampling(vocabulary: usize, random: &mut Uniform) -> SamplingParams {
    const TEMPERATURES: [f64; 8] = [0.0, 1e-6, 0.05, 0.7, 1.0, 1.9, 100.0, 1e30];
    let top_k = [None, Some(1 + random.below(vocabulary)), Some(2 + random.below(8)), Some(vocabulary)];
    let top_p = [None, Some((1 + random.below(1000)) as f64 / 1000.0), Some(1e-12), Some(0.999_999_999)];
    SamplingParams {
        temperature: TEMPERATURES[random.below(8)],
        top_k: top_k[random.below(4)],
        top_p: top_p[random.below(4)],
        seed: random.integer(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_device_chooses_as_the_processor(
        kinds in prop::collection::vec(0usize..6, 1..4), vocabulary in 1usize..4200, index in 0usize..9, seed in any::<u64>(),
    ) {
        let mut random = Uniform::new(seed);
        let mut rows: Vec<Vec<f32>> = kinds.iter().map(|kind| row(*kind, vocabulary, &mut random)).collect();
        let mut choosing: Vec<Choosing> =
            kinds.iter().map(|_| sampling(vocabulary, &mut random).choosing(index)).collect();
        let (fallen, ended): (Vec<_>, Vec<_>) = rows.iter().zip(&choosing).map(|(row, choosing)| {
            let mut row = row.clone();
            let choosing = last(&mut row, *choosing);
            (row, choosing)
        }).unzip();
        rows.extend(fallen);
        choosing.extend(ended);
        prop_assert_eq!(check(&rows, &choosing), Ok(()));
    }
}

/// Each kind of row with a cut, at vocabularies of Llama's size and the smallest.
#[test]
fn every_cut_of_every_kind_is_the_processors() {
    let mut random = Uniform::new(23);
    for (shift, vocabulary) in [1, 2, 33, 32_003, 32_000].into_iter().enumerate() {
        let (mut rows, mut choosing) = (Vec::new(), Vec::new());
        for kind in 0..6 {
            let cuts = [(None, None), (Some(50), None), (Some(300), Some(0.95)), (None, Some(0.9))];
            let (top_k, top_p) = cuts[(kind + shift) % 4];
            let sampling = SamplingParams { temperature: 0.9, top_p, top_k, seed: kind as u64 };
            let mut row = row(kind, vocabulary, &mut random);
            rows.push(row.clone());
            choosing.push(sampling.choosing(3));
            choosing.push(last(&mut row, sampling.choosing(3)));
            rows.push(row);
        }
        assert_eq!(check(&rows, &choosing), Ok(()));
    }
}

/// Threads with logits of the same digits do not all wait for one sum in shared memory.
#[test]
fn equal_digits_have_several_sums() {
    let Some(device) = Emulator::unsanitized(DType::F32) else { return };
    let vocabulary = 32_000;
    let logits = buffer(&device, &bytes_of(&vec![1.5; vocabulary], DType::F32));
    let sampling = SamplingParams { temperature: 1.0, top_p: Some(0.9), top_k: None, seed: 1 };
    let rules = buffer(&device, bytemuck::cast_slice(&rule(&sampling.choosing(0))));
    let chosen = device.allocate(4).unwrap();
    kernels::choose(&device, 1, vocabulary, (&logits, 0), (&rules, 0), (&chosen, 0)).unwrap();
    let most = device.most_additions().unwrap() as usize;
    assert!(most > 0 && most <= 2 * vocabulary / 8, "{most} additions to one sum");
}

/// The first cut ends among equal logits; where the second one ends before them, it does not depend on their
/// ids.
#[test]
fn the_second_cut_forgets_where_the_first_ended() {
    let logits = vec![5.0, 1.0, 1.0, 5.0, 5.0];
    let sampling = SamplingParams { temperature: 1.0, top_p: Some(0.9), top_k: Some(4), seed: 0 };
    let choosing = last(&mut [], sampling.choosing(0));
    assert_eq!(choose(&logits, &choosing), Some(4));
    assert_eq!(check(&[logits], &[choosing]), Ok(()));
}

/// A non-integer part of a weight rounds up: of these two, less than one unit of the lower is needed.
#[test]
fn parts_are_rounded_up() {
    let draw = |part: u32| {
        let top_p = Some(f64::from(part) / 2f64.powi(32));
        let sampling = SamplingParams { temperature: 1.0, top_p, top_k: None, seed: 0 };
        let mut logits = vec![0.0, -53.0 / 1024.0];
        let choosing = last(&mut logits, sampling.choosing(0));
        (choose(&logits, &choosing), check(&[logits], &[choosing]))
    };
    assert_eq!(draw(2_203_045_765), (Some(0), Ok(())));
    assert_eq!(draw(2_203_045_766), (Some(1), Ok(())));
}
