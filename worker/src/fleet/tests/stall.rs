//! Messages of a worker without progress.

use std::time::Duration;

use jiff::Timestamp;

use crate::activity::Source;
use crate::fleet::watch::Situation;
use crate::stall::{Wait, message};

fn every_wait() -> Vec<Wait> {
    let of = |change: fn(&mut Situation)| {
        let mut situation = Situation { connected: true, runs: 1, shards: 2, ..Situation::default() };
        change(&mut situation);
        situation.wait()
    };
    vec![
        Wait::SetUp("stream `lumos-2-work` not found on the NATS server".to_owned()),
        of(|one| one.connected = false),
        of(|one| (one.spooled, one.refused) = (3, Some("the queue is full".to_owned()))),
        of(|one| one.held = (0..6).map(|number| format!("{number}{}-1", "a".repeat(63))).collect()),
        of(|one| one.unknown = true),
        of(|one| one.looking = Some(vec!["candle:models/plan".to_owned()])),
        of(|one| one.refusals = vec!["there is no model `plan`".to_owned()]),
        of(|_| {}),
        of(|one| one.runs = 0),
        Wait::Planning,
        Wait::Loading,
        Wait::RunFolder,
        Wait::Checkpoint,
    ]
}

/// Returns the position of a kind in the list above. With a new kind, this does not compile until it is
/// added.
fn kind(wait: &Wait) -> usize {
    match wait {
        Wait::SetUp(_) => 0,
        Wait::Connection => 1,
        Wait::Results { .. } => 2,
        Wait::Replies { .. } => 3,
        Wait::Configurations => 4,
        Wait::Models(_) => 5,
        Wait::Capability(_) => 6,
        Wait::Units(_) => 7,
        Wait::Runs => 8,
        Wait::Planning => 9,
        Wait::Loading => 10,
        Wait::RunFolder => 11,
        Wait::Checkpoint => 12,
    }
}

#[test]
fn every_wait_says_what_for_since_when_and_what_to_do() {
    let now = Timestamp::from_second(1_795_000_000).unwrap();
    let waits = every_wait();
    assert_eq!(waits.iter().map(kind).collect::<Vec<_>>(), (0..13).collect::<Vec<_>>());
    let said: Vec<String> = waits.iter().map(|wait| message(wait, Duration::from_secs(60), now)).collect();
    let begin = "no progress for 60 s (since 11:05:40 UTC): waiting for ";
    let expected = [
        "the NATS server to be set up: stream `lumos-2-work` not found on the NATS server\n\
         hint: start a coordinator of the same version with this --queue: lumos run --queue URL …",
        "a connection to the NATS server\n\
         hint: check that the server runs and can be reached: lumos status --queue URL",
        "the NATS server to accept 3 results: the queue is full\n\
         hint: free disk space on the server or raise max_file_store in its configuration, and restart it if it \
         still does not respond; the results are kept and sent later",
        "replies to 6 episodes: units 0aaaaaaaaaaa, 1aaaaaaaaaaa, 2aaaaaaaaaaa, 3aaaaaaaaaaa and 2 others\n\
         hint: check the model server or the tools that these episodes use; --stall-limit ends an episode without a \
         reply",
        "the configurations of a run\n\
         hint: check that the coordinator of the run is running: it stores the configurations again",
        "models to be found and verified: candle:models/plan\n\
         hint: no action needed: large models take minutes to verify; otherwise check the disk or network \
         share that holds them, and the connection to the Hugging Face hub",
        "a run that this worker can serve: there is no model `plan`\n\
         hint: copy the missing files to this machine (pass the location of a model with --model-at <PLANNED=LOCAL>), \
         or leave these runs to other workers",
        "units in 2 shards, which are empty\n\
         hint: no action needed: other workers have the units, or the run is about to end",
        "a run: none is active on this queue\n\
         hint: start a run: lumos run --queue URL …",
        "the data and the models of the run to be read\n\
         hint: no action needed: large files take minutes to read, and models are downloaded from the hub",
        "the models and tools of the run to be loaded\n\
         hint: large models take minutes to load; otherwise check the servers and the browser that the run uses",
        "outcomes to be recorded in the run folder\n\
         hint: check the disk that holds the run folder: df -h, dmesg",
        "the checkpoint of the run to be opened\n\
         hint: no action needed: large checkpoints may take minutes to open after a crash; otherwise check the disk \
         that holds the run folder: df -h, dmesg",
    ];
    let expected: Vec<String> = expected.iter().map(|text| format!("{begin}{text}")).collect();
    assert_eq!(said, expected);
}

#[test]
fn replies_that_are_missing_are_named_with_where_they_have_to_come_from() {
    let now = Timestamp::from_second(1_795_000_000).unwrap();
    let tool = |tool: &str| tool.to_owned();
    let sources = [
        (Source::ModelServer("openai:plan@http://gpu-1:8000/v1".to_owned()), 5),
        (Source::Model("candle:models/plan".to_owned()), 4),
        (Source::Browser(tool("shop=chromedriver")), 3),
        (Source::Database(tool("sql=mysql")), 2),
        (Source::Tool(tool("wiki=live")), 1),
        (Source::SetUp, 1),
    ];
    let said: Vec<String> = (0..sources.len())
        .map(|first| Wait::Replies { units: Vec::new(), sources: sources[first..].to_vec() })
        .map(|wait| message(&wait, Duration::from_secs(60), now))
        .map(|said| said.split_once("waiting for ").unwrap().1.to_owned())
        .collect();
    let limit = "; --time-limit ends an episode that takes longer";
    assert_eq!(
        said,
        [
            format!(
                "replies to 16 episodes: 5 from the model server of openai:plan@http://gpu-1:8000/v1, 4 from model \
                 candle:models/plan, 3 from the browser of shop=chromedriver, 2 from the database server of sql=mysql \
                 and 2 others\nhint: check that the model server answers: curl http://gpu-1:8000/v1/models{limit}"
            ),
            format!(
                "replies to 11 episodes: 4 from model candle:models/plan, 3 from the browser of \
                 shop=chromedriver, 2 from the database server of sql=mysql, 1 from tool wiki=live and 1 \
                 others\nhint: no action needed if the processor or the GPU is busy (top, nvidia-smi): long \
                 prompts take minutes{limit}"
            ),
            format!(
                "replies to 7 episodes: 3 from the browser of shop=chromedriver, 2 from the database server of \
                 sql=mysql, 1 from tool wiki=live, 1 from models and tools that are being set up\nhint: check the \
                 browser: chromedriver --version, lumos doctor{limit}"
            ),
            format!(
                "replies to 4 episodes: 2 from the database server of sql=mysql, 1 from tool wiki=live, 1 \
                 from models and tools that are being set up\nhint: check that the database server of \
                 LUMOS_SQL_URL runs and accepts connections{limit}"
            ),
            format!(
                "replies to 2 episodes: 1 from tool wiki=live, 1 from models and tools that are being set up\nhint: \
                 check that the tool's service can be reached from this machine{limit}"
            ),
            format!(
                "replies to 1 episode: 1 from models and tools that are being set up\nhint: no action \
                 needed: large models and corpora take minutes to load{limit}"
            ),
        ]
    );
    let held = Wait::Replies { units: vec!["a".repeat(64)], sources: sources[..1].to_vec() };
    let said = message(&held, Duration::from_secs(60), now);
    assert!(said.contains("replies to 1 episode: units aaaaaaaaaaaa; 5 from the model server of"), "{said}");
    assert!(said.ends_with("/v1/models; --stall-limit ends an episode without a reply"), "{said}");
}
