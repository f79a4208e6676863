//! Text layout: wrapping and colours.

use unicode_width::UnicodeWidthStr;

/// Replaces control characters with visible ones, so that a text cannot send control sequences to the
/// terminal.
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' => '\n',
            '\t' => ' ',
            character if character.is_control() => '\u{fffd}',
            character => character,
        })
        .collect()
}

/// Wraps a text at blanks into lines of at most `width` columns. Longer words get their own line. Keeps
/// line breaks.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in harmless(text).trim_end().split('\n') {
        let mut line = String::new();
        let mut length = 0;
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            let word_length = word.width();
            if length > 0 && length + 1 + word_length > width {
                lines.push(std::mem::take(&mut line));
                length = 0;
            }
            if length > 0 {
                line.push(' ');
                length += 1;
            }
            line.push_str(word);
            length += word_length;
        }
        lines.push(line);
    }
    lines
}

/// A text that is being laid out.
pub(super) struct Page {
    text: String,
    width: usize,
    colours: bool,
}

const NAME: usize = 11;
const BOLD: &str = "1";
const DIM: &str = "2";

impl Page {
    pub(super) fn new(width: usize, colours: bool) -> Self {
        Self { text: String::new(), width: width.max(40), colours }
    }

    fn styled(&self, text: &str, style: &str) -> String {
        if self.colours { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn lines(&mut self, text: &str, style: &str) {
        for line in wrapped(text, self.width) {
            let line = self.styled(&line, style);
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    /// Adds a heading.
    pub(super) fn heading(&mut self, text: &str) {
        self.lines(text, BOLD);
    }

    /// Adds an empty line.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Adds a dimmed line.
    pub(super) fn note(&mut self, text: &str) {
        self.lines(text, DIM);
    }

    /// Adds a text with its name in the left column.
    pub(super) fn entry(&mut self, name: &str, text: &str) {
        for (index, line) in wrapped(text, self.width - NAME - 2).iter().enumerate() {
            let name = format!("{:NAME$}", if index == 0 { name } else { "" });
            let name = self.styled(&name, DIM);
            let line = format!("  {name}{line}");
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wrapping_keeps_the_words(text in "[a-z한국어 \n]{0,200}", width in 5usize..40) {
            let lines = wrapped(&text, width);
            let words: Vec<_> = text.split_whitespace().collect();
            let joined = lines.join(" ");
            prop_assert_eq!(joined.split_whitespace().collect::<Vec<_>>(), words);
            for line in &lines {
                prop_assert!(line.width() <= width || !line.contains(' '));
            }
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(wrapped("한국어 문제", 11), ["한국어 문제"]);
        assert_eq!(wrapped("한국어 문제", 10), ["한국어", "문제"]);
    }

    #[test]
    fn control_characters_do_nothing() {
        assert_eq!(harmless("a\u{1b}[31mb\r\n\u{7}"), "a\u{fffd}[31mb\u{fffd}\n\u{fffd}");
    }
}
