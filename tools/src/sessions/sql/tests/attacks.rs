//! Hostile statements: each ends in bounded time with an error for the model.

use std::time::{Duration, Instant};

use futures::StreamExt;
use lumos_tasks::SqlReply;

use super::statements::{attacks, long_values};
use super::support::Episode;
use crate::Tools;

/// Maximum duration of an attack on a busy machine: the time limit of a statement, and the time to stop it.
const LONGEST: Duration = Duration::from_secs(30);

/// Checks that no statement on SQLite exceeds its time limit, whatever functions it calls.
pub(crate) async fn costly_functions(tool: &dyn Tools) {
    let attacked = long_values().into_iter().map(|attack| async move {
        let shown: String = attack.chars().skip(attack.find("SELECT SUM").unwrap_or(230)).take(100).collect();
        let episode = Episode::open(tool, "library", "SELECT COUNT(*) FROM book").await;
        let started = Instant::now();
        let reply = tokio::time::timeout(LONGEST, episode.sql(&attack)).await;
        println!("sqlite: {:?} for {shown:?}: {:.60?}", started.elapsed(), reply);
        assert!(reply.is_ok(), "{shown:?} takes longer than {LONGEST:?}");
        assert_eq!(episode.rows("SELECT COUNT(*) FROM book").await, "[(10,)]", "{shown:?}");
        episode.close().await;
    });
    futures::stream::iter(attacked).buffer_unordered(4).collect::<()>().await;
    let episode = Episode::open(tool, "library", "SELECT 1").await;
    for attack in long_values().iter().take(6) {
        let refused = episode.refused(attack).await;
        assert!(
            refused.contains("takes too long"),
            "the size of its operands is limited, not only its time: {refused}"
        );
    }
    let many = vec!["abs(1) + abs(1) + abs(1)"; 100].join(", ");
    assert!(episode.refused(&format!("SELECT {many}")).await.contains("more than 200 calls"));
    let many = vec!["json_extract('[]', '$[0]')"; 21].join(", ");
    assert!(episode.refused(&format!("SELECT {many}")).await.contains("more than 200 calls"));
    // One call of these functions takes seconds on the longest values.
    for call in ["json_patch('{}', '{}')", "jsonb_patch('{}', '{}')", "json_pretty('[]')"] {
        assert!(episode.refused(&format!("SELECT {call}")).await.contains("not authorized"), "{call}");
    }
    // A statement whose caller stopped waiting ends, and the next one is answered.
    let endless = long_values().swap_remove(10);
    let dropped = tokio::time::timeout(Duration::from_millis(20), episode.sql(&endless)).await;
    let next = tokio::time::timeout(Duration::from_secs(120), episode.rows("SELECT 1")).await;
    assert_eq!(next.as_deref(), Ok("[(1,)]"), "after {dropped:?}");
    episode.close().await;
}

/// Runs all attacks, each in a separate episode, which works normally afterwards.
pub(crate) async fn all(tool: &dyn Tools, engine: &str) {
    let attacks = attacks();
    assert!(attacks.len() >= 60);
    let mut longest = (Duration::ZERO, String::new());
    let mut passed = Vec::new();
    for attack in &attacks {
        let shown: String = attack.chars().take(90).collect();
        let episode = Episode::open(tool, "library", "SELECT COUNT(*) FROM book").await;
        let started = Instant::now();
        let reply = tokio::time::timeout(LONGEST, episode.sql(attack)).await;
        let took = started.elapsed();
        match reply {
            Err(_) => panic!("{engine}: {shown:?} takes longer than {LONGEST:?}"),
            Ok(SqlReply::Error(_)) => {}
            Ok(other) => passed.push(format!("{shown:?}: {other:?}")),
        }
        if took > longest.0 {
            longest = (took, shown.clone());
        }
        // The session still responds, and its tables are unchanged.
        assert_eq!(episode.rows("SELECT COUNT(*) FROM book").await, "[(10,)]", "{shown:?}");
        episode.close().await;
    }
    println!(
        "{engine}: {} attacks end with an error, the longest after {:?}: {:?}",
        attacks.len(),
        longest.0,
        longest.1
    );
    assert!(passed.is_empty(), "{engine}: not refused:\n{}", passed.join("\n"));
    for file in ["/tmp/lumos_evil", "/tmp/lumos_evil.db"] {
        assert!(!std::path::Path::new(file).exists(), "{file} was written");
    }
}
