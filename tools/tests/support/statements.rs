//! Hostile statements. Also used by the tests of the program.

/// Statements that both engines must refuse or stop.
pub(crate) fn attacks() -> Vec<String> {
    let twelve = (0..12).map(|number| format!("book b{number}")).collect::<Vec<_>>().join(", ");
    let mut attacks: Vec<String> = [
        "SELECT SLEEP(1000)",
        "SELECT sleep (1000) FROM book",
        "SELECT `SLEEP`(1000)",
        "SELECT/**/SLEEP/**/(1000)",
        "SELECT 1 FROM book WHERE SLEEP(100) = 0",
        "SELECT BENCHMARK(1000000000, MD5('a'))",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT GET_LOCK('a', 1000)",
        "SELECT MASTER_POS_WAIT('a', 1, 1000)",
        "SELECT LOAD_EXTENSION('/tmp/evil.so')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/evil', 'a')",
        "SELECT edit('a', 'sh')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT * FROM book INTO OUTFILE '/tmp/lumos_evil'",
        "SELECT 'a' INTO DUMPFILE '/tmp/lumos_evil'",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE book",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE book",
        "LOAD XML INFILE '/etc/passwd' INTO TABLE book",
        "ATTACH DATABASE '/tmp/lumos_evil.db' AS evil",
        "ATTACH ':memory:' AS evil",
        "DETACH DATABASE main",
        "VACUUM INTO '/tmp/lumos_evil.db'",
        "VACUUM",
        "PRAGMA writable_schema=ON",
        "PRAGMA max_page_count=1000000000",
        "PRAGMA hard_heap_limit=0",
        "PRAGMA temp_store_directory='/tmp'",
        "SELECT * FROM pragma_function_list",
        "CREATE VIRTUAL TABLE evil USING fts5(a)",
        "CREATE TRIGGER t AFTER INSERT ON book BEGIN SELECT 1; END",
        "CREATE FUNCTION f RETURNS STRING SONAME 'evil.so'",
        "CREATE FUNCTION f() RETURNS INT RETURN SLEEP(1000)",
        "CREATE PROCEDURE p() BEGIN SELECT SLEEP(1000); END",
        "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO DROP TABLE library.book",
        "CREATE USER evil IDENTIFIED BY 'evil'",
        "CREATE DATABASE evil",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'evil')",
        "CREATE TABLE t (a int) ENGINE=FEDERATED CONNECTION='mysql://evil/a/b'",
        "CREATE TABLE t (a int) DATA DIRECTORY='/tmp'",
        "DROP DATABASE library",
        "DROP USER keeper",
        "ALTER USER root IDENTIFIED BY 'evil'",
        "GRANT ALL ON *.* TO CURRENT_USER",
        "REVOKE ALL ON *.* FROM keeper",
        "SET PASSWORD = PASSWORD('evil')",
        "SET GLOBAL max_connections = 1",
        "SET SESSION max_statement_time = 0",
        "SET STATEMENT max_statement_time=0 FOR SELECT SLEEP(1000)",
        "SET @@global.general_log_file = '/tmp/lumos_evil'",
        "SELECT @@datadir",
        "SELECT@@datadir",
        "SELECT 1 AND@@datadir",
        "KILL 1",
        "KILL@x",
        "KILL QUERY 1",
        "SHUTDOWN",
        "FLUSH TABLES WITH READ LOCK",
        "FLUSH PRIVILEGES",
        "LOCK TABLES book WRITE",
        "RESET MASTER",
        "CHANGE MASTER TO MASTER_HOST='evil'",
        "INSTALL PLUGIN a SONAME 'evil.so'",
        "INSTALL SONAME 'evil'",
        "SELECT * FROM mysql.user",
        "SELECT * FROM `mysql`.`global_priv`",
        "SELECT * FROM sys.session",
        "UPDATE mysql.user SET password = ''",
        "SHOW GRANTS",
        "SHOW PROCESSLIST",
        "SHOW FULL PROCESSLIST",
        "SHOW GLOBAL VARIABLES",
        "SHOW VARIABLES LIKE 'datadir'",
        "SHOW ENGINE INNODB STATUS",
        "SELECT * FROM information_schema.processlist",
        "SELECT * FROM information_schema.global_variables",
        "SELECT * FROM performance_schema.threads",
        "SET @x = 1, PASSWORD = PASSWORD('evil')",
        "SET @x = 1, max_statement_time = 0",
        "SET@x=1, max_statement_time=0",
        "SET@x=1,sql_select_limit=0",
        "SET/**/@x=1,sql_select_limit=0",
        "SELECT 1 FROM book WHERE 1e1PROCEDURE ANALYSE()",
        "SELECT SLEEP 1.e(1000)",
        "SELECT 5 1.e-- SLEEP(1000)",
        "CREATE TABLE t (a int) MAX_ROWS=1e1ENGINE=MEMORY",
        "SET @x = 1, sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET @x = 1, sql_mode = 'ANSI_QUOTES'",
        "SELECT /*+ SET_VAR(sql_mode='ANSI_QUOTES') */ 1",
        "SELECT a --\u{a0}, SLEEP(1000) FROM (SELECT 1 AS a, 1 AS `\u{a0}`) AS t",
        "CREATE TABLE t (a int) PARTITION BY HASH (a) PARTITIONS 8192",
        "SHOW MASTER STATUS",
        "SELECT 1; DROP TABLE book",
        "SELECT 1;SELECT 2",
        "DROP TABLE loan; -- a\nDROP TABLE book",
        "SELECT '\\'; DROP TABLE book; -- '; SELECT 1",
        "/*!50000 SELECT SLEEP(1000) */",
        "/*M! SELECT SLEEP(1000) */",
        "SELECT /*!50000 SLEEP(1000) */",
        "PREPARE s FROM 'SELECT SLEEP(1000)'",
        "EXECUTE IMMEDIATE 'SELECT SLEEP(1000)'",
        "DO SLEEP(1000)",
        "CALL mysql.p()",
        "HANDLER book OPEN",
        "XA START 'a'",
        "BEGIN NOT ATOMIC SELECT SLEEP(1000); END",
        "BEGIN NOT ATOMIC LOOP SELECT 1",
        "IF 1 THEN SELECT 1",
        "SELECT 1\0; DROP TABLE book",
        "\0",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT SUM(a), GROUP_CONCAT(a) FROM r, r AS s",
        "SELECT a.book_id, b.book_id FROM book a, book b, book c, book d, book e, book f",
        "INSERT INTO loan SELECT a.book_id * 0 + RAND() * 1e9, 1, 1, '2020-01-01', NULL FROM book a, book b, book c, book d, \
         book e, book f, book g, book h, book i, book j",
        "SELECT (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1",
    ]
    .map(str::to_owned)
    .to_vec();
    attacks.push(format!("SELECT COUNT(*) FROM {twelve} WHERE b0.pages + b11.pages > 0"));
    attacks.push(format!(
        "SELECT DISTINCT b0.title, b1.title, b2.title, b3.title, b4.title, b5.title, b6.title FROM {twelve}"
    ));
    attacks.push(format!("SELECT 1 FROM {twelve} GROUP BY b0.title, b1.title ORDER BY RAND()"));
    attacks.push(format!("SELECT '{}'", "a".repeat(10 << 20)));
    attacks.push(format!("SELECT {}", "(".repeat(50_000)));
    attacks.push(format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(20_000)));
    attacks
}

/// Statements on long values, each of which takes one step of SQLite's virtual machine, or a few.
pub(crate) fn long_values() -> Vec<String> {
    let text = "WITH RECURSIVE s(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM s WHERE length(x) < 100000), \
                t(x) AS (SELECT x FROM s ORDER BY length(x) DESC LIMIT 1), \
                n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) ";
    let json = format!("'[' || {} || '1]'", "replace(substr(x, 1, 100000), 'a', '1,')");
    let mut all: Vec<String> = [
        "SUM(instr(x, substr(x, 1, 60000) || 'b' || i)) FROM t, n",
        "SUM(length(replace(x, substr(x, 1, 60000) || 'b' || i, 'c'))) FROM t, n",
        "SUM(x LIKE '%a%a%a%a%a%a%a%a%a%a%a%a%aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab' || i) FROM t, n",
        "SUM(x LIKE '%' || replace(substr(x, 1, 80), 'a', '_a') || 'b' || i) FROM t, n",
        "SUM(x GLOB '*' || replace(substr(x, 1, 30), 'a', '[^b]') || 'b' || i) FROM t, n",
        "SUM(length(trim(x, replace(substr(x, 1, 60000), 'a', 'bc') || i))) FROM t, n",
        "SUM(length(upper(x) || i)) FROM t, n",
        "SUM(length(hex(x || i))) FROM t, n",
        "SUM(length(quote(x || i))) FROM t, n",
        "SUM(length(printf('%s%131072d', x, i))) FROM t, n",
        "SUM(length(x || i || x)) FROM t, n",
        "SUM(unicode(x || i)) FROM t, n",
        "SUM(CAST(x || i AS INTEGER)) FROM t, n",
        "COUNT(*) FROM (SELECT x || i AS y FROM t, n WHERE i < 8000 ORDER BY y COLLATE NOCASE LIMIT 5)",
        "COUNT(DISTINCT (x || i) COLLATE NOCASE) FROM t, n WHERE i < 2000",
        "length(group_concat(x || i)) FROM t, n",
        "MAX(length(y)) FROM (SELECT group_concat(i) OVER (ORDER BY i ROWS BETWEEN 20000 PRECEDING AND CURRENT ROW) AS y FROM n)",
        "SUM(x || i = x || (i + 1) COLLATE NOCASE) FROM t, n",
    ]
    .map(|query| format!("{text}SELECT {query}"))
    .to_vec();
    for call in [
        "json_extract(j, '$[' || i || ']')",
        "json_array_length(json_set(j, '$[1]', i, '$[2]', i, '$[3]', i, '$[4]', i))",
        "json_valid(j || i)",
        "json_extract(j, '$[60000]', '$[60001]', '$[60002]', '$[60003]', '$[60004]', '$[60005]', '$[60006]')",
    ] {
        all.push(format!("{text}SELECT SUM(length({call})) FROM (SELECT {json} AS j FROM t), n"));
    }
    all.push(format!("{text}SELECT SUM(length(strftime(replace(substr(x, 1, 100000), 'a', '%W') || i, '2020-01-01'))) FROM t, n"));
    let calls = |call: &str, count: usize| vec![call; count].join(" + ");
    all.push(format!("{text}SELECT {} FROM t", calls("instr(x, substr(x, 1, 60000) || 'b')", 90)));
    all.push(format!("{text}SELECT {} FROM t", calls("instr(x, 'b')", 190)));
    all.push(format!("{text}SELECT {} FROM t", vec!["upper(x)"; 190].join(", ")));
    all
}
