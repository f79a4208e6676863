//! Converts a page for a browser.
//!
//! A page is XML whose elements were cut out of a real page: an `<a/>` is self-closing, and a table row may
//! occur anywhere. A browser's parser would read it as HTML and move or drop such elements. The page is
//! therefore parsed here and rebuilt in the browser element by element, with the same structure as in the
//! texts of candidates.

use lumos_environments::dom::Tree;
use lumos_tasks::families::web::Obstacle;
use serde::Serialize;

/// Maximum size of a page that is shown, in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Maximum number of elements of a page that is shown.
const MOST_ELEMENTS: usize = 100_000;

/// Attributes that describe an element. All others are dropped: scripts, addresses, and names, which in a
/// browser would shadow functions of the document and of forms.
const KEPT: [&str; 24] = [
    "aria-disabled",
    "aria_description",
    "aria_label",
    "aria_role",
    "alt",
    "backend_node_id",
    "checked",
    "class",
    "contenteditable",
    "disabled",
    "hidden",
    "input_checked",
    "input_value",
    "label",
    "option_selected",
    "placeholder",
    "readonly",
    "role",
    "selected",
    "style",
    "text_value",
    "title",
    "type",
    "value",
];

/// One element, as passed to the browser: parent, name, attributes, text and tail.
#[derive(Serialize)]
struct Row<'t>(i64, &'t str, Vec<(&'t str, &'t str)>, &'t str, &'t str);

/// Parses a page and returns the JSON from which a browser builds it. Slow for large pages.
///
/// # Errors
/// If the page is too large or invalid.
pub(super) fn written(page: &str) -> Result<String, Obstacle> {
    if page.len() > MOST_BYTES {
        return Err(Obstacle::PageTooLarge);
    }
    let tree = Tree::parse(page).map_err(|_| Obstacle::PageUnreadable)?;
    if tree.len() > MOST_ELEMENTS {
        return Err(Obstacle::PageTooLarge);
    }
    let rows: Vec<Row<'_>> = tree
        .pieces()
        .map(|piece| {
            let kept = piece.attributes().filter(|(name, _)| KEPT.contains(name)).collect();
            Row(piece.parent().map_or(-1, i64::from), piece.name(), kept, piece.text(), piece.tail())
        })
        .collect();
    serde_json::to_string(&rows).map_err(|_| Obstacle::PageUnreadable)
}

/// Returns a CSS selector for the element with an id that may contain any characters.
pub(super) fn selector(id: &str) -> String {
    let escaped = |character: char| match character.is_ascii_alphanumeric() {
        true => character.to_string(),
        false => format!("\\{:x} ", u32::from(character)),
    };
    format!("[backend_node_id=\"{}\"]", id.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_told_with_what_says_what_they_are() {
        let page =
            "<a backend_node_id='1' onclick='x()' href='file:///' aria_label='&quot;'>b<text>c</text>d</a>";
        let expected =
            r#"[[-1,"a",[["backend_node_id","1"],["aria_label","\""]],"b",""],[0,"text",[],"c","d"]]"#;
        assert_eq!(written(page).unwrap(), expected);
    }

    #[test]
    fn pages_that_are_too_much_are_refused() {
        assert_eq!(written(&"x".repeat(100 << 20)), Err(Obstacle::PageTooLarge));
        assert_eq!(written(&format!("<a>{}</a>", "<b/>".repeat(MOST_ELEMENTS))), Err(Obstacle::PageTooLarge));
        assert_eq!(written(&"<a>".repeat(100_000)), Err(Obstacle::PageUnreadable));
        assert_eq!(written("<a>\u{0}\u{fffd}&nothing;</a>"), Err(Obstacle::PageUnreadable));
        assert_eq!(written(""), Err(Obstacle::PageUnreadable));
    }

    #[test]
    fn an_id_never_ends_its_selector() {
        assert_eq!(selector("a1"), "[backend_node_id=\"a1\"]");
        assert_eq!(
            selector("\"], *[x=\""),
            "[backend_node_id=\"\\22 \\5d \\2c \\20 \\2a \\5b x\\3d \\22 \"]"
        );
        assert_eq!(selector("\\\n"), "[backend_node_id=\"\\5c \\a \"]");
    }
}
