//! No episode sees another's changes.

use lumos_tasks::SqlReply;
use lumos_worker::Tools;

use super::support::Episode;

const COUNT: &str = "SELECT COUNT(*) FROM book";

/// What any episode may rely on.
pub(crate) async fn basics(tool: &dyn Tools) {
    let episode = Episode::open(tool, "library", "SELECT name FROM author WHERE born < 1950").await;
    assert_eq!(episode.rows("SHOW TABLES").await, "[('author',), ('book',), ('loan',), ('member',)]");
    let described = episode.rows("DESCRIBE author").await;
    assert!(described.starts_with("[('author_id', 'int") && described.contains("'PRI'"), "{described}");
    assert_eq!(episode.rows("select Name from author where name = 'owen pryce'").await, "[('Owen Pryce',)]");
    assert_eq!(episode.submit().await.reward, 1.0);
    let failed = episode.sql("SELECT nothing FROM author").await;
    assert!(matches!(failed, SqlReply::Error(text) if text.starts_with("Error executing query: ")));
    assert_eq!(episode.submit().await.reward, 0.0);
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
}

/// Sixteen episodes at once that try to destroy each other's tables, and sixteen that only read meanwhile.
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
