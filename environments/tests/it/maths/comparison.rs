//! Answers as people write them, and equality by value.

use lumos_environments::maths::{number, same_value};

#[test]
fn numbers_as_people_write_them() {
    for (text, expected) in [
        ("1,000", "1000"),
        ("$5.50", "11/2"),
        ("7/3", "7/3"),
        ("18.0", "18"),
        ("25%", "1/4"),
        (" 5", "5"),
        ("-3", "-3"),
        ("−3", "-3"),
        ("+4", "4"),
        ("-$2.50", "-5/2"),
        ("$ 1,234,567.5", "2469135/2"),
        (".5", "1/2"),
        ("18.", "18"),
        ("14 / 6", "7/3"),
        ("0.5/2", "1/4"),
        ("007", "7"),
    ] {
        assert_eq!(number(text).map(|value| value.to_string()).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn other_texts_are_no_numbers() {
    for text in [
        "", " ", ".", "$", "%", "-", "x", "x = 4", "5 hours", "1 2", "1,00", "1,0000", "1000,000", ",100",
        "1,,000", "1/0", "1/2/3", "50%/2", "1/2%", "2+3", "1e5", "--5", "1.2.3", "٣", "1.5,000", "NaN",
        "(5)",
    ] {
        assert_eq!(number(text), None, "{text:?}");
    }
    assert_eq!(number(&"9".repeat(1_000_000)), None);
    assert_eq!(number(&"9".repeat(4_000)), None);
}

#[test]
fn same_values() {
    for (left, right) in [
        ("18", "18.0"),
        ("1,000", "$1000"),
        ("0.5", "1/2"),
        ("50%", "0.5"),
        ("2 sqrt(2)", "sqrt(8)"),
        ("15 + sqrt(2)", "sqrt(2) + 15"),
        ("8 x - 16", "8(x - 2)"),
        ("9 + 8/R", "8/R + 9"),
        ("x = 15 - sqrt(2)", "x = -sqrt(2) + 15"),
        ("x = 1/2 ∧ y = 3", "y = 3.0 ∧ x = 0.5"),
        ("x = 31 - y", "x = -y + 31"),
        ("x>2", "2 < x"),
        ("-1<x<=3", "3 >= x > -1"),
        ("-1<x<=3", "x > -1 ∧ x <= 3"),
        ("(no solutions exist)", "(No  solutions exist)"),
        ("330 hours", "330  hours"),
    ] {
        assert!(same_value(left, right), "{left} and {right}");
        assert!(same_value(right, left), "{right} and {left}");
    }
}

#[test]
fn different_values() {
    for (left, right) in [
        ("18", "18.01"),
        ("x = 5", "x = 6"),
        ("x = 5", "5"),
        ("x = 5", "y = 5"),
        ("x = 4", "2 x = 8"),
        ("x = 1 ∧ y = 2", "x = 2 ∧ y = 1"),
        ("x = 1 ∧ x = 1", "x = 1 ∧ x = 2"),
        ("x = 1 ∧ y = 2", "x = 1"),
        ("x>2", "x>=2"),
        ("x>2", "x<2"),
        ("2<x<3", "2<x<=3"),
        ("x^2", "2 x"),
        ("a + b", "a - b"),
        ("sqrt(2)", "1.41421356"),
        ("(no solutions exist)", "x = 1"),
        ("330 hours", "33 hours"),
        ("", "0"),
    ] {
        assert!(!same_value(left, right), "{left} and {right}");
        assert!(!same_value(right, left), "{right} and {left}");
    }
}
