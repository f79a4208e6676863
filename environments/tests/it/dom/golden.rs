//! Compares results with recorded cases of the original, if `LUMOS_SHARED` names the folder that contains
//! them.

use std::io::Read;

use flate2::read::GzDecoder;
use lumos_capabilities::shared;
use lumos_environments::dom::{Brackets, CandidateTexts, IdNumbers, PageText, PruneLimits, Pruner, Tree};
use serde_json::Value;

fn cases(name: &str) -> Vec<Value> {
    let Some(path) = shared(&format!("golden/mind2web/{name}.jsonl.gz")) else { return Vec::new() };
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn real_page() -> Option<String> {
    let text = std::fs::read_to_string(shared("data/mind2web/step_with_html.json")?).unwrap();
    let step: Value = serde_json::from_str(&text).unwrap();
    Some(step["action"]["cleaned_html"].as_str().unwrap().to_owned())
}

#[test]
fn candidates_read_as_recorded() {
    let mut count = 0;
    for case in cases("format_candidate") {
        let tree = Tree::parse(case["cleaned_html"].as_str().unwrap()).unwrap();
        let mut texts = CandidateTexts::new(&tree);
        for candidate in case["candidates"].as_array().unwrap() {
            let id = candidate["candidate"].as_str().unwrap();
            for (field, brackets) in [("output", Brackets::Round), ("output_brackets", Brackets::Angle)] {
                let expected = match (candidate[field].as_str(), candidate["error"].as_str()) {
                    (Some(text), _) => Ok(text.to_owned()),
                    (None, Some(error)) => Err(Some(error)),
                    (None, None) => continue,
                };
                let written = texts.write(id, brackets).map_err(|error| error.exception());
                assert_eq!(written, expected, "{} {id}", case["id"]);
                count += 1;
            }
        }
    }
    eprintln!("{count} candidate texts");
}

#[test]
fn candidates_of_a_real_page_read_as_recorded() {
    let cases = cases("real_format_candidate");
    let Some(page) = real_page() else { return };
    let tree = Tree::parse(&page).unwrap();
    let mut texts = CandidateTexts::new(&tree);
    for case in &cases {
        let written = texts.write(case["backend_node_id"].as_str().unwrap(), Brackets::Round).unwrap();
        assert_eq!(written, case["output"].as_str().unwrap(), "{}", case["id"]);
    }
    eprintln!("{} candidate texts of a real page", cases.len());
}

fn check_tree(case: &Value, page: &str) {
    let tree = Tree::parse(page).unwrap();
    let candidates = strings(&case["candidate_ids"]);
    let mut pruner = Pruner::new(&tree);
    if let Some(with) = case.get("pruned_with") {
        let limits = PruneLimits {
            depth: with["max_depth"].as_u64().unwrap() as u32,
            descendants: with["max_children"].as_u64().unwrap() as usize,
            siblings: with["max_sibling"].as_u64().unwrap() as usize,
        };
        let view = pruner.prune(&candidates, limits).unwrap();
        assert_eq!(view.to_xml(), with["output"].as_str().unwrap(), "{}", case["id"]);
    }
    let angle = case["keep_html_brackets"].as_bool() == Some(true);
    let mut numbers = IdNumbers::default();
    let text = pruner.prune(&candidates, PruneLimits::default()).and_then(|view| {
        if let Some(pruned) = case["pruned"].as_str() {
            assert_eq!(view.to_xml(), pruned, "{}", case["id"]);
        }
        let brackets = if angle { Brackets::Angle } else { Brackets::Round };
        PageText::new(&tree).tree_text(&view, &mut numbers, brackets)
    });
    match text {
        Ok(text) => assert_eq!(text, case["tree_repr"].as_str().unwrap(), "{}", case["id"]),
        Err(error) => {
            assert_eq!(error.exception(), case["error"].as_str(), "{}", case["id"]);
            return;
        }
    }
    let mapping = case["id_mapping"].as_object().unwrap();
    assert_eq!(numbers.len(), mapping.len());
    for (id, number) in mapping {
        assert_eq!(numbers.get(id).map(|number| number as u64), number.as_u64(), "{}", case["id"]);
    }
}

#[test]
fn pages_are_pruned_and_written_as_recorded() {
    let cases = cases("tree_repr");
    for case in &cases {
        check_tree(case, case["cleaned_html"].as_str().unwrap());
    }
    eprintln!("{} trees", cases.len());
}

#[test]
fn a_real_page_is_pruned_and_written_as_recorded() {
    let cases = cases("real_tree_repr");
    let Some(page) = real_page() else { return };
    for case in &cases {
        check_tree(case, &page);
    }
    eprintln!("{} trees of a real page", cases.len());
}
