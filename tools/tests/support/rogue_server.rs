//! A server that sends given pieces of MySQL's protocol, and records what it receives. Also used by the tests
//! of the program.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A packet with its header.
pub(crate) fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[length[0], length[1], length[2], number], payload].concat()
}

/// Returns a greeting that requests the password with a plugin, and offers TLS with `has_tls`.
pub(crate) fn greeting(plugin: &str, has_tls: bool) -> Vec<u8> {
    let flags = if has_tls { 0xfe } else { 0xf6 };
    let mut payload = b"\x0a10.11.6-MariaDB\0\x07\0\0\0abcdefgh\0\xfe".to_vec();
    payload.push(flags);
    payload.extend(b"\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0ijklmnopqrst\0");
    payload.extend(plugin.bytes());
    payload.push(0);
    packet(0, &payload)
}

/// Returns a request to switch to another plugin.
pub(crate) fn switch(plugin: &str) -> Vec<u8> {
    packet(2, &[b"\xfe", plugin.as_bytes(), b"\0abcdefghijklmnopqrst\0"].concat())
}

/// Sends the pieces, one before each read from the client, and records what it receives. Returns the port and
/// the record.
pub(crate) async fn serve(pieces: Vec<Vec<u8>>) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (pieces, recorded) = (pieces.clone(), Arc::clone(&recorded));
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                let mut pieces = pieces.into_iter();
                loop {
                    if let Some(piece) = pieces.next()
                        && client.write_all(&piece).await.is_err()
                    {
                        return;
                    }
                    match client.read(&mut buffer).await {
                        Ok(count) if count > 0 => recorded.lock().unwrap().extend(&buffer[..count]),
                        _ => return,
                    }
                }
            });
        }
    });
    (port, heard)
}
