//! Runs with `lumos serve-model`: the replies over HTTP equal those of the engine in the run's own process,
//! for all roles or one of them.

use std::path::Path;

use serde_json::Value;

use crate::support::serving::Serving;
use crate::support::{content, lumos};

/// Returns the samples and scores of a run without the names of its models. Also removes how a reply ended:
/// over HTTP, a stop text and the end of the sequence cannot be distinguished.
fn samples(run: &Path) -> Vec<Value> {
    let (samples, _) = content(run);
    let mut rows = samples.into_values().flatten().collect::<Vec<Value>>();
    for row in &mut rows {
        for name in ["configuration", "unit"] {
            assert!(row.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        for step in row["trajectory"].as_array_mut().unwrap() {
            step.as_object_mut().unwrap().remove("finish");
        }
    }
    rows
}

#[test]
fn a_run_over_the_server_is_the_run_in_process() {
    let server = Serving::models(&["builtin:tiny"]);
    assert_eq!(server.models.len(), 3, "{:?}", server.models);
    let folder = tempfile::tempdir().unwrap();
    for formulation in ["iterative", "onetime"] {
        let run = |name: &str, planner: &str, grounder: &str| {
            let name = format!("{formulation}-{name}");
            let run =
                lumos().args("run --tasks gsm8k --limit 4 -q --batch-size 2").output(folder.path(), &name);
            let what = format!("--formulation {formulation} --planner {planner} --grounder {grounder}");
            run.args(what).ok();
            samples(&folder.path().join(name))
        };
        let planner = format!("openai:tiny-planner-{formulation}@{}", server.url);
        let grounder = format!("openai:tiny-grounder@{}", server.url);
        let here = run("here", "builtin:tiny", "builtin:tiny");
        let replies =
            |rows: &[Value]| rows.iter().map(|row| row["resps"].as_array().unwrap().len()).sum::<usize>();
        assert!(here.len() == 4 && replies(&here) >= 8, "{} replies", replies(&here));
        assert_eq!(run("there", &planner, &grounder), here, "both on the server");
        assert_eq!(run("mixed", "builtin:tiny", &grounder), here, "the grounder on the server");
        assert_eq!(run("other", &planner, "builtin:tiny"), here, "the planner on the server");
    }
}
