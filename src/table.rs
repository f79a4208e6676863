//! Tables for terminals, at most as wide as the terminal. Cells wrap between words. If the longest words do
//! not fit, the least important columns are omitted and listed below the table.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets,
};
use unicode_width::UnicodeWidthStr;

/// Width if that of the terminal is unknown.
pub(crate) const USUAL_COLUMNS: u16 = 80;

/// Longer words (paths, compound names) are broken instead of omitting columns.
const LONGEST_WORD: usize = 32;

/// Spaces around each column.
const PADDING: usize = 2;

/// A table column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    header: &'static str,
    /// Columns with the highest rank are omitted first; those with rank 0 are never omitted.
    rank: u8,
    right: bool,
}

impl Column {
    /// Creates a column that is never omitted.
    pub(crate) const fn new(header: &'static str) -> Self {
        Self { header, rank: 0, right: false }
    }

    /// Allows omitting the column if the table is too wide. Higher ranks are omitted first.
    pub(crate) const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Aligns the column to the right.
    pub(crate) const fn right(self) -> Self {
        Self { right: true, ..self }
    }
}

/// Width of the terminal on standard output; `COLUMNS` or 80 if it is not a terminal.
pub(crate) fn width() -> u16 {
    let set = || std::env::var("COLUMNS").ok()?.trim().parse().ok().filter(|columns| *columns > 0);
    Table::new().width().or_else(set).unwrap_or(USUAL_COLUMNS)
}

/// Renders a table of at most `width` columns of text, with a final line break. `all` is the flag or the command that
/// prints all columns.
pub(crate) fn render(columns: &[Column], rows: &[Vec<String>], width: u16, all: &str) -> String {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let longest = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(String::as_str);
        let words = cells.chain([columns[index].header]).flat_map(str::split_whitespace);
        words.map(UnicodeWidthStr::width).max().unwrap_or(0).min(LONGEST_WORD)
    };
    let least = |kept: &[usize]| kept.iter().map(|index| longest(*index) + PADDING).sum::<usize>();
    let mut left_out = Vec::new();
    while least(&kept) > usize::from(width) {
        let Some(last) = kept.iter().copied().max_by_key(|index| columns[*index].rank) else { break };
        if columns[last].rank == 0 {
            break;
        }
        kept.retain(|index| *index != last);
        left_out.push(last);
    }
    let fits = least(&kept) <= usize::from(width);
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(kept.iter().map(|index| columns[*index].header));
    for row in rows {
        table.add_row(kept.iter().map(|index| row.get(*index).map_or("", String::as_str)));
    }
    for (column, index) in table.column_iter_mut().zip(&kept) {
        if columns[*index].right {
            column.set_cell_alignment(CellAlignment::Right);
        }
        // Words that fit are not broken.
        if let Some(least) = u16::try_from(longest(*index) + PADDING).ok().filter(|_| fits) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if !left_out.is_empty() {
        left_out.sort_unstable();
        let names: Vec<&str> = left_out.iter().map(|index| columns[*index].header).collect();
        let line = format!("(columns omitted: {}; {all} prints all)", names.join(", "));
        text.push_str(&wrapped(&line, width));
    }
    text
}

/// Wraps a line between words at `width` columns. Continuation lines are indented further.
pub(crate) fn wrapped(line: &str, width: u16) -> String {
    let words = line.trim_start_matches(' ');
    let indent = line.len() - words.len();
    let (mut text, mut column) = (" ".repeat(indent), indent);
    for (index, word) in words.split(' ').enumerate() {
        let length = word.width();
        if index > 0 && column + 1 + length > usize::from(width) {
            text.push_str(&format!("\n{}", " ".repeat(indent + 2)));
            column = indent + 2;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("name"),
        Column::new("created").rank(2),
        Column::new("models").rank(1),
        Column::new("settled").right(),
    ];

    fn table(width: u16) -> String {
        let row = |name: &str| {
            ["2026-11-22 19:40", "candle:models/planner, candle:models/grounder", "1319/1319"].iter().fold(
                vec![name.to_owned()],
                |mut row, cell| {
                    row.push((*cell).to_owned());
                    row
                },
            )
        };
        render(&COLUMNS, &[row("first"), row("gsm8k-iterative-0f3a21")], width, "--json")
    }

    fn assert_fits(text: &str, width: usize) {
        for line in text.lines() {
            assert!(line.width() <= width, "{width} columns: {line}\n{text}");
        }
    }

    #[test]
    fn tables_are_as_wide_as_the_terminal_at_most() {
        for width in [60, 70, 80, 100, 200] {
            let text = table(width);
            assert_fits(&text, usize::from(width));
            for word in ["gsm8k-iterative-0f3a21", "1319/1319"] {
                assert!(text.contains(word), "{text}");
            }
        }
        assert!(table(200).contains("candle:models/planner, candle:models/grounder"));
        // Words stay whole, or their column is omitted and listed.
        let narrow = table(80);
        assert!(
            narrow.contains("candle:models/planner,\n") || narrow.contains("candle:models/planner, "),
            "{narrow}"
        );
        assert!(table(60).contains("(columns omitted: created"), "{}", table(60));
    }

    #[test]
    fn a_very_long_word_is_broken_and_costs_no_column() {
        let row =
            ["gsm8k-svamp-hotpotqa-strategyqa-mind2web-webshop", "2026-11-22 19:40", "builtin:tiny", "2/2"];
        let text = render(&COLUMNS, &[row.map(str::to_owned).into()], 80, "--json");
        assert_fits(&text, 80);
        assert!(text.contains("created") && !text.contains("no room"), "{text}");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 80), "one two three\n");
        assert_eq!(wrapped("one two three four", 9), "one two\n  three\n  four\n");
        assert_eq!(wrapped("  one two three", 9), "  one two\n    three\n");
        assert_eq!(wrapped("unbreakable", 4), "unbreakable\n");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(wrapped("한국어 문제", 11), "한국어 문제\n");
        assert_eq!(wrapped("한국어 문제", 10), "한국어\n  문제\n");
        let columns = [Column::new("name"), Column::new("model").rank(1)];
        let rows = [vec!["한국어 문제".to_owned(), "한국어문제풀이".to_owned()]];
        let text = render(&columns, &rows, 24, "--json");
        assert_fits(&text, 24);
        assert!(text.contains("한국어문제풀이"), "{text}");
        let text = render(&columns, &rows, 22, "lumos status --json");
        assert_fits(&text, 22);
        let notice = "(columns omitted:\n  model; lumos status\n  --json prints all)\n";
        assert!(text.ends_with(notice), "{text}");
    }

    #[test]
    fn what_must_stay_stays_even_where_it_does_not_fit() {
        let text = table(20);
        assert!(text.contains("(columns omitted:\n  created, models;\n  --json prints all)"), "{text}");
        assert!(text.contains("name") && text.contains("settled"), "{text}");
    }
}
