//! The cases of `stat_cases.json`, computed with SciPy and statsmodels.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::bootstrap::bca_of_all_resamples;
use super::normal::normal_quantile;
use super::*;

/// The group of an interval without a use here.
const UNUSED: &str = "clopper_pearson";

/// Numbers of a case that other functions compute, or that are variants without a use here.
const IGNORED: [&str; 10] = [
    "p_chi2_corrected",
    "p_scipy",
    "bonferroni",
    "z95",
    "p_z",
    "t",
    "se_unpaired",
    "correlation",
    "se_miller",
    "se_cr0",
];

/// One case: its input, and the numbers compared so far.
struct Case<'a> {
    fields: &'a Map<String, Value>,
    used: BTreeSet<&'a str>,
    tolerance: f64,
    largest: f64,
}

impl<'a> Case<'a> {
    fn field(&mut self, name: &'a str) -> &'a Value {
        self.used.insert(name);
        self.fields.get(name).unwrap_or_else(|| panic!("missing `{name}`: {:?}", self.fields))
    }

    fn number(&mut self, name: &'a str) -> f64 {
        self.field(name).as_f64().unwrap()
    }

    fn count(&mut self, name: &'a str) -> u64 {
        self.field(name).as_u64().unwrap()
    }

    fn numbers(&mut self, name: &'a str) -> Vec<f64> {
        self.field(name).as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Compares a result with the case's numbers of this name, if the case has it.
    fn check(&mut self, name: &'a str, found: &[f64]) {
        let Some(expected) = self.fields.get(name) else { return };
        self.used.insert(name);
        let expected: Vec<f64> = match expected {
            Value::Array(values) => values.iter().map(|one| one.as_f64().unwrap()).collect(),
            value => vec![value.as_f64().unwrap()],
        };
        assert_eq!(expected.len(), found.len(), "{name}");
        for (expected, found) in expected.iter().zip(found) {
            let error = (expected - found).abs();
            assert!(error <= self.tolerance, "{name}: {found}, expected {expected}: {:?}", self.fields);
            self.largest = self.largest.max(error);
        }
    }

    fn limits(&mut self, (low, high): Limits) {
        self.check("lower", &[low]);
        self.check("upper", &[high]);
    }
}

fn pair((low, high): Limits) -> [f64; 2] {
    [low, high]
}

fn run(group: &str, case: &mut Case<'_>) {
    match group {
        "wilson" => {
            let (k, n) = (case.number("k"), case.number("n"));
            case.limits(wilson(k, n, 0.95).unwrap());
        }
        "mean_se" => {
            let scores = case.numbers("scores");
            let (mean, error) = mean_and_error(&scores).unwrap();
            // Compared with 0, a mean has the interval of its own error.
            let paired = PairedDifference::of(&scores, &vec![0.0; scores.len()], None).unwrap();
            case.check("mean", &[mean]);
            case.check("se", &[error]);
            case.check("t95", &pair(paired.interval(0.95)));
        }
        "clustered_se" => {
            let scores = case.numbers("scores");
            let clusters = case.field("clusters").as_array().unwrap().iter();
            let clusters: Vec<u32> =
                clusters.map(|one| u32::from(one.as_str().unwrap().as_bytes()[0])).collect();
            let (mean, independent) = mean_and_error(&scores).unwrap();
            let paired = PairedDifference::of(&scores, &vec![0.0; scores.len()], Some(&clusters)).unwrap();
            case.check("mean", &[mean]);
            case.check("se_clt", &[independent]);
            case.check("se_cr1", &[paired.standard_error]);
        }
        "paired_difference" => {
            let (a, b) = (case.numbers("a"), case.numbers("b"));
            let paired = PairedDifference::of(&a, &b, None).unwrap();
            case.check("difference", &[paired.difference]);
            case.check("se_paired", &[paired.standard_error]);
            case.check("p_t", &[paired.p_t]);
        }
        "mcnemar" => {
            let test = mcnemar(case.count("only_a_right"), case.count("only_b_right"));
            case.check("p_exact", &[test.exact]);
            case.check("p_mid", &[test.mid_p]);
        }
        "paired_permutation" => {
            let test = sign_flip(&case.numbers("differences"), 0);
            assert!(test.exact);
            case.check("p_two_sided", &[test.p]);
        }
        "bootstrap_bca" => {
            let bca = bca_of_all_resamples(&case.numbers("values"), 0.95).unwrap();
            case.check("theta", &[bca.theta]);
            case.check("z0", &[bca.z0]);
            case.check("acceleration", &[bca.acceleration]);
            case.check("quantiles", &pair(bca.quantiles));
            case.check("interval", &pair(bca.interval));
            case.check("percentile_interval", &pair(bca.percentile));
        }
        "multiplicity" => {
            let p = case.numbers("p");
            case.check("holm", &holm(&p));
            case.check("bh", &benjamini_hochberg(&p));
        }
        "pass_at_k" => {
            let (n, c, k) = (case.count("n"), case.count("c"), case.count("k"));
            case.check("pass_at_k", &[pass_at_k(n, c, k).unwrap()]);
            case.check("pass_hat_k", &[pass_hat_k(n, c, k).unwrap()]);
        }
        "power" => power(case),
        "unpaired_difference" => {
            let a = (case.number("k_a"), case.number("n_a"));
            let b = (case.number("k_b"), case.number("n_b"));
            let (difference, limits) = newcombe(a, b, 0.95).unwrap();
            case.check("difference", &[difference]);
            case.limits(limits);
        }
        "gate_non_inferiority" => {
            let (a, b) = (case.numbers("a"), case.numbers("b"));
            let margin = case.number("margin");
            let paired = PairedDifference::of(&a, &b, None).unwrap();
            let gate = non_inferiority(&paired, margin);
            case.check("difference", &[paired.difference]);
            case.check("se", &[paired.standard_error]);
            case.check("lower_one_sided_95", &[gate.lower]);
            assert_eq!(case.field("passes").as_bool(), Some(gate.lower > -margin));
        }
        other => panic!("unknown group `{other}`"),
    }
}

fn power(case: &mut Case<'_>) {
    let (alpha, power) = (case.number("alpha"), case.number("power"));
    if case.has("discordant_share") {
        // Deterministic runs whose items are right or wrong differ by 1 in this share of the items.
        let (items, variances) = (case.count("n"), Variances::of_items(case.number("discordant_share")));
        return case.check("mde_simple", &[detectable(items, &variances, alpha, power)]);
    }
    let variances = Variances {
        omega2: case.number("omega2"),
        sigma2_a: case.number("sigma2_a"),
        sigma2_b: case.number("sigma2_b"),
        attempts_a: case.count("k_a"),
        attempts_b: case.count("k_b"),
    };
    if case.has("delta") {
        let needed = items_needed(case.number("delta"), &variances, alpha, power).unwrap();
        case.check("n", &[needed as f64]);
    } else {
        let items = case.count("n");
        case.check("mde", &[detectable(items, &variances, alpha, power)]);
    }
}

#[test]
fn all_cases_are_reproduced() {
    let Some(path) = lumos_capabilities::shared("reports/stat_cases.json") else { return };
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let tolerance = file["tolerance"].as_f64().unwrap();
    assert_eq!(file["z_0975"].as_f64(), Some(normal_quantile(0.975)));
    let groups: Vec<&Value> =
        file["groups"].as_array().unwrap().iter().filter(|group| group["id"] != UNUSED).collect();
    let mut count = 0;
    for group in &groups {
        let id = group["id"].as_str().unwrap();
        let mut largest = 0.0f64;
        let cases = group["cases"].as_array().unwrap();
        for fields in cases {
            let fields = fields.as_object().unwrap();
            let mut case = Case { fields, used: BTreeSet::new(), tolerance, largest: 0.0 };
            run(id, &mut case);
            let left: Vec<&String> = fields
                .keys()
                .filter(|name| !case.used.contains(name.as_str()) && !IGNORED.contains(&name.as_str()))
                .collect();
            assert!(left.is_empty(), "{id}: not compared: {left:?}");
            largest = largest.max(case.largest);
        }
        println!("{id}: {} cases, largest error {largest:.1e}", cases.len());
        count += cases.len();
    }
    assert_eq!((groups.len(), count), (12, 46));
}
