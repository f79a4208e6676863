//! Possible actions on elements, and obstacles.

use lumos_tasks::families::web::ActionName::{Click, Select, Type};
use lumos_tasks::families::web::{Obstacle, PageExecution, WebResult};

use super::stage::{DONE, Stage, step};
use crate::browser::webdriver::tests::support::TestPool;

const PAGE: &str = r#"<html backend_node_id="1"><body backend_node_id="2">
  <a backend_node_id="3" aria_label="No words"/>
  <div backend_node_id="4"><tr backend_node_id="5"><td backend_node_id="6"><text backend_node_id="7">Row</text></td></tr></div>
  <button backend_node_id="10" disabled="">Closed</button>
  <button backend_node_id="11" hidden="">Secret</button>
  <div backend_node_id="12" style="position:relative"><button backend_node_id="13">Covered</button>
    <div backend_node_id="14" style="position:absolute;inset:0;background:#fff"/></div>
  <input backend_node_id="20" type="text" input_value="old"/>
  <input backend_node_id="21" type="checkbox"/>
  <input backend_node_id="22" type="file"/>
  <input backend_node_id="23" readonly="" value="fixed"/>
  <input backend_node_id="24" type="number"/>
  <textarea backend_node_id="25" text_value="old"/>
  <div backend_node_id="26" contenteditable="true"><b backend_node_id="27">old</b></div>
  <label backend_node_id="28"><text>Name</text><input backend_node_id="29"/></label>
  <div backend_node_id="30"><span backend_node_id="31">City</span><input backend_node_id="32"/></div>
  <div backend_node_id="33"><input backend_node_id="34"/><input backend_node_id="35"/></div>
  <select backend_node_id="40"><option backend_node_id="41"><text>All kinds</text></option>
    <option backend_node_id="42" value="l"><text>Large  one</text></option>
    <option backend_node_id="43" disabled=""><text>Gone</text></option></select>
  <ul backend_node_id="44" role="listbox"><li backend_node_id="45" role="option"><text>Large</text></li></ul>
  <option backend_node_id="46"><text>Of no list</text></option>
  <form backend_node_id="50"><input backend_node_id="51" name="contains"/><button backend_node_id="52"><b backend_node_id="53">Go</b></button></form>
  <button backend_node_id="&quot;], *">Odd</button>
  <iframe backend_node_id="60"><html backend_node_id="61"><body backend_node_id="62"><a backend_node_id="63">Inner</a></body></html></iframe>
</body></html>"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_could_do_is_done_and_the_rest_is_refused_with_its_reason() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let stage = Stage::new(vec![step(PAGE, &[])]).await;
    for (action, element, text, expected) in [
        // A self-closing link, a cell, a row outside a table, an option, an unusual id, an embedded page.
        (Click, "3", "", None),
        (Click, "6", "", None),
        (Click, "5", "", None),
        (Click, "42", "", None),
        (Click, "\"], *", "", None),
        (Click, "63", "", None),
        (Click, "52", "", None),
        (Click, "53", "", None),
        (Click, "50", "", None),
        (Click, "40", "", None),
        (Click, "22", "", None),
        (Click, "46", "", None),
        (Click, "99", "", Some(Obstacle::NoElement)),
        (Click, "", "", Some(Obstacle::NoElement)),
        (Click, "*", "", Some(Obstacle::NoElement)),
        (Click, "10", "", Some(Obstacle::Disabled)),
        (Click, "11", "", Some(Obstacle::Hidden)),
        (Click, "13", "", Some(Obstacle::Covered)),
        (Click, "43", "", Some(Obstacle::Disabled)),
        (Type, "20", "New York, \"NY\" \u{1f9e6}", None),
        (Type, "20", "", None),
        (Type, "20", "two\nlines \u{e007}", None),
        (Type, "24", "42", None),
        (Type, "25", "a text", None),
        (Type, "26", "other", None),
        (Type, "27", "other", None),
        (Type, "28", "Ada", None),
        (Type, "30", "Kyoto", None),
        (Type, "24", "many", Some(Obstacle::NoEffect)),
        (Type, "21", "x", Some(Obstacle::NotEditable)),
        (Type, "22", "/etc/passwd", Some(Obstacle::NotEditable)),
        (Type, "23", "x", Some(Obstacle::NotEditable)),
        (Type, "33", "x", Some(Obstacle::NotEditable)),
        (Type, "4", "x", Some(Obstacle::NotEditable)),
        (Select, "40", "large ONE", None),
        (Select, "40", "l", None),
        (Select, "42", "All kinds", None),
        (Select, "40", "Gone", Some(Obstacle::NoOption)),
        (Select, "40", "Small", Some(Obstacle::NoOption)),
        (Select, "20", "x", Some(Obstacle::NoList)),
        (Select, "44", "Large", Some(Obstacle::NoList)),
    ] {
        let found = stage.obstacle(action, element, text).await;
        assert_eq!(found, expected, "{action:?} {element:?} {text:?}");
    }
    let long = stage.obstacle(Type, "20", &"x".repeat(20_000)).await;
    assert_eq!(long, Some(Obstacle::TextTooLong));
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_mark_prediction_and_truth() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("deep/er");
    let steps = vec![step(PAGE, &["52"]), step(PAGE, &["99"]), step(PAGE, &["11"])];
    let stage = Stage::with(TestPool::new(1), steps, Some(pictures.clone())).await;
    assert_eq!(stage.carry(0, Type, "20", Some("marked")).await.unwrap(), DONE);
    let carried = stage.carry(1, Click, "98", None).await.unwrap();
    let nowhere = WebResult::Refused(Obstacle::NoElement);
    assert_eq!(carried, PageExecution { action: nowhere, truth: Some(nowhere) });
    let carried = stage.carry(2, Click, "11", None).await.unwrap();
    let hidden = WebResult::Refused(Obstacle::Hidden);
    assert_eq!(carried, PageExecution { action: hidden, truth: Some(hidden) });
    let mut names = Vec::new();
    let unit = std::fs::read_dir(&pictures).unwrap().next().unwrap().unwrap().path();
    for entry in std::fs::read_dir(&unit).unwrap() {
        let path = entry.unwrap().path();
        let picture = std::fs::read(&path).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1000);
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["0001.png", "0002.png", "0003.png"]);

    // A picture that cannot be written does not end the episode.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let stage = stage.again(vec![step(PAGE, &["52"])], Some(file)).await;
    assert_eq!(stage.carry(0, Click, "52", None).await.unwrap(), DONE);
    stage.end();
}
