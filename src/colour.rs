//! Whether output has colours: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).

use std::io::IsTerminal;

/// Whether to write bold and coloured text to a stream. `NO_COLOR` turns it off everywhere, `CLICOLOR_FORCE` on for
/// streams that are not a terminal, and `TERM=dumb` off for terminals.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    decide(stream.is_terminal(), |name| std::env::var(name).unwrap_or_default())
}

fn decide(is_terminal: bool, variable: impl Fn(&str) -> String) -> bool {
    if !variable("NO_COLOR").is_empty() {
        return false;
    }
    let is_forced = !["", "0"].contains(&variable("CLICOLOR_FORCE").as_str());
    is_forced || (is_terminal && variable("TERM") != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_takes_precedence_over_force_and_force_over_the_terminal() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|one| one.0 == name).map_or("", |one| one.1).to_owned()
        };
        assert!(decide(true, with(&[])) && !decide(false, with(&[])));
        assert!(
            decide(false, with(&[("CLICOLOR_FORCE", "1")]))
                && !decide(false, with(&[("CLICOLOR_FORCE", "0")]))
        );
        assert!(!decide(true, with(&[("TERM", "dumb")])) && decide(true, with(&[("TERM", "xterm")])));
        assert!(!decide(true, with(&[("NO_COLOR", "0"), ("CLICOLOR_FORCE", "1")])), "any value counts");
    }
}
