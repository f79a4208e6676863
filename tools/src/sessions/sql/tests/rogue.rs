//! Servers that use MySQL's protocol to obtain a password, or to crash the client.

use std::time::Duration;

use super::mariadb::PASSWORD;
use super::rogue_server::{greeting, packet, serve, switch};
use super::support::Episode;
use crate::Tools;
use crate::sessions::sql::mysql::server::MySqlServer;
use crate::sessions::sql::{MySqlSettings, SqlTool};

/// Time limit for these servers, some of which never respond.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs an episode on such a server. Returns the fault, and the bytes that the server received.
async fn attacked(host: &str, pieces: Vec<Vec<u8>>) -> (String, Vec<u8>) {
    let (port, heard) = serve(pieces).await;
    let url = format!("mysql://keeper:{PASSWORD}@{host}:{port}");
    let settings = MySqlSettings::of_url(&url).unwrap();
    let tool = SqlTool { databases: Box::new(MySqlServer::with_limits(settings, LIMIT, LIMIT)) };
    let fault = Episode::attempt(&tool, "library").await.err().expect("no fault").to_string();
    tool.shut_down().await;
    assert!(fault.contains(&format!("mysql://{host}:{port}")), "the server is not named: {fault}");
    let heard = heard.lock().unwrap().clone();
    (fault, heard)
}

fn tells(heard: &[u8]) -> bool {
    heard.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_never_sent_in_clear_text() {
    for (host, pieces, why) in [
        (
            "127.0.0.1",
            vec![greeting("mysql_clear_password", false)],
            "unsupported authentication plugin `mysql_clear_password`",
        ),
        (
            "127.0.0.1",
            vec![greeting("mysql_clear_password", true)],
            "unsupported authentication plugin `mysql_clear_password`",
        ),
        ("127.0.0.1", vec![greeting("dialog", false)], "unsupported authentication plugin `dialog`"),
        (
            "127.0.0.1",
            vec![greeting("mysql_native_password", false), switch("mysql_clear_password")],
            "mysql_cleartext_plugin disabled",
        ),
        (
            "127.0.0.1",
            vec![
                greeting("caching_sha2_password", false),
                packet(2, &[1, 4]),
                packet(4, b"\x01-----BEGIN PUBLIC KEY-----"),
            ],
            "RSA",
        ),
        // Not loopback, as far as the worker can see: nothing is sent without TLS, and a certificate is
        // required.
        ("0.0.0.0", vec![greeting("mysql_native_password", false)], "does not support TLS"),
        ("0.0.0.0", vec![greeting("mysql_native_password", true), b"\x16\x03\x03\0\x01\0".to_vec()], ""),
    ] {
        let (fault, heard) = attacked(host, pieces).await;
        assert!(fault.contains(why), "{why}: {fault}");
        assert!(!tells(&heard), "{fault}: {:?}", String::from_utf8_lossy(&heard));
        let has_name = heard.windows(6).any(|window| window == b"keeper");
        assert!(host == "127.0.0.1" || !has_name, "the account's name is sent in clear text");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_breaks_the_protocol_is_a_fault_of_that_server() {
    let plain = || greeting("mysql_native_password", false);
    let sha2 = || greeting("caching_sha2_password", false);
    let ok = || packet(2, &[0, 0, 0, 2, 0, 0, 0]);
    let servers = [
        vec![Vec::new()],
        vec![packet(0, b"")],
        vec![packet(0, b"\x0a")],
        vec![packet(0, b"\x0a8.0\0\x01")],
        vec![packet(0, b"\xff")],
        vec![packet(0, b"\xff\x10\x04Too many connections")],
        vec![vec![0xff; 70_000]],
        vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()],
        vec![plain(), packet(2, b"")],
        vec![plain(), packet(2, b"\xff")],
        vec![plain(), packet(2, b"\xfe")],
        vec![plain(), packet(2, b"\0\xfe")],
        vec![sha2(), packet(2, &[1])],
        vec![sha2(), packet(2, &[1, 9])],
        vec![plain(), ok(), packet(1, b"")],
        vec![plain(), ok(), packet(1, b"\xff")],
        vec![plain(), ok(), packet(1, &[0xfc])],
        vec![plain(), ok(), packet(1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
        vec![plain(), ok(), [packet(1, &[1]), packet(2, &[0xfd, 0xff, 0xff, 0xff])].concat()],
        vec![plain(), ok(), packet(1, &[0xfe, 0, 0, 0, 0, 1, 0, 0, 0])],
        vec![plain(), ok(), vec![0xff; 1 << 20]],
    ];
    // At the same time, because the program waits for some of them as long as it may.
    let tried = servers.map(|pieces| async {
        let shown: Vec<_> = pieces.iter().map(Vec::len).collect();
        let started = std::time::Instant::now();
        let attacked = tokio::time::timeout(Duration::from_secs(300), attacked("127.0.0.1", pieces));
        let (fault, _) = attacked.await.unwrap_or_else(|_| panic!("no fault within 300 s: {shown:?}"));
        println!("{shown:?}: {fault} after {:?}", started.elapsed());
    });
    futures::future::join_all(tried).await;
}
