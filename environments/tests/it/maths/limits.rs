//! Hostile queries: each is rejected or answered quickly, without deep recursion.

use std::time::Duration;

use lumos_environments::maths::{MathsAnswer, MathsError, MathsLimits, answer, answer_within, same_value};
use rustix::time::{ClockId, clock_gettime};

/// Maximum processor time of a query, also in debug builds.
const PATIENCE: Duration = Duration::from_millis(50);

const STACK: usize = 2 * 1024 * 1024;

/// Returns the processor time of this thread, which other processes hardly change.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Runs a query on a thread with a stack of 2 MiB and measures its processor time. Repeats a run that was slowed down
/// by other processes.
fn timed(query: &str) -> (Result<MathsAnswer, MathsError>, Duration) {
    let query = query.to_owned();
    let run = move || {
        let attempt = || {
            let start = processor_time();
            let result = answer(&query);
            (result, processor_time() - start)
        };
        (0..20).map(|_| attempt()).find(|(_, time)| *time < PATIENCE).unwrap_or_else(attempt)
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).expect("failed to start a thread");
    thread.join().expect("the query panicked")
}

fn shortened(query: &str) -> String {
    query.chars().take(60).collect()
}

fn refused(query: &str) -> MathsError {
    let (result, time) = timed(query);
    eprintln!("{time:>12.3?}  {} -> {result:?}", shortened(query));
    assert!(time < PATIENCE, "{}: {time:?}", shortened(query));
    result.expect_err("the query was not rejected")
}

fn too_large(query: &str) {
    let error = refused(query);
    assert!(matches!(error, MathsError::TooLarge { .. }), "{}: {error:?}", shortened(query));
}

/// Checks that a query ends in time, with any result.
fn ends(query: &str) {
    let (result, time) = timed(query);
    let shown = format!("{result:?}").chars().take(60).collect::<String>();
    eprintln!("{time:>12.3?}  {} -> {shown}", shortened(query));
    assert!(time < PATIENCE, "{}: {time:?}", shortened(query));
}

#[test]
fn towers_of_powers() {
    too_large("9^9^9^9");
    too_large("9^9^9");
    too_large("2^9000");
    too_large("(1/2)^-9000");
    too_large("0.1^100000");
    too_large("10^-100000");
    too_large("1e100000");
    too_large("1e99999999999999999999");
    too_large("x^9^9^9");
    too_large("(x + 1)^99999999999");
    too_large("sqrt(2)^99999999999");
    too_large("(1 + sqrt(2))^99999");
    assert_eq!(answer("1^9^9^9").map(|answer| answer.to_string()).as_deref(), Err(&tower()));
    assert_eq!(answer("(-1)^(10^400 + 1)"), Ok(MathsAnswer::One("-1".into())));
    ends(&["9"; 1900].join("^"));
}

fn tower() -> MathsError {
    MathsError::TooLarge { what: "bits of a number", limit: MathsLimits::default().bits }
}

#[test]
fn deep_nesting() {
    for opening in ["(", "-(", "sqrt(", "2^(", "1/(", "(1+2*3^", "√", "abs(1-"] {
        let closing = if opening.contains('(') { ")" } else { "" };
        for depth in [10, 100, 127, 128, 1_000, 1_900] {
            ends(&format!("{}1{}", opening.repeat(depth), closing.repeat(depth)));
        }
    }
    let nested = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
    too_large(&nested);
    too_large(&format!("{}1{}", "(".repeat(1_000), ")".repeat(1_000)));
    too_large(&format!("{}16{}", "sqrt(".repeat(500), ")".repeat(500)));
    assert_eq!(answer(&format!("{}1{}", "(".repeat(100), ")".repeat(100))), Ok(MathsAnswer::One("1".into())));
    ends(&format!("Solve {}x = 1{}", "(".repeat(2_000), ")".repeat(2_000)));
    ends(&"(".repeat(4_000));
    ends(&")".repeat(4_000));
}

#[test]
fn long_flat_expressions() {
    assert_eq!(answer(&vec!["1"; 2_000].join("+")), Ok(MathsAnswer::One("2000".into())));
    assert_eq!(answer(&format!("{}5", "-".repeat(4_000))), Ok(MathsAnswer::One("5".into())));
    ends(&vec!["9"; 2_000].join("*"));
    ends(&vec!["1/7"; 1_000].join("*"));
    let primes = (2..900).filter(|number| (2..*number).all(|divisor| number % divisor > 0));
    ends(&primes.map(|prime: u32| format!("1/{prime}")).collect::<Vec<_>>().join("+"));
    ends(&format!("5{}", "%".repeat(4_000)));
    ends(&format!("3{}", "!".repeat(4_000)));
    ends(&"9".repeat(4_000));
    ends(&format!("0.{}", "3".repeat(2_400)));
    ends(&format!("1/{}", "7".repeat(2_400)));
    ends(&format!("{}/{}", "123".repeat(800), "7".repeat(1_600)));
}

#[test]
fn expansions() {
    too_large("Expand (x+y+z+w)^50");
    too_large("Expand (a+b+c+d+f+g+h+k)^20");
    too_large("Expand (x+1)^65");
    too_large("Expand (x+1)^1000000");
    ends("Expand (x+1)^64");
    ends("Expand (x+y)^64");
    ends("Expand (x+1/3)^60");
    ends("Expand (x+y/7+z/11)^24");
    ends("Expand (123456789012345678901234567890x+98765432109876543210/7)^40");
    ends("Expand (x+sqrt(2)+sqrt(3)+sqrt(5)+sqrt(7))^20");
    ends("Expand 1/(x+1) + 1/(x+2) + 1/(x+3) + 1/(x+4) + 1/(x+5) + 1/(x+6) + 1/(x+7) + 1/(x+8)");
    ends("Expand 1/(x+y) + 1/(x+z) + 1/(y+z) + 1/(x-y) + 1/(x-z) + 1/(y-z) + 1/(x+2y) + 1/(x+2z)");
    ends("Expand 10^2400 (x+y+z)^28");
    ends("Expand (x+y+z)^28 / 3^5000");
    ends("Expand ((x+1)^30 + 1)/((x+2)^31 + 3)");
    ends(&format!("Expand {}", ["(x+1)(y+1)(z+1)"; 20].join("")));
    ends(&format!("Expand {}", (0..200).map(|k| format!("1/(x+{k})")).collect::<Vec<_>>().join("+")));
}

#[test]
fn systems() {
    let names: Vec<String> = (1..=30).map(|index| format!("x{index}")).collect();
    let dense = |count: usize| {
        let rows = (1..=count).map(|row| {
            let terms = names.iter().take(count).enumerate();
            let sum: Vec<String> =
                terms.map(|(place, name)| format!("{}{name}", (row * (place + 2) * 7) % 31 + 1)).collect();
            format!("{} = {row}", sum.join(" + "))
        });
        format!("Solve {}", rows.collect::<Vec<_>>().join(", "))
    };
    too_large(&dense(30));
    too_large(&format!("Solve {} = 5", names.join(" + ")));
    let chained: Vec<String> = names.windows(2).map(|pair| format!("{} = 1", pair.join("+"))).collect();
    too_large(&format!("Solve {}", chained.join(", ")));
    for count in [2, 4, 8, 12] {
        ends(&dense(count));
    }
    let singles: Vec<String> = (0..100).map(|value| format!("x = {value}")).collect();
    too_large(&format!("Solve {}", singles.join(", ")));
    let squares =
        ["a", "b", "c", "d", "f", "g", "h", "k", "m", "n", "p", "q"].map(|name| format!("{name}^2 = 4"));
    too_large(&format!("Solve {}", squares.join(", ")));
    ends("Solve a^4 - 5a^2 + 4 = b, b^4 - 5b^2 + 4 = c, c^4 - 5c^2 + 4 = d, d = 0");
    ends("Solve a = b^8, b = c^8, c = d^8, d = a^8");
    ends("Solve x^3 + y^3 + z^3 = 1, x^3 - y^3 + x y z = 2, x y z + z^3 = 3, x^2 y + y^2 z + z^2 x = 4");
    let fractions: Vec<String> = (1..200).map(|shift| format!("1/(x + {shift})")).collect();
    ends(&format!("Solve {} = 1", fractions.join(" + ")));
    ends(&format!("Solve {}x{} = 1", "1/(1+".repeat(120), ")".repeat(120)));
}

#[test]
fn roots_of_large_polynomials() {
    ends("Solve x^64 - 1 = 0");
    ends("Solve x^5 - x - 1 = 0");
    ends("Solve x^7 + 963761198400 x + 963761198400 = 1");
    ends("Solve 963761198400 x^7 + x^2 + 963761198400 = 0");
    ends("Solve x^3 - 999999999989 x + 999999999989 = 0");
    ends("Solve x^2 = 1234567890123456789012345678901234567890123456789");
    ends(&format!("Solve x^2 = {}", "7".repeat(2_000)));
    ends(&format!("Solve x^2 - {}x + {} = 0", "7".repeat(700), "3".repeat(700)));
    ends("Solve (x-1)(x-2)(x-3)(x-4)(x-5)(x-6)(x-7)(x-8)(x-9)(x-10)(x-11)(x-12) > 0");
    ends("Solve (x^2-2)(x^2-3)(x^2-5)(x^2-7)(x^2-11)(x^2-13) > 0");
    ends(&format!("Solve {}0 < 1", (2..60).map(|k| format!("(x-{k})*")).collect::<String>()));
    ends(&format!("Solve {}1 < 1", (2..60).map(|k| format!("(x-{k})*")).collect::<String>()));
    ends("Solve (x^2-2)^16 (x^2-3)^15 > 0");
    ends("Solve x^2 - 2 > 0, x^2 - 3 < 0, x^4 - 10x^2 + 1 > 0, 1/(x^2 - 7) < 0");
}

#[test]
fn roots_and_factorials() {
    too_large("1000000000!");
    too_large("10^300!");
    too_large("3000!");
    ends("1/5^3500");
    ends("1/2^8000");
    ends("1/10^2400 + 1/3");
    ends("900!");
    ends("900!/899!");
    ends(&format!("sqrt({})", "7".repeat(2_000)));
    ends(&format!("sqrt({}/{})", "7".repeat(1_000), "3".repeat(1_000)));
    ends("sqrt(2)+sqrt(3)+sqrt(5)+sqrt(7)+sqrt(11)+sqrt(13)+sqrt(17)+sqrt(19)+sqrt(23)+sqrt(29)");
    ends("(sqrt(2)+sqrt(3)+sqrt(5)+sqrt(7)+sqrt(11)+sqrt(13))^12");
    ends("abs(sqrt(10^80+1) - sqrt(10^80))");
    ends("abs(sqrt(999999999989) - sqrt(999999999988) + sqrt(999999999987) - 999999)");
    let many = (2..400).map(|number| format!("sqrt({number})")).collect::<Vec<_>>();
    ends(&many.join("+"));
    ends(&many.join("*"));
}

#[test]
fn large_inputs() {
    too_large(&"1+".repeat(500_000));
    too_large(&"x".repeat(1_000_000));
    too_large(&" ".repeat(1_000_000));
    too_large(&"∧".repeat(1_000_000));
    too_large(&format!("Solve {}", "x=1,".repeat(250_000)));
    assert!(!same_value(&"1+".repeat(500_000), &"2+".repeat(500_000)));
    ends(&"x = ".repeat(1_000));
    ends(&format!("Solve {}1", "x = ".repeat(1_000)));
    ends(&format!("Calculate x, where {}", "x=1,".repeat(1_000)));
    ends(&",".repeat(4_000));
    ends(&format!("Solve {}", ",".repeat(4_000)));
    ends(&"and ".repeat(1_000));
    ends(&"where ".repeat(600));
}

#[test]
fn tighter_limits_hold() {
    let limits = MathsLimits { bits: 10, ..MathsLimits::default() };
    assert!(answer_within("1000 + 23", limits).is_ok());
    assert_eq!(
        answer_within("1000 + 24", limits),
        Err(MathsError::TooLarge { what: "bits of a number", limit: 10 })
    );
    let limits = MathsLimits { work: 100, ..MathsLimits::default() };
    assert!(matches!(answer_within("1+1+1+1+1+1+1+1+1+1+1", limits), Err(MathsError::TooLarge { .. })));
    let limits = MathsLimits { unknowns: 1, ..MathsLimits::default() };
    assert!(matches!(answer_within("x + y", limits), Err(MathsError::TooLarge { .. })));
}
