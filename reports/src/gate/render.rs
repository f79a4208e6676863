//! Output formats of a gate: text, Markdown, JSON, JUnit XML, and annotations of GitHub Actions.

use std::io::{self, Write};
use std::str::FromStr;

use lumos_tasks::shell::quoted_path;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;

use super::model::{GateCheck, GateReport, GateVerdict};
use crate::report::format_named;
use crate::report::markdown::{escaped, table};
use crate::report::terminal::Terminal;

/// Output formats of gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateFormat {
    /// Text for a terminal.
    Terminal {
        /// Width of the terminal in columns.
        width: u16,
    },
    /// Markdown.
    Markdown,
    /// One JSON document.
    Json,
    /// JUnit XML.
    Junit,
}

impl GateFormat {
    const ALL: [Self; 4] = [Self::Terminal { width: 80 }, Self::Markdown, Self::Json, Self::Junit];

    fn name(self) -> &'static str {
        match self {
            Self::Terminal { .. } => "table",
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Junit => "junit",
        }
    }
}

impl FromStr for GateFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&Self::ALL, Self::name, word)
    }
}

impl GateCheck {
    fn subject(&self) -> String {
        format!("{} {}: {}", self.benchmark, self.group, self.rule)
    }
}

impl GateReport {
    /// Writes the report. Equal reports yield equal bytes.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn render(&self, format: GateFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            GateFormat::Terminal { width } => self.terminal(width, out),
            GateFormat::Markdown => self.markdown(out),
            GateFormat::Json => self.json(out),
            GateFormat::Junit => self.junit(out),
        }
    }

    fn headline(&self) -> String {
        format!("{}: {} against baseline {}", self.verdict().name(), self.run, self.baseline)
    }

    fn terminal(&self, width: u16, out: &mut dyn Write) -> io::Result<()> {
        let terminal = Terminal { width };
        for check in &self.checks {
            let text = format!("{}: {}: {}", check.verdict.name(), check.subject(), check.reason);
            terminal.text(out, &text)?;
        }
        for warning in &self.warnings {
            terminal.text(out, &format!("warning: {warning}"))?;
        }
        terminal.text(out, &self.headline())
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "## lumos gate: {}\n", escaped(&self.headline()))?;
        let rows: Vec<Vec<String>> = self
            .checks
            .iter()
            .map(|check| vec![check.verdict.name().to_owned(), check.subject(), check.reason.clone()])
            .collect();
        table(out, &["verdict", "rule", "figures"], 3, &rows)?;
        for warning in &self.warnings {
            writeln!(out, "- **Warning:** {}", escaped(warning))?;
        }
        if self.verdict() != GateVerdict::Pass
            && let Some(folders) = &self.folders
        {
            let [baseline, run] = folders.each_ref().map(|folder| quoted_path(folder));
            let command = format!("lumos compare {baseline} {run}");
            // A blank line follows the table, but not the warnings.
            let blank = if self.warnings.is_empty() { "" } else { "\n" };
            writeln!(out, "{blank}Items that changed: `{}`", command.replace('`', "'"))?;
        }
        Ok(())
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let verdict = self.verdict();
        let document = json!({
            "verdict": verdict,
            "exit": verdict.code(),
            "run": self.run,
            "baseline": self.baseline,
            "checks": self.checks,
            "warnings": self.warnings,
        });
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)
    }

    fn junit(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut report = Report::new("lumos gate");
        let mut suites: Vec<TestSuite> = Vec::new();
        for check in &self.checks {
            let status = match check.verdict {
                GateVerdict::Pass => TestCaseStatus::success(),
                GateVerdict::Fail => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message(check.reason.as_str());
                    status
                }
                GateVerdict::CannotTell => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(format!("cannot tell: {}", check.reason));
                    status
                }
            };
            let mut case = TestCase::new(format!("{} {}", check.rule, check.group), status);
            case.set_classname(check.benchmark.as_str());
            case.add_property(Property::new("figures", check.reason.as_str()));
            match suites.iter_mut().find(|suite| suite.name.as_str() == check.benchmark) {
                Some(suite) => drop(suite.add_test_case(case)),
                None => {
                    let mut suite = TestSuite::new(check.benchmark.as_str());
                    suite.add_test_case(case);
                    suites.push(suite);
                }
            }
        }
        report.add_test_suites(suites);
        report.serialize(&mut *out).map_err(io::Error::other)?;
        writeln!(out)
    }

    /// Writes one workflow command of GitHub Actions per failure and per undecided check.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn annotate(&self, out: &mut dyn Write) -> io::Result<()> {
        for check in &self.checks {
            let level = match check.verdict {
                GateVerdict::Pass => continue,
                GateVerdict::CannotTell => "warning",
                GateVerdict::Fail => "error",
            };
            let title = property(&format!("lumos gate: {}", check.subject()));
            let message = data(&format!("{}: {}", check.verdict.name(), check.reason));
            writeln!(out, "::{level} title={title}::{message}")?;
        }
        Ok(())
    }
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflow_commands_are_escaped() {
        assert_eq!(data("50 %\r\nnext: a,b"), "50 %25%0D%0Anext: a,b");
        assert_eq!(property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
    }

    #[test]
    fn formats_are_found_by_name() {
        for format in GateFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert_eq!("md".parse(), Ok(GateFormat::Markdown));
        assert!("html".parse::<GateFormat>().unwrap_err().contains("expected one of table"));
    }
}
