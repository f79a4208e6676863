//! A server that speaks as much of MySQL's protocol as it is given, and records what it is sent. The program's own tests
//! use it as well.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A packet with its header.
pub(crate) fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[length[0], length[1], length[2], number], payload].concat()
}

/// A greeting that asks for the password by a plugin, with TLS on offer or not.
pub(crate) fn greeting(plugin: &str, has_tls: bool) -> Vec<u8> {
    let flags = if has_tls { 0xfe } else { 0xf6 };
    let mut payload = b"\x0a10.11.6-MariaDB\0\x07\0\0\0abcdefgh\0\xfe".to_vec();
    payload.push(flags);
    payload.extend(b"\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0ijklmnopqrst\0");
    payload.extend(plugin.bytes());
    payload.push(0);
    packet(0, &payload)
}

/// A request for another plugin.
pub(crate) fn switch(plugin: &str) -> Vec<u8> {
    packet(2, &[b"\xfe", plugin.as_bytes(), b"\0abcdefghijklmnopqrst\0"].concat())
}

/// Serves what is given, a piece after each thing the client sends, and remembers what it was sent.
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
