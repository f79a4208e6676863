//! A run without a queue reports what it waits for when it makes no progress.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use lumos_capabilities::{Capability, on_path, skip_part};

use crate::shopping::script;
use crate::support::{Followed, Lumos, lumos};

/// Returns the command of a run that warns after a second without progress.
fn command(folder: &Path, name: &str, arguments: impl AsRef<str>) -> Lumos {
    lumos().args("run --stall-warning 1").output(folder, name).args(arguments)
}

/// Waits for a warning with this beginning and end.
fn until_said(run: &mut Followed, waits: &str, hint: &str) {
    let what = format!("{waits} … {hint}");
    run.until_stderr(&what, |said| said.split(waits).nth(1).is_some_and(|rest| rest.contains(hint)));
    let said = run.said();
    assert!(said.contains("no progress for") && said.contains("since "), "{said}");
}

#[test]
fn a_run_without_a_queue_names_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    // A server that accepts connections and never responds.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();

    let model = format!("openai:plan@http://{address}/v1");
    let arguments = format!("--tasks svamp --limit 3 --model {model}");
    let mut run = command(folder.path(), "server", arguments).follow();
    until_said(&mut run, "waiting for the models and tools of the run to be loaded", "check the servers");
    until_said(
        &mut run,
        &format!("waiting for replies to 3 episodes: 3 from the model server of {model}"),
        &format!(
            "hint: check that the model server answers: curl http://{address}/v1/models; --time-limit ends"
        ),
    );
    drop(run);

    // The models of the other runs respond at once.
    script(None, 2, folder.path());
    let model = format!("--limit 2 --model 'script:{}'", folder.path().join("cases.jsonl").display());
    let run = command(folder.path(), "database", &model).args("--tasks intercode_sql --tool sql=mysql");
    let mut run = run.env("LUMOS_SQL_URL", format!("mysql://keeper:secret@{address}")).follow();
    until_said(
        &mut run,
        "waiting for replies to 2 episodes: 2 from the database server of sql=mysql",
        "hint: check that the database server of LUMOS_SQL_URL runs",
    );
    drop(run);

    if on_path("chromium").is_none() {
        skip_part(Capability::Browser, "chromium is not installed");
        return;
    }
    let driver = folder.path().join("chromedriver");
    fs::write(&driver, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&driver, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = command(folder.path(), "browser", &model);
    let run = run.args("--tasks webshop --tool rank=bm25 --browser chromedriver");
    let mut run = run.env("LUMOS_CHROMEDRIVER", &driver).env("LUMOS_BROWSER_SESSIONS", "1").follow();
    until_said(
        &mut run,
        "waiting for replies to 2 episodes: 2 from the browser of shop=chromedriver",
        "hint: check the browser: chromedriver --version",
    );
}
