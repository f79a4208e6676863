//! Tokens that the device chooses against those that the processor does: the same, to the bit.

use super::{buffer, bytes_of};
use crate::cuda::accelerator::Accelerator;
use crate::cuda::emulator::Emulator;
use crate::cuda::kernels;
use crate::cuda::step::rule;
use crate::fixtures::Uniform;
use crate::options::DType;
use crate::request::Sampling;
use crate::sampler::choose;
use proptest::prelude::*;

/// Chooses from rows of logits on both, the token with some index of each.
fn check(logits: &[Vec<f32>], samplings: &[Sampling], index: usize) -> Result<(), String> {
    let Some(device) = Emulator::start(DType::F32) else { return Ok(()) };
    let choosing: Vec<_> = samplings.iter().map(|sampling| sampling.choosing(index)).collect();
    let rules: Vec<u32> = choosing.iter().flat_map(rule).collect();
    let rules = buffer(&device, bytemuck::cast_slice(&rules));
    let vocabulary = logits[0].len();
    let rows = buffer(&device, &bytes_of(&logits.concat(), DType::F32));
    let chosen = device.allocate(logits.len() * 4).unwrap();
    kernels::choose(&device, logits.len(), vocabulary, (&rows, 0), (&rules, 0), (&chosen, 0)).unwrap();
    let mut found = vec![0u32; logits.len()];
    device.download(&chosen, 0, bytemuck::cast_slice_mut(&mut found)).map_err(|error| error.to_string())?;
    for (row, ((logits, choosing), found)) in logits.iter().zip(&choosing).zip(found).enumerate() {
        let expected = choose(logits, choosing).unwrap_or(u32::MAX);
        if found != expected {
            return Err(format!("row {row} of {vocabulary}, {choosing:?}: {found} instead of {expected}"));
        }
    }
    Ok(())
}

/// Rows as models have them and as they do not.
fn row(kind: usize, vocabulary: usize, random: &mut Uniform) -> Vec<f32> {
    let mut value = |width: f32| random.values(1, width)[0];
    let mut logits: Vec<f32> = match kind {
        0 => (0..vocabulary).map(|_| value(12.0)).collect(),
        // Few different ones.
        1 => (0..vocabulary).map(|_| (value(3.0)).round()).collect(),
        2 => vec![value(5.0); vocabulary],
        // Both zeros.
        3 => (0..vocabulary).map(|_| if value(1.0) < 0.0 { -0.0 } else { 0.0 }).collect(),
        // Nearly everything is out of reach.
        4 => (0..vocabulary).map(|id| if id % 37 == 5 { value(2.0) } else { f32::MIN }).collect(),
        // All sizes that floats have.
        _ => (0..vocabulary).map(|_| value(1.0) * 2f32.powf(value(126.0))).collect(),
    };
    if random.below(12) == 0 {
        let at = random.below(vocabulary);
        logits[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][random.below(3)];
    }
    logits
}

fn sampling(vocabulary: usize, random: &mut Uniform) -> Sampling {
    const TEMPERATURES: [f64; 8] = [0.0, 1e-6, 0.05, 0.7, 1.0, 1.9, 100.0, 1e30];
    let top_k = [None, Some(1 + random.below(vocabulary)), Some(2 + random.below(8)), Some(vocabulary)];
    let top_p = [None, Some((1 + random.below(1000)) as f64 / 1000.0), Some(1e-12), Some(0.999_999_999)];
    Sampling {
        temperature: TEMPERATURES[random.below(8)],
        top_k: top_k[random.below(4)],
        top_p: top_p[random.below(4)],
        seed: random.integer(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_device_chooses_as_the_processor(
        kinds in prop::collection::vec(0usize..6, 1..4), vocabulary in 1usize..4200, index in 0usize..9, seed in any::<u64>(),
    ) {
        let mut random = Uniform::new(seed);
        let rows: Vec<Vec<f32>> = kinds.iter().map(|kind| row(*kind, vocabulary, &mut random)).collect();
        let samplings: Vec<Sampling> = kinds.iter().map(|_| sampling(vocabulary, &mut random)).collect();
        prop_assert_eq!(check(&rows, &samplings, index), Ok(()));
    }
}

/// Each kind of rows with each cut, at a vocabulary of Llama's and at the smallest.
#[test]
fn every_cut_of_every_kind_is_the_processors() {
    let mut random = Uniform::new(23);
    for vocabulary in [1, 2, 33, 32_003] {
        for (top_k, top_p) in [(None, None), (Some(50), None), (None, Some(0.9)), (Some(300), Some(0.95))] {
            let samplings: Vec<Sampling> =
                (0..6).map(|seed| Sampling { temperature: 0.9, top_p, top_k, seed }).collect();
            let rows: Vec<Vec<f32>> = (0..6).map(|kind| row(kind, vocabulary, &mut random)).collect();
            assert_eq!(check(&rows, &samplings, 3), Ok(()));
        }
    }
}
