//! Coverage: how often an interval of nominally 95 % contains the true value.
//!
//! Proportions and binary pairs are enumerated exactly where that is fast; other intervals are simulated from a seed.
//! `LUMOS_SIMULATIONS=full` adds the slow simulations of the bootstrap.

use rand_mt::Mt64;
use statrs::distribution::{Binomial, Discrete};

use super::*;

/// Sizes that reports are about: samples, a small benchmark, GSM8K.
const SIZES: [u64; 3] = [30, 300, 1319];
const SIMULATIONS: u64 = 10_000;

/// Whether a coverage is within one point of 95 %.
fn is_nominal(coverage: f64) -> bool {
    (coverage - 0.95).abs() <= 0.01
}

fn random(seed: u64) -> Mt64 {
    Mt64::new(lumos_capabilities::seed(seed))
}

/// A uniform number from 0 to 1.
fn uniform(source: &mut Mt64) -> f64 {
    (source.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn covers((low, high): Limits, value: f64) -> bool {
    low - 1e-12 <= value && value <= high + 1e-12
}

/// Probability that Wilson's interval of a share covers it, over all numbers of successes.
fn of_share(n: u64, share: f64) -> f64 {
    let binomial = Binomial::new(share, n).unwrap();
    let covered = (0..=n).filter(|&k| covers(wilson(k as f64, n as f64, 0.95).unwrap(), share));
    covered.map(|k| binomial.pmf(k)).sum()
}

#[test]
fn intervals_of_shares() {
    let shares: Vec<f64> = (1..20).map(|step| f64::from(step) * 0.05).collect();
    for n in SIZES {
        let average = shares.iter().map(|&share| of_share(n, share)).sum::<f64>() / shares.len() as f64;
        println!("wilson, {n} items: {average:.4} on average");
        assert!(is_nominal(average), "wilson, {n} items: {average}");
    }
}

/// Shares of items that only a and only b has right: 10 to 40 % of the items differ, evenly or mostly in one direction.
/// With fewer differing items among 30, no interval from the counts can cover 95 %, and this one covers more.
fn settings() -> impl Iterator<Item = (f64, f64)> {
    [0.1, 0.2, 0.3, 0.4].into_iter().flat_map(|differing| {
        [0.0, 0.25, 0.5, 0.75].map(|lean| (differing * (1.0 + lean) / 2.0, differing * (1.0 - lean) / 2.0))
    })
}

/// Probability that the score interval covers the true difference. Counts beyond eight standard deviations are left
/// out, which changes the sum by less than 1e-9.
fn of_pairs(n: u64, only_a: f64, only_b: f64) -> f64 {
    let first = Binomial::new(only_a, n).unwrap();
    let range = |n: u64, share: f64| {
        let (mean, deviation) = (n as f64 * share, (n as f64 * share * (1.0 - share)).sqrt());
        let (low, high) = (mean - 7.0 * deviation - 5.0, mean + 7.0 * deviation + 10.0);
        (low.max(0.0) as u64)..=(high as u64).min(n)
    };
    let mut covered = 0.0;
    for a in range(n, only_a) {
        let rest = only_b / (1.0 - only_a);
        let second = Binomial::new(rest, n - a).unwrap();
        for b in range(n - a, rest) {
            if covers(paired_score(a, b, n, 0.95).unwrap(), only_a - only_b) {
                covered += first.pmf(a) * second.pmf(b);
            }
        }
    }
    covered
}

#[test]
fn intervals_of_binary_pairs() {
    for n in [30, 300] {
        let all: Vec<f64> = settings().map(|(a, b)| of_pairs(n, a, b)).collect();
        let average = all.iter().sum::<f64>() / all.len() as f64;
        let (least, most) =
            all.iter().fold((1.0f64, 0.0f64), |(low, high), one| (low.min(*one), high.max(*one)));
        println!("paired_score, {n} items: {average:.4} on average, {least:.4} to {most:.4}");
        assert!(is_nominal(average) && least > 0.93, "paired_score, {n} items: {average} {least}");
    }
    let n = 1319;
    let mut source = random(1);
    let mut covered = 0u64;
    for (only_a, only_b) in settings() {
        for _ in 0..SIMULATIONS / 16 {
            let (mut a, mut b) = (0, 0);
            for _ in 0..n {
                let drawn = uniform(&mut source);
                a += u64::from(drawn < only_a);
                b += u64::from(drawn >= only_a && drawn < only_a + only_b);
            }
            covered += u64::from(covers(paired_score(a, b, n, 0.95).unwrap(), only_a - only_b));
        }
    }
    let average = covered as f64 / (SIMULATIONS / 16 * 16) as f64;
    println!("paired_score, {n} items: {average:.4} on average");
    assert!(is_nominal(average), "paired_score, {n} items: {average}");
}

/// Share of simulations in which the interval covers the value.
fn simulated(simulations: u64, value: f64, mut interval: impl FnMut() -> Limits) -> f64 {
    let covered = (0..simulations).filter(|_| covers(interval(), value)).count();
    covered as f64 / simulations as f64
}

/// The square of a uniform number: a skewed score with mean 1/3.
fn score(source: &mut Mt64) -> f64 {
    let drawn = uniform(source);
    drawn * drawn
}

#[test]
fn intervals_of_fractional_differences() {
    let mut source = random(2);
    for n in [30usize, 300] {
        let coverage = simulated(SIMULATIONS / 2, -1.0 / 3.0, || {
            let a: Vec<f64> = (0..n).map(|_| score(&mut source) * uniform(&mut source).round()).collect();
            let b: Vec<f64> = (0..n)
                .map(|_| f64::midpoint(score(&mut source), uniform(&mut source).powi(2) * 2.0))
                .collect();
            // Means: 1/6 and 1/2.
            PairedDifference::of(&a, &b, None).unwrap().interval(0.95)
        });
        println!("student, {n} items: {coverage:.4}");
        assert!(is_nominal(coverage), "student, {n} items: {coverage}");
    }
}

#[test]
fn intervals_of_clustered_differences() {
    let mut source = random(3);
    // 100 databases with three questions each, whose difficulty is that of the database.
    let clusters: Vec<u32> = (0..300).map(|item| item / 3).collect();
    let coverage = simulated(SIMULATIONS / 2, 0.1, || {
        let (mut a, mut b) = (Vec::with_capacity(300), Vec::with_capacity(300));
        for _ in 0..100 {
            let effect = 0.1 + (uniform(&mut source) - 0.5);
            for _ in 0..3 {
                let drawn = uniform(&mut source);
                a.push(drawn + effect);
                b.push(drawn + uniform(&mut source) - 0.5);
            }
        }
        PairedDifference::of(&a, &b, Some(&clusters)).unwrap().interval(0.95)
    });
    println!("student, 100 clusters of 3 items: {coverage:.4}");
    assert!(is_nominal(coverage), "{coverage}");
}

#[test]
fn intervals_of_unpaired_shares() {
    let shares = [(0.3, 0.3), (0.5, 0.4), (0.7, 0.9), (0.2, 0.5)];
    let of = |n: u64, (a, b): (f64, f64)| {
        let (first, second) = (Binomial::new(a, n).unwrap(), Binomial::new(b, n).unwrap());
        let mut covered = 0.0;
        for left in 0..=n {
            for right in 0..=n {
                let (_, limits) = newcombe((left as f64, n as f64), (right as f64, n as f64), 0.95).unwrap();
                if covers(limits, a - b) {
                    covered += first.pmf(left) * second.pmf(right);
                }
            }
        }
        covered
    };
    for n in [30, 300] {
        let average = shares.iter().map(|&pair| of(n, pair)).sum::<f64>() / shares.len() as f64;
        println!("newcombe, {n} items: {average:.4} on average");
        assert!(is_nominal(average), "newcombe, {n} items: {average}");
    }
}

/// A candidate that is worse by exactly the margin passes in 5 % of cases.
#[test]
fn the_gates_limit() {
    let mut source = random(4);
    for n in [300u32, 1319] {
        let (only_candidate, only_baseline) = (0.09, 0.11);
        let simulations = SIMULATIONS / 5;
        let passed = (0..simulations)
            .filter(|_| {
                let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
                for _ in 0..n {
                    let drawn = uniform(&mut source);
                    let is_candidate = drawn < only_candidate || drawn > 0.5;
                    let is_baseline =
                        (only_candidate..only_candidate + only_baseline).contains(&drawn) || drawn > 0.5;
                    candidate.push(f64::from(u8::from(is_candidate)));
                    baseline.push(f64::from(u8::from(is_baseline)));
                }
                let paired = PairedDifference::of(&candidate, &baseline, None).unwrap();
                non_inferiority(&paired, 0.02).lower > -0.02
            })
            .count();
        let share = passed as f64 / simulations as f64;
        println!("gate, {n} items: {:.4} of candidates worse by the margin are stopped", 1.0 - share);
        assert!((share - 0.05).abs() < 0.0175, "{share}");
    }
}

/// The expanded bootstrap interval of a skewed mean of 30 items. Few simulations by default, with a wider band.
#[test]
fn bootstrap_intervals() {
    let is_full = std::env::var("LUMOS_SIMULATIONS").is_ok_and(|how| how == "full");
    let (simulations, draws, band) = if is_full { (4000, 999, 0.012) } else { (300, 299, 0.04) };
    let mut source = random(5);
    let mut seed = 0;
    let coverage = simulated(simulations, 1.0 / 3.0, || {
        let values: Vec<ClusterSum> =
            (0..30).map(|_| ClusterSum { numerator: score(&mut source), denominator: 1.0 }).collect();
        seed += 1;
        bca(&values, draws, seed, 0.95, true).unwrap().interval
    });
    println!("bca with expanded quantiles, 30 items: {coverage:.4}");
    assert!((coverage - 0.95).abs() <= band, "{coverage}");
}
