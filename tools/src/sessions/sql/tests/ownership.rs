//! Restarts of the server and killed connections: sessions keep their databases and accounts, and none are
//! left behind.

use std::sync::Arc;
use std::time::Duration;

use lumos_environments::sql::LIBRARY;
use lumos_tasks::SqlReply;
use tokio::sync::Notify;

use super::mariadb::Server;
use super::support::{self, Episode};
use crate::Tools;
use crate::sessions::sql::mysql::server::MySqlServer;
use crate::sessions::sql::mysql::{connect, execute};
use crate::sessions::sql::{MySqlSettings, SqlTool, into_mysql};

const COUNT: &str = "SELECT COUNT(*) FROM book";
/// Time for which a lock must be free in these tests.
const GRACE: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

async fn tool(server: &Server) -> SqlTool {
    SqlTool { databases: Box::new(MySqlServer::with_limits(support::settings(server), GRACE, PATIENCE)) }
}

/// Returns the token in the names of databases and accounts.
fn token(made: &[String]) -> String {
    made.first().and_then(|name| name.split('_').nth(2)).unwrap().to_owned()
}

/// Kills the connection that holds a token's lock.
async fn cut_lock(server: &Server, token: &str) {
    let holder = format!("SELECT CAST(IS_USED_LOCK('lumos_e_{token}') AS CHAR)");
    support::until("the lock is held", async || {
        let id = support::query(server, &holder).await.concat();
        if !id.is_empty() {
            support::query(server, &format!("KILL {id}")).await;
        }
        !id.is_empty()
    })
    .await;
}

/// Runs an episode that writes, with up to three attempts, like the coordinator. Returns the number of
/// attempts.
async fn with_retries(tool: &dyn Tools, begun: &Notify) -> u32 {
    for attempt in 1..=3 {
        let written = async {
            let episode = Episode::attempt(tool, "library").await?;
            let done = async {
                episode.try_sql("DELETE FROM loan").await?;
                begun.notify_one();
                let mut last = SqlReply::Nothing;
                for _ in 0..20 {
                    last = episode.try_sql("INSERT INTO loan VALUES (1, 1, 1, '2020-01-01', NULL)").await?;
                    episode.try_sql("DELETE FROM loan").await?;
                }
                assert_eq!(last, SqlReply::Nothing);
                episode.try_sql(COUNT).await
            };
            let done = done.await;
            episode.close().await;
            done
        };
        match written.await {
            Ok(SqlReply::Rows { rows, .. }) => {
                assert_eq!(rows, ["(10,)"]);
                return attempt;
            }
            Ok(other) => panic!("the model sees {other:?}"),
            Err(fault) => println!("attempt {attempt}: {fault}"),
        }
    }
    panic!("all attempts failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_of_the_server_faults_nothing_for_good() {
    let Some(mut server) = Server::start() else { return };
    into_mysql(LIBRARY, &support::settings(&server), false).await.unwrap();
    let tool = Arc::new(tool(&server).await);
    let reading = Episode::open(tool.as_ref(), "library", COUNT).await;
    assert_eq!(reading.rows(COUNT).await, "[(10,)]");
    let writing = Episode::open(tool.as_ref(), "library", COUNT).await;
    assert_eq!(writing.sql("DELETE FROM loan").await, SqlReply::Nothing);
    let begun = Arc::new(Notify::new());
    let episodes: Vec<_> = (0..8)
        .map(|_| {
            let (tool, begun) = (Arc::clone(&tool), Arc::clone(&begun));
            tokio::spawn(async move { with_retries(tool.as_ref(), &begun).await })
        })
        .collect();
    begun.notified().await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    // A session that only read continues; one whose changes are lost returns a fault instead of an answer to
    // the model.
    assert_eq!(reading.rows(COUNT).await, "[(10,)]");
    let lost = writing.try_sql("SELECT COUNT(*) FROM loan").await.unwrap_err().to_string();
    assert!(lost.contains("mysql://127.0.0.1:"), "{lost}");
    reading.close().await;
    writing.close().await;
    for episode in episodes {
        println!("done at attempt {}", episode.await.unwrap());
    }
    tool.shut_down().await;
    assert_eq!(support::made(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sweep_leaves_a_live_worker_whose_lock_was_cut_alone() {
    let Some(server) = Server::start() else { return };
    into_mysql(LIBRARY, &support::settings(&server), false).await.unwrap();
    let live = tool(&server).await;
    let episode = Episode::open(&live, "library", COUNT).await;
    assert_eq!(episode.sql("DELETE FROM loan").await, SqlReply::Nothing);
    let own = support::made(&server).await;
    assert_eq!(own.len(), 2, "an account and a copy: {own:?}");
    // Left by a process that has ended: its removal shows that the cleanup has run.
    support::query(&server, "CREATE DATABASE lumos_e_aaaaaaaaaaaa_d00000001").await;
    support::query(&server, "CREATE USER 'lumos_e_aaaaaaaaaaaa_u00000001'@'%' IDENTIFIED BY 'x'").await;
    cut_lock(&server, &token(&own)).await;
    let sweeping = tool(&server).await;
    let other = Episode::open(&sweeping, "library", COUNT).await;
    let gone = async || !support::made(&server).await.iter().any(|name| name.contains("aaaaaaaaaaaa"));
    cut_lock(&server, &token(&own)).await;
    support::until("the cleanup has run", gone).await;
    let left = support::made(&server).await;
    assert!(own.iter().all(|name| left.contains(name)), "{own:?} of {left:?}");
    assert_eq!(episode.sql("INSERT INTO loan VALUES (1, 1, 1, '2020-01-01', NULL)").await, SqlReply::Nothing);
    assert_eq!(episode.rows("SELECT COUNT(*) FROM loan").await, "[(1,)]");
    assert_eq!(other.rows(COUNT).await, "[(10,)]");
    episode.close().await;
    other.close().await;
    live.shut_down().await;
    sweeping.shut_down().await;
    assert_eq!(support::made(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_removed_meanwhile_is_a_fault_and_a_fresh_session_has_it_again() {
    let Some(server) = Server::start() else { return };
    into_mysql(LIBRARY, &support::settings(&server), false).await.unwrap();
    let tool = tool(&server).await;
    let episode = Episode::open(&tool, "library", COUNT).await;
    assert_eq!(episode.sql("DELETE FROM loan").await, SqlReply::Nothing);
    assert_eq!(episode.sql("COMMIT").await, SqlReply::Nothing, "releases its table locks");
    let own = support::made(&server).await;
    for name in &own {
        let is_copy = name.rsplit('_').next().is_some_and(|end| end.starts_with('d'));
        let kind = if is_copy { "DATABASE" } else { "USER" };
        support::query(&server, &format!("DROP {kind} {name}")).await;
    }
    cut_lock(&server, &token(&own)).await;
    // Not shown to the model as `Unknown database`, which would be scored. The statement is repeated, because
    // it returns the server's error until the loss of the lock is detected.
    support::until("the loss is detected", async || {
        let lost = episode.try_sql("SELECT COUNT(*) FROM loan").await;
        lost.is_err_and(|fault| fault.to_string().contains("were removed"))
    })
    .await;
    episode.close().await;
    let fresh = Episode::open(&tool, "library", COUNT).await;
    assert_eq!(fresh.sql("DELETE FROM loan").await, SqlReply::Nothing);
    // A dropped episode leaves its database and its account to the tool.
    drop(fresh);
    tool.shut_down().await;
    assert_eq!(support::made(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_whose_creation_is_cancelled_is_dropped() {
    let Some(server) = Server::start() else { return };
    let settings = support::settings(&server);
    into_mysql(LIBRARY, &settings, false).await.unwrap();
    let tool = tool(&server).await;
    let episode = Episode::open(&tool, "library", COUNT).await;
    let account = support::made(&server).await;
    let mut locking = connect(&settings, settings.options()).await.unwrap();
    execute(&mut locking.sql, "LOCK TABLES library.book WRITE".to_owned()).await.unwrap();
    tokio::select! {
        reply = episode.try_sql("DELETE FROM loan") => panic!("the copy does not wait: {reply:?}"),
        () = support::until("the copy exists", async || support::made(&server).await.len() == 2) => {}
    }
    execute(&mut locking.sql, "UNLOCK TABLES".to_owned()).await.unwrap();
    support::until("the copy is dropped", async || support::made(&server).await == account).await;
    episode.close().await;
    tool.shut_down().await;
    assert_eq!(support::made(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_never_answers_is_given_up_for_all_sessions_at_once() {
    // A port on which no server listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = MySqlSettings::of_url(&format!("mysql://keeper:secret@127.0.0.1:{port}")).unwrap();
    let tool =
        SqlTool { databases: Box::new(MySqlServer::with_limits(settings, GRACE, Duration::from_secs(5))) };
    let waiting = futures::future::join_all((0..16).map(|_| Episode::attempt(&tool, "library")));
    // One after the other they would take 80 s.
    let ended = tokio::time::timeout(Duration::from_secs(40), waiting).await.unwrap();
    for fault in ended.into_iter().map(|ended| ended.err().unwrap().to_string()) {
        assert!(
            fault.contains(&format!("mysql://127.0.0.1:{port}: failed to set up the server: ")),
            "{fault}"
        );
    }
    tool.shut_down().await;
}
