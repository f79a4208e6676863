//! Connections to a server that may be malicious or unreachable.
//!
//! The client library accepts every authentication method that a server requests, including
//! `mysql_clear_password`, and allocates memory by the lengths that a server sends. Therefore the first
//! packet is parsed and rebuilt here, and the library is connected through a relay that tracks packet
//! lengths:
//!
//! ```text
//! sqlx ── unix socket ── relay ── TCP ── server
//!                         │ greeting: known plugins only, rebuilt from its fields
//!                         │ packets: at most `PACKET` bytes (not checked under TLS: the server is verified)
//! ```
//!
//! Every wait has a time limit, and a panic of the library on a malformed reply becomes an error
//! ([`bounded`]).

use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, TryStreamExt};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;

use super::server::SERVER_ERRORS;
use crate::sessions::sql::settings::{Encryption, MySqlSettings};

/// Time limit for connecting and authenticating.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time limit for a short administrative statement.
pub(super) const SHORT: Duration = Duration::from_secs(10);
/// Maximum size of a greeting, in bytes.
const GREETING: usize = 1024;
/// Maximum size of a packet, in bytes: the maximum size of values sent by a server.
const PACKET: usize = 64 << 20;
/// Maximum size of the texts that [`texts`] returns, in bytes.
const TEXTS: usize = 16 << 20;
/// Size of a part of a packet that is split into parts, in bytes.
const PART: usize = 0xff_ff_ff;

/// Authentication methods that do not reveal the password to the server.
const PLUGINS: [&str; 3] = ["mysql_native_password", "caching_sha2_password", "sha256_password"];

/// Capability flags of a greeting. `DEPRECATE_EOF` is cleared, so that no other packet looks like a column
/// count: see [`Packets`].
const DEPRECATE_EOF: u32 = 1 << 24;
const PLUGIN_AUTH: u32 = 1 << 19;
const SECURE_CONNECTION: u32 = 1 << 15;

/// A session and its connection id on the server.
pub(in crate::sessions::sql) struct ServerConnection {
    pub(in crate::sessions::sql) sql: MySqlConnection,
    pub(super) id: u64,
    relay: AbortOnDropHandle<()>,
}

impl ServerConnection {
    /// Closes the session. Not used after a failure, because it would wait for the rest of a result.
    pub(in crate::sessions::sql) async fn close(self) {
        let Self { sql, relay, .. } = self;
        let farewell = bounded(Duration::from_secs(2), sql.close()).await;
        if farewell.is_ok() {
            let _ = tokio::time::timeout(Duration::from_secs(2), relay).await;
        }
    }
}

/// Connects as an account, to a database if one is given in `options`.
///
/// # Errors
/// If the server cannot be reached, does not use the MySQL protocol, requests the password in clear text, or
/// rejects the account.
pub(in crate::sessions::sql) async fn connect(
    settings: &MySqlSettings,
    options: MySqlConnectOptions,
) -> Result<ServerConnection, sqlx::Error> {
    bounded(CONNECT_TIME, async {
        let mut server = TcpStream::connect((settings.host.as_str(), settings.port)).await?;
        server.set_nodelay(true)?;
        let greeting = greeting(&mut server).await?;
        // Only the user of this process can enter the folder.
        let folder = tempfile::Builder::new().prefix("lumos-sql").tempdir()?;
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path)?;
        let is_encrypted = settings.tls != Encryption::Disabled;
        let relay = AbortOnDropHandle::new(tokio::spawn(async move {
            let Ok((client, _)) = listener.accept().await else { return };
            drop((listener, folder));
            if let Err(error) = relay(client, server, &greeting, is_encrypted).await {
                tracing::debug!(%error, "connection to a database server closed");
            }
        }));
        let mut sql = MySqlConnection::connect_with(&options.socket(path)).await?;
        let id = texts(&mut sql, "SELECT CAST(CONNECTION_ID() AS CHAR)".to_owned()).await?;
        let id = id.first().and_then(|id| id.parse().ok()).unwrap_or_default();
        Ok(ServerConnection { sql, id, relay })
    })
    .await
}

/// Waits for a server with a time limit. Converts a panic on its reply to an error.
pub(super) async fn bounded<T>(
    time: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(time, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(sqlx::Error::Protocol("invalid reply of the server".to_owned())),
        Err(_) => Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no reply within {} s", time.as_secs()),
        ))),
    }
}

/// Executes a statement.
pub(in crate::sessions::sql) async fn execute(
    connection: &mut MySqlConnection,
    statement: String,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(|_| ())
}

/// Returns the first column of a query's rows.
pub(super) async fn texts(
    connection: &mut MySqlConnection,
    query: String,
) -> Result<Vec<String>, sqlx::Error> {
    let mut rows = sqlx::raw_sql(AssertSqlSafe(query)).fetch(connection);
    let (mut texts, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.try_next().await? {
        let text = row.try_get_unchecked::<Option<String>, _>(0)?.unwrap_or_default();
        bytes += text.len() + size_of::<String>();
        if bytes > TEXTS {
            return Err(sqlx::Error::Protocol(format!("reply of the server above {} MiB", TEXTS >> 20)));
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Reads the server's first packet. Returns the packet that is sent to the client instead.
async fn greeting(server: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = [0; 4];
    server.read_exact(&mut header).await?;
    let length = length(header);
    if length > GREETING {
        return Err(io::Error::other(format!("invalid greeting of the server: {length} bytes")));
    }
    let mut packet = vec![0; length];
    server.read_exact(&mut packet).await?;
    let payload = rebuilt(&packet)?;
    let size = u32::try_from(payload.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut whole = vec![size[0], size[1], size[2], 0];
    whole.extend(payload);
    Ok(whole)
}

/// Rebuilds a greeting from its known fields, so that it cannot be interpreted in another way.
fn rebuilt(packet: &[u8]) -> io::Result<Vec<u8>> {
    let broken = || io::Error::other("invalid greeting of the server: expected the MySQL protocol");
    match packet.first() {
        Some(10) => {}
        // An error packet instead of a greeting: error code and message.
        Some(0xff) if packet.len() > 3 => {
            let text = String::from_utf8_lossy(packet.get(3..).unwrap_or_default()).into_owned();
            let code = packet.get(1..3).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
            let busy = SERVER_ERRORS.contains(&code);
            let kind = if busy { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::Other };
            return Err(io::Error::new(kind, format!("the server refused the connection: {text}")));
        }
        _ => return Err(broken()),
    }
    let version =
        packet.get(1..).and_then(|rest| rest.iter().position(|byte| *byte == 0)).ok_or_else(broken)?;
    let at = version + 2;
    // Connection id, 8 bytes of the nonce, a zero, flags, character set, status, more flags, length of the
    // nonce, 10 reserved.
    let fixed = packet.get(at..at + 31).ok_or_else(broken)?;
    let (Some([a, b]), Some([c, d])) = (fixed.get(13..15), fixed.get(18..20)) else { return Err(broken()) };
    let flags = u32::from_le_bytes([*a, *b, *c, *d]);
    let mut rest = packet.get(at + 31..).unwrap_or_default();
    let mut built = packet.get(..at).unwrap_or_default().to_vec();
    built.extend(fixed.iter().enumerate().map(|(place, byte)| match place {
        19 => byte & !DEPRECATE_EOF.to_le_bytes()[3],
        20 => 21,
        _ => *byte,
    }));
    if flags & SECURE_CONNECTION != 0 {
        let nonce_length = usize::from(fixed.get(20).copied().unwrap_or_default()).saturating_sub(8).max(13);
        built.extend(rest.get(..12).ok_or_else(broken)?);
        built.push(0);
        rest = rest.get(nonce_length..).unwrap_or_default();
    }
    if flags & PLUGIN_AUTH != 0 {
        let plugin = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        let plugin = std::str::from_utf8(plugin).map_err(|_| broken())?;
        if !PLUGINS.contains(&plugin) {
            let shown = plugin.escape_debug();
            return Err(io::Error::other(format!(
                "unsupported authentication plugin `{shown}` of the server"
            )));
        }
        built.extend(plugin.bytes());
        built.push(0);
    }
    Ok(built)
}

/// Returns the length from a packet's header.
fn length(header: [u8; 4]) -> usize {
    let [a, b, c, _] = header;
    usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16
}

/// Forwards bytes in both directions until one side closes.
async fn relay(client: UnixStream, server: TcpStream, greeting: &[u8], is_encrypted: bool) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    to_client.write_all(greeting).await?;
    let downward = async {
        let mut packets = Packets::default();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = from_server.read(&mut buffer).await?;
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            if !is_encrypted {
                packets.take(bytes)?;
            }
            to_client.write_all(bytes).await?;
        }
    };
    tokio::select! {
        ended = downward => ended,
        ended = tokio::io::copy(&mut from_client, &mut to_server) => {
            ended?;
            to_server.shutdown().await
        }
    }
}

/// Tracks the packets of a stream.
///
/// The library allocates memory for as many columns as a server announces. A count of over 65,535 is a packet
/// of 4 bytes that starts with `0xfd`, or of 9 bytes that starts with `0xfe`; no other packet has this form.
#[derive(Default)]
struct Packets {
    header: [u8; 4],
    /// Number of header bytes received.
    have: usize,
    /// Number of bytes of the part not received yet.
    missing: usize,
    /// Size of the packet, which may have several parts.
    whole: usize,
    /// Whether the next byte is the first of a packet.
    is_first: bool,
}

impl Packets {
    /// Processes received bytes.
    ///
    /// # Errors
    /// If a packet is too long, or a result has too many columns.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let [first, rest @ ..] = bytes {
            if self.missing > 0 {
                let is_count = matches!((self.missing, *first), (4, 0xfd) | (9, 0xfe));
                if std::mem::take(&mut self.is_first) && is_count {
                    return Err(io::Error::other("the server announces a result of over 65,535 columns"));
                }
                let passed = self.missing.min(bytes.len());
                self.missing -= passed;
                bytes = bytes.get(passed..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.header.get_mut(self.have) {
                *place = *first;
                self.have += 1;
                bytes = rest;
            }
            if self.have == self.header.len() {
                self.missing = length(self.header);
                self.is_first = self.whole == 0;
                self.whole += self.missing;
                self.have = 0;
                if self.whole > PACKET {
                    return Err(io::Error::other(format!(
                        "the server sends a packet of over {PACKET} bytes"
                    )));
                }
                if self.missing < PART {
                    self.whole = 0;
                }
            }
        }
        Ok(())
    }
}

impl MySqlSettings {
    /// Returns the connection options of this account.
    pub(in crate::sessions::sql) fn options(&self) -> MySqlConnectOptions {
        self.options_of(&self.user, &self.password)
    }

    /// Returns the connection options of another account on the server. Statements are not logged: they
    /// contain passwords of accounts, and texts of models.
    pub(super) fn options_of(&self, user: &str, password: &str) -> MySqlConnectOptions {
        let mode = match self.tls {
            Encryption::Disabled => MySqlSslMode::Disabled,
            Encryption::VerifyCa => MySqlSslMode::VerifyCa,
            Encryption::VerifyIdentity => MySqlSslMode::VerifyIdentity,
        };
        let options = MySqlConnectOptions::new().ssl_mode(mode);
        let options = match &self.ca {
            Some(file) => options.ssl_ca(file),
            None => options,
        };
        options
            .host(&self.host)
            .port(self.port)
            .username(user)
            .password(password)
            .statement_cache_capacity(1)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .disable_statement_logging()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A greeting of MariaDB that requests authentication with a plugin.
    fn of(plugin: &str) -> Vec<u8> {
        let mut packet = b"\x0a10.11.6-MariaDB\0".to_vec();
        packet.extend(
            b"\x07\0\0\0abcdefgh\0\xfe\xff\x2d\x02\0\xff\x80\x15\0\0\0\0\0\0\x1d\0\0\0ijklmnopqrst\0",
        );
        packet.extend(plugin.bytes());
        packet.push(0);
        packet
    }

    #[test]
    fn greetings_name_a_plugin_that_does_not_show_the_password() {
        for plugin in PLUGINS {
            assert_eq!(rebuilt(&of(plugin)).unwrap(), of(plugin));
        }
        let mut without_end = of(PLUGINS[0]);
        without_end[17 + 19] |= 1;
        assert_eq!(rebuilt(&without_end).unwrap(), of(PLUGINS[0]), "`DEPRECATE_EOF` is cleared");
        for plugin in ["mysql_clear_password", "mysql_clear_password\0mysql_native_password", "dialog", ""] {
            let refused = rebuilt(&of(plugin)).unwrap_err().to_string();
            assert!(refused.contains("unsupported authentication plugin"), "{refused}");
        }
        let mut trailing = of("mysql_native_password");
        trailing.extend(b"mysql_clear_password\0");
        assert_eq!(rebuilt(&trailing).unwrap(), of("mysql_native_password"));
        let mut long = of("mysql_native_password");
        long[17 + 20] = 0xff;
        assert!(rebuilt(&long).is_err(), "the plugin is read at the offset that the length implies");
    }

    #[test]
    fn statements_are_not_logged() {
        let settings = MySqlSettings::of_url("mysql://keeper:secret@127.0.0.1").unwrap();
        let options = format!("{:?}", settings.options());
        assert!(options.contains(" statements_level: Off, slow_statements_level: Off"), "{options}");
    }

    #[test]
    fn packets_are_bounded_however_they_arrive() {
        let mut stream = Vec::new();
        for _ in 0..3 {
            stream.extend([0xff, 0xff, 0xff, 0]);
            stream.extend(vec![0; PART]);
        }
        stream.extend([1, 0, 0, 0, 7]);
        let mut packets = Packets::default();
        assert!(packets.take(&stream).is_ok(), "48 MiB");
        assert!(stream.chunks(70_001).all(|chunk| packets.take(chunk).is_ok()), "and again");
        assert!((0..2).any(|_| packets.take(&stream[..stream.len() - 5]).is_err()));
    }

    #[test]
    fn counts_of_columns_are_bounded() {
        for counts in [&[4, 0, 0, 1, 0xfd, 0, 0, 1][..], &[9, 0, 0, 1, 0xfe, 0, 0, 0, 0, 1, 0, 0, 0]] {
            assert!(Packets::default().take(counts).is_err());
            let mut packets = Packets::default();
            assert!(counts.chunks(1).any(|byte| packets.take(byte).is_err()));
        }
        let usual = [3, 0, 0, 1, 0xfc, 9, 0, 5, 0, 0, 1, 0xfe, 0, 0, 2, 0, 4, 0, 0, 2, 1, 0xfd, 0xfd, 0xfd];
        assert!(Packets::default().take(&usual).is_ok());
    }

    proptest! {
        #[test]
        fn any_greeting_is_read(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = rebuilt(&packet);
        }

        #[test]
        fn what_is_rebuilt_is_rebuilt_the_same(cut in 0usize..90, byte: u8, at in 1usize..90) {
            let mut packet = of("mysql_native_password");
            packet.truncate(packet.len().min(cut + 10));
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
            if let Ok(once) = rebuilt(&packet) {
                prop_assert_eq!(rebuilt(&once).unwrap(), once);
            }
        }
    }
}
