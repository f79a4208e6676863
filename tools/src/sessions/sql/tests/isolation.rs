//! Episodes do not see the changes of other episodes.

use lumos_tasks::SqlReply;

use super::mariadb::Server;
use super::support::{self, Episode};
use crate::Tools;

const COUNT: &str = "SELECT COUNT(*) FROM book";

/// Checks the basic behaviour of an episode.
pub(crate) async fn basics(tool: &dyn Tools) {
    let episode = Episode::open(tool, "library", "SELECT name FROM author WHERE born < 1950").await;
    assert_eq!(episode.rows("SHOW TABLES").await, "[('author',), ('book',), ('loan',), ('member',)]");
    let described = episode.rows("DESCRIBE author").await;
    assert!(described.starts_with("[('author_id', 'int") && described.contains("'PRI'"), "{described}");
    assert_eq!(episode.rows("select Name from author where name = 'owen pryce'").await, "[('Owen Pryce',)]");
    assert_eq!(episode.submit().await.reward, 1.0);
    let failed = episode.sql("SELECT nothing FROM author").await;
    assert!(matches!(failed, SqlReply::Error(text) if text.starts_with("Error executing query: ")));
    // The message is the database's.
    assert!(episode.refused("SELEC 1").await.contains("SELEC"));
    assert_eq!(episode.submit().await.reward, 0.0);
    // The last statement on the cursor is the gold query.
    assert_eq!(episode.rows("").await, "[]");
    assert_eq!(episode.sql("USE library").await, SqlReply::Nothing);
    assert!(matches!(episode.sql("USE mysql").await, SqlReply::Error(_)));
    assert_eq!(episode.sql("").await, SqlReply::Nothing);
    assert_eq!(episode.rows(COUNT).await, "[(10,)]");
    assert_eq!(episode.rows("").await, "[]");
    assert_eq!(episode.sql("-- nothing").await, SqlReply::Nothing);
    assert_eq!(episode.sql(" ").await, SqlReply::Error("Error executing query: Query was empty".to_owned()));
    let many = episode.sql("SELECT a.book_id FROM book a, book b, book c").await;
    assert!(matches!(many, SqlReply::Rows { rows, count: 1000 } if rows.len() == 50));
    // A change holds for the rest of the episode; in paper behaviour the gold query sees it.
    assert_eq!(episode.sql("UPDATE author SET born = 1900 WHERE author_id = 1").await, SqlReply::Nothing);
    assert_eq!(episode.rows("SELECT COUNT(*) FROM author WHERE born < 1950").await, "[(2,)]");
    assert_eq!(
        episode.sql("SELECT name FROM author WHERE author_id = 4").await.clone(),
        SqlReply::Rows { rows: vec!["('Owen Pryce',)".to_owned()], count: 1 }
    );
    assert_eq!(episode.submit().await.reward, 0.5);
    episode.close().await;

    let corrected = Episode::corrected(tool, "library", "SELECT name FROM author WHERE born < 1950").await;
    corrected.sql("DELETE FROM loan").await;
    corrected.sql("UPDATE author SET born = 1900 WHERE author_id = 1").await;
    corrected.sql("SELECT name FROM author WHERE author_id = 4").await;
    let grade = corrected.submit().await;
    assert!(grade.is_same && grade.reward == 1.0, "{grade:?}");
    corrected.close().await;

    // MariaDB rejects the statement; SQLite executes it, and it counts as reading.
    let corrected = Episode::corrected(tool, "library", "SELECT COUNT(*) FROM loan").await;
    corrected.sql("WITH gone AS (SELECT 1) DELETE FROM loan").await;
    let counted = corrected.rows("SELECT COUNT(*) FROM loan").await;
    assert_eq!(corrected.submit().await.is_same, counted == "[(12,)]", "{counted}");
    corrected.close().await;
}

/// Runs sixteen concurrent episodes that try to destroy each other's tables, and sixteen that only read.
pub(crate) async fn destroyers(tool: &dyn Tools) {
    let destroy = |number: usize| async move {
        let episode = Episode::open(tool, "library", COUNT).await;
        episode.sql("DELETE FROM loan").await;
        let name = format!("Nobody {number}");
        episode.sql(&format!("UPDATE author SET name = '{name}'")).await;
        episode.sql("UPDATE library.author SET name = 'Gone'").await;
        episode.sql("DROP TABLE loan").await;
        episode.sql("DROP TABLE library.book").await;
        episode.sql("CREATE TABLE mine (a int)").await;
        episode.sql(&format!("INSERT INTO mine VALUES ({number})")).await;
        tokio::task::yield_now().await;
        assert_eq!(episode.rows("SELECT a FROM mine").await, format!("[({number},)]"));
        assert!(matches!(episode.sql("SELECT * FROM loan").await, SqlReply::Error(_)));
        let names = episode.rows("SELECT DISTINCT name FROM author").await;
        assert!(names == format!("[('{name}',)]") || names == "[('Gone',)]", "{names}");
        episode.close().await;
    };
    let read = |_: usize| async move {
        let episode = Episode::open(tool, "library", COUNT).await;
        for _ in 0..20 {
            assert_eq!(episode.rows(COUNT).await, "[(10,)]");
            assert_eq!(episode.rows("SELECT COUNT(*) FROM loan").await, "[(12,)]");
            assert_eq!(episode.submit().await.reward, 0.0);
        }
        assert!(matches!(episode.sql("SELECT a FROM mine").await, SqlReply::Error(_)));
        episode.close().await;
    };
    futures::future::join(
        futures::future::join_all((0..16).map(destroy)),
        futures::future::join_all((0..16).map(read)),
    )
    .await;
}

/// Generated names are not shown to a model, so that messages are the same in every run.
pub(crate) async fn generated_names(tool: &dyn Tools) {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let episode = Episode::open(tool, "library", COUNT).await;
        let mut messages = vec![episode.rows("SELECT DATABASE(), SUBSTRING_INDEX(USER(), '@', 1)").await];
        for statement in [
            "DELETE FROM author WHERE author_id = 1",
            "INSERT INTO loan VALUES (99, 999, 1, '2020-01-01', NULL)",
            "SELECT * FROM nowhere",
            "DROP TABLE nowhere",
            "SELECT * FROM mysql . user",
            "SELECT * FROM other.user",
            "CREATE TABLE library.x (a int)",
        ] {
            messages.push(episode.refused(statement).await);
        }
        messages.push(episode.rows("SELECT DATABASE(), UPPER(DATABASE()), CURRENT_USER()").await);
        messages.push(episode.rows("SHOW DATABASES").await);
        episode.close().await;
        let all = messages.join("\n");
        assert!(!all.to_lowercase().contains("lumos_e_"), "{all}");
        assert!(all.contains("(`library`.`loan`, CONSTRAINT") && all.contains("'library.nowhere'"), "{all}");
        assert!(all.contains("('library', 'library', 'lumos@%')"), "{all}");
        seen.push(all);
    }
    assert_eq!(seen[0], seen[1]);
}

/// The number of bytes that an episode writes is limited, and temporary tables work like others.
pub(crate) async fn written_bytes(tool: &dyn Tools) {
    let episode = Episode::open(tool, "library", COUNT).await;
    assert_eq!(episode.sql("CREATE TEMPORARY TABLE tmp_q (a int)").await, SqlReply::Nothing);
    assert_eq!(episode.sql("INSERT INTO tmp_q VALUES (4)").await, SqlReply::Nothing);
    assert_eq!(episode.rows("SELECT a FROM tmp_q").await, "[(4,)]");
    assert_eq!(episode.sql("CREATE TABLE large (a LONGTEXT)").await, SqlReply::Nothing);
    let mut last = SqlReply::Nothing;
    for _ in 0..8 {
        last =
            episode.sql("INSERT INTO large SELECT REPEAT('a', 1000000) FROM book a, book b LIMIT 20").await;
    }
    assert!(matches!(&last, SqlReply::Error(message) if message.contains("67108864 bytes")), "{last:?}");
    episode.close().await;
}

/// A result that is too large leaves the changes of its episode in place.
pub(crate) async fn large_results(tool: &dyn Tools) {
    let episode = Episode::open(tool, "library", COUNT).await;
    assert_eq!(episode.sql("DELETE FROM loan").await, SqlReply::Nothing);
    // The server has sent the whole result, or is still sending it.
    for columns in ["a.book_id", "a.title, b.title, c.title, d.title, e.title"] {
        let query = format!("SELECT {columns} FROM book a, book b, book c, book d, book e");
        let refused = episode.refused(&query).await;
        assert_eq!(refused, "Error executing query: The result has more than 20000 rows");
        assert_eq!(episode.rows("SELECT COUNT(*) FROM loan").await, "[(0,)]", "{columns}");
    }
    episode.close().await;
}

/// Each session has its own account, which is removed with it. A variable lasts as long as its session.
pub(crate) async fn accounts(tool: &dyn Tools, server: &Server) {
    let episodes = [Episode::open(tool, "library", COUNT).await, Episode::open(tool, "library", COUNT).await];
    let accounts = support::made(server).await;
    assert_eq!(accounts.len(), 2, "{accounts:?}");
    assert_eq!(episodes[0].sql("SET @x = 5").await, SqlReply::Nothing);
    assert_eq!(episodes[0].sql("UPDATE book SET pages = @x WHERE book_id = 1").await, SqlReply::Nothing);
    assert_eq!(episodes[0].rows("SELECT pages, @x FROM book WHERE book_id = 1").await, "[(5, 5)]");
    for episode in episodes {
        episode.close().await;
    }
    assert_eq!(support::made(server).await, Vec::<String>::new());
}
