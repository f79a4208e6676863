//! Compares sentences of gold actions with those of the original, if `LUMOS_SHARED` names the folder with its
//! recordings.

use std::io::Read;

use flate2::read::GzDecoder;
use lumos_tasks::families::web::sentence;
use serde_json::Value;

#[test]
fn gold_actions_read_as_recorded() {
    let Some(golden) = lumos_capabilities::shared("golden/mind2web") else { return };
    for (name, rows) in [("translate_action", 220), ("real_translate_action", 200)] {
        let path = golden.join(format!("{name}.jsonl.gz"));
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        let mut count = 0;
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            let case: Value = serde_json::from_str(line).unwrap();
            // A case that raised an exception drew no number.
            let draws = case["randint"].as_array().cloned().unwrap_or_default();
            let mut drawn = None;
            let written = sentence(case["input"].as_str().unwrap(), |most| {
                let [low, high, value] = [0, 1, 2].map(|at| draws[0][at].as_u64().unwrap() as u32);
                assert_eq!((low, high + 1), (0, most), "{}", case["id"]);
                drawn = Some(value);
                value
            });
            assert_eq!(drawn.is_some(), !draws.is_empty(), "{}", case["id"]);
            match case["error"].as_str() {
                None => {
                    assert_eq!(written.as_deref(), Ok(case["output"].as_str().unwrap()), "{}", case["id"]);
                }
                Some(error) => assert_eq!((written.is_err(), error), (true, "IndexError"), "{}", case["id"]),
            }
            count += 1;
        }
        assert_eq!(count, rows, "{name}");
    }
}
