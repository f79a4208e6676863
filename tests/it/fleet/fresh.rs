//! Commands on servers that no coordinator has set up.

use crate::support::Fleet;
use crate::support::nats::{NatsServer, programs};

#[test]
fn a_fresh_server_has_no_runs() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(folder.path(), &nats.url());
        let status = fleet.run("status").with_code(0).prints(["no runs on this queue"]);
        assert_eq!(status.stderr, "", "{status}");
        let status = fleet.run("status --json").with_code(0);
        assert_eq!(status.stdout.trim(), "{\"runs\":[],\"workers\":[]}");
        for command in ["status sweep", "cancel sweep"] {
            fleet.run(command).with_code(2).reports(["run `sweep` not found on this queue"]);
        }
        let unknown = fleet.run("cancel 0123456789abcdef").with_code(2);
        unknown.reports(["run `0123456789abcdef` not found on this queue"]);
        // `watch` waits for runs (all or one) and shows them once they exist.
        let mut all = fleet.watch("");
        let mut one = fleet.watch("sweep");
        all.until_said("no runs on this queue");
        one.until_said("run `sweep` not found on this queue: the queue has no runs; retrying");
        let _worker = fleet.worker("--concurrency 4");
        fleet.coordinator("sweep", "--tasks gsm8k --model builtin:tiny --limit 4").exits(0);
        all.until_said("sweep · complete");
        one.until_said("sweep · complete");
        // There is nothing to cancel.
        let cancelled = fleet.run("cancel sweep").with_code(0);
        assert_eq!(cancelled.stdout, "nothing to cancel: run sweep is complete\n", "{cancelled}");
        fleet.run("status sweep").prints(["sweep · complete"]);
    }
}
