//! What each user in deploy/nats can publish, subscribe to and read: the complete matrix, against a real
//! server.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::nats::{NatsServer, programs};

const USERS: [&str; 3] = ["coordinator", "worker", "observer"];

/// Everything that lumos stores on a server: its name here, the stream, and a subject of its messages.
const STORES: [(&str, &str, &str); 8] = [
    ("work", "lumos-2-work", "lumos.2.work.0123456789abcdef.5.0123456789abcdef.a"),
    ("results", "lumos-2-results", "lumos.2.results.0123456789abcdef.a"),
    ("runs", "KV_lumos-2-runs", "$KV.lumos-2-runs.0123456789abcdef"),
    ("workers", "KV_lumos-2-workers", "$KV.lumos-2-workers.host-1-a"),
    ("owners", "KV_lumos-2-owners", "$KV.lumos-2-owners.0123456789abcdef"),
    ("status", "KV_lumos-2-status", "$KV.lumos-2-status.0123456789abcdef"),
    ("payloads", "OBJ_lumos-2-payloads", "$O.lumos-2-payloads.C.a"),
    ("shared", "OBJ_lumos-2-shared", "$O.lumos-2-shared.M.a"),
];

const ALL: &str = "work results runs workers owners status payloads shared";
const NONE: &str = "–";

/// Operations on a store, and on which stores each user may perform them, as listed in docs/security.md.
/// `{stream}` and `{data}` are replaced by the values in [`STORES`]. `listen` means a subscription;
/// everything else is a publish.
const RIGHTS: [(&str, &str, [&str; 3]); 18] = [
    (
        "write messages",
        "{data}",
        ["work runs owners status payloads shared", "results workers payloads", NONE],
    ),
    ("listen to messages", "listen {data}", [NONE, NONE, NONE]),
    ("take messages", "$JS.API.CONSUMER.MSG.NEXT.{stream}.a", ["results", "work", NONE]),
    ("acknowledge messages", "$JS.ACK.{stream}.a.1.1.1.1.0", ["work results", "work", NONE]),
    (
        "read single messages",
        "$JS.API.STREAM.MSG.GET.{stream}",
        [ALL, "runs payloads shared", "runs workers status"],
    ),
    ("read directly", "$JS.API.DIRECT.GET.{stream}.a", [NONE, NONE, NONE]),
    ("make consumers", "$JS.API.CONSUMER.CREATE.{stream}.a.b", ["work results runs workers", "runs", NONE]),
    ("make unnamed consumers", "$JS.API.CONSUMER.CREATE.{stream}", ["runs workers", "runs", NONE]),
    ("make durable consumers", "$JS.API.CONSUMER.DURABLE.CREATE.{stream}.a", [NONE, NONE, NONE]),
    ("see consumers", "$JS.API.CONSUMER.INFO.{stream}.a", ["work results runs workers", "work runs", "work"]),
    ("remove consumers", "$JS.API.CONSUMER.DELETE.{stream}.a", ["work results runs workers", "runs", NONE]),
    ("see streams", "$JS.API.STREAM.INFO.{stream}", [ALL, ALL, ALL]),
    ("make streams", "$JS.API.STREAM.CREATE.{stream}", [ALL, NONE, NONE]),
    ("change streams", "$JS.API.STREAM.UPDATE.{stream}", [NONE, NONE, NONE]),
    ("remove streams", "$JS.API.STREAM.DELETE.{stream}", ["work results", NONE, NONE]),
    ("purge streams", "$JS.API.STREAM.PURGE.{stream}", ["work results payloads shared", "payloads", NONE]),
    ("remove single messages", "$JS.API.STREAM.MSG.DELETE.{stream}", ["work results", NONE, NONE]),
    ("copy streams out or in", "$JS.API.STREAM.SNAPSHOT.{stream}", [NONE, NONE, NONE]),
];

/// Operations that belong to no store, and which users may perform them.
const OTHERS: [(&str, &str, [bool; 3]); 12] = [
    ("publish claims", "lumos.2.claims.host-1-a", [false, true, false]),
    ("listen to claims", "listen lumos.2.claims.host-1-a", [true, false, false]),
    ("listen to inboxes", "listen _INBOX.a.b", [true, true, true]),
    ("publish to inboxes", "_INBOX.a.b", [false, false, false]),
    ("listen to everything", "listen >", [false, false, false]),
    ("listen to JetStream", "listen $JS.>", [false, false, false]),
    ("listen to the system", "listen $SYS.>", [false, false, false]),
    ("see JetStream's limits", "$JS.API.INFO", [true, true, true]),
    ("list streams", "$JS.API.STREAM.NAMES", [false, false, false]),
    ("restore streams", "$JS.API.STREAM.RESTORE.lumos-2-work", [false, false, false]),
    ("publish elsewhere", "elsewhere", [false, false, false]),
    ("make other streams", "$JS.API.STREAM.CREATE.other", [false, false, false]),
];

/// Returns the operations that a user is refused, in one connection: a publish to a subject, or `listen` to
/// it.
fn refused(server: &NatsServer, user: &str, asked: &[String]) -> BTreeSet<String> {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut said = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().starts_with("INFO"));
    let mut told = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"user\":\"{user}\",\"pass\":\"pass-of-{user}\"}}\r\n"
    );
    for (number, subject) in asked.iter().enumerate() {
        told += &match subject.strip_prefix("listen ") {
            Some(subject) => format!("SUB {subject} {}\r\n", number + 1),
            None => format!("PUB {subject} 0\r\n\r\n"),
        };
    }
    (&stream).write_all((told + "PING\r\n").as_bytes()).unwrap();
    let mut refused = BTreeSet::new();
    for line in said {
        if let Some(error) = line.strip_prefix("-ERR ") {
            let subject = error.split('"').nth(1).unwrap_or_else(|| panic!("{user}: {error}"));
            let listens = error.contains("Violation for Subscription");
            assert!(listens || error.contains("Violation for Publish"), "{user}: {error}");
            refused.insert(if listens { format!("listen {subject}") } else { subject.to_owned() });
        } else if line == "PONG" {
            break;
        }
    }
    refused
}

/// Returns the rows of the table in docs/security.md.
fn rows() -> Vec<String> {
    let rights = RIGHTS.iter().map(|(what, _, rights)| (*what, rights.map(str::to_owned)));
    let others = OTHERS.iter().map(|(what, _, rights)| {
        (*what, rights.map(|may| if may { "yes".to_owned() } else { NONE.to_owned() }))
    });
    let row = |(what, rights): (&str, [String; 3])| {
        let rights = rights.map(|right| match right.as_str() {
            ALL => "all".to_owned(),
            right => right.split(' ').collect::<Vec<_>>().join(", "),
        });
        format!("| {what} | {} |", rights.join(" | "))
    };
    rights.chain(others).map(row).collect()
}

#[test]
fn every_user_may_do_what_is_listed_and_nothing_else() {
    for program in programs() {
        let server = NatsServer::configured(&program, include_str!("../../../deploy/nats/accounts.conf"));
        for (index, user) in USERS.into_iter().enumerate() {
            let mut expected = Vec::new();
            for (what, form, rights) in &RIGHTS {
                let may: BTreeSet<&str> = match rights[index] {
                    NONE => BTreeSet::new(),
                    some => some.split(' ').collect(),
                };
                for (store, stream, data) in STORES {
                    let subject = form.replace("{stream}", stream).replace("{data}", data);
                    expected.push((format!("{what}: {store}"), subject, may.contains(store)));
                }
            }
            for (what, subject, rights) in OTHERS {
                expected.push((what.to_owned(), subject.to_owned(), rights[index]));
            }
            let asked: Vec<String> = expected.iter().map(|(_, subject, _)| subject.clone()).collect();
            let refused = refused(&server, user, &asked);
            assert!(!refused.is_empty(), "no operation is refused for {user}");
            for (what, subject, may) in expected {
                assert_eq!(!refused.contains(&subject), may, "{user}: {what} ({subject})");
            }
        }
    }
}

#[test]
fn the_documentation_lists_what_is_tested() {
    let documentation = include_str!("../../../docs/security.md");
    for row in rows() {
        assert!(documentation.lines().any(|line| line == row), "docs/security.md lacks the line\n{row}");
    }
}
