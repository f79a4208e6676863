//! Hostile pages are rejected with a reason, or parsed in bounded time and memory.

use std::fmt::Write;

use lumos_environments::dom::{Brackets, CandidateTexts, PageError, PruneLimits, Pruner, TextError, Tree};

const MAX_DEPTH: usize = 256;
const MAX_ATTRIBUTES: usize = 1_000;

fn refused(page: &str) -> PageError {
    Tree::parse(page).unwrap_err()
}

#[test]
fn a_hundred_megabytes() {
    let mut page = String::with_capacity(101 << 20);
    page.push_str("<html>");
    while page.len() < 100 << 20 {
        page.push_str("<p backend_node_id=\"1\"><text>more and more</text></p>");
    }
    page.push_str("</html>");
    assert!(matches!(refused(&page), PageError::TooLong { .. }));
}

#[test]
fn a_hundred_thousand_nested_tags() {
    let page = "<a>".repeat(100_000) + &"</a>".repeat(100_000);
    assert_eq!(refused(&page), PageError::TooDeep { most: MAX_DEPTH, byte: 3 * (MAX_DEPTH as u64 + 1) });
}

#[test]
fn the_deepest_page_that_is_read() {
    let mut page = String::new();
    for depth in 0..MAX_DEPTH {
        write!(page, "<p backend_node_id=\"{depth}\" title=\"x\">").unwrap();
    }
    page.push_str(&"</p>".repeat(MAX_DEPTH));
    let tree = Tree::parse(&page).unwrap();
    assert_eq!(tree.to_xml().matches("<p").count(), MAX_DEPTH);
    let text = CandidateTexts::new(&tree).write("255", Brackets::Round).unwrap();
    assert!(text.ends_with("target: (p id=0 x )"), "{text}");
}

#[test]
fn too_many_attributes() {
    let mut page = "<a".to_owned();
    for number in 0..500_000 {
        write!(page, " x{number}=\"\"").unwrap();
    }
    page.push_str("/>");
    assert!(matches!(refused(&page), PageError::TooMany { most: MAX_ATTRIBUTES, .. }));
}

#[test]
fn what_is_no_xml() {
    for page in [
        "",
        "text",
        "<a>",
        "<a></b>",
        "</a>",
        "<a/><b/>",
        "<a>&nbsp;</a>",
        "<a>&#0;</a>",
        "<a x=\"1\" x=\"2\"/>",
        "<a x=\"&bad;\"/>",
        "<a>&amp</a>",
        "<a",
        "<!DOCTYPE a [<!ENTITY b \"b\">]><a>&b;</a>",
        "\u{0}\u{fffd}<a",
    ] {
        assert!(matches!(refused(page), PageError::Malformed { .. }), "{page}");
    }
}

#[test]
fn elements_with_one_id_and_all_texts() {
    let mut page = "<html backend_node_id=\"0\">".to_owned();
    for number in 0..20_000 {
        page.push_str("<a backend_node_id=\"1\"/>");
        if number % 100 == 0 {
            write!(page, "<text>{number} {}</text>", "word".repeat(2000)).unwrap();
        }
    }
    for number in 2..20_002 {
        write!(page, "<b backend_node_id=\"{number}\"/>").unwrap();
    }
    page.push_str("</html>");
    let tree = Tree::parse(&page).unwrap();
    let mut texts = CandidateTexts::new(&tree);
    let error = (2..20_002).find_map(|id| texts.write(&id.to_string(), Brackets::Round).err());
    assert!(matches!(error, Some(TextError::TooMuchText { .. })));
}

#[test]
fn candidates_that_are_none() {
    let tree = Tree::parse("<a backend_node_id=\"1\"><text backend_node_id=\"2\">x</text><b/></a>").unwrap();
    let mut pruner = Pruner::new(&tree);
    let mut prune = |id: &str| pruner.prune(&[id], PruneLimits::default()).map(|view| view.to_xml());
    assert_eq!(prune("3"), Err(TextError::NoSuchElement("3".to_owned())));
    assert_eq!(prune(""), Err(TextError::NoSuchElement(String::new())));
    assert_eq!(prune("2"), Err(TextError::CandidateIsText("2".to_owned())));
    assert_eq!(prune("1").unwrap(), "<a backend_node_id=\"1\"><text>x</text></a>");
    let text = Tree::parse("<text backend_node_id=\"1\">x</text>").unwrap();
    assert_eq!(
        CandidateTexts::new(&text).write("1", Brackets::Round),
        Err(TextError::RootIsText),
        "the original accesses the parent of the root"
    );
}
