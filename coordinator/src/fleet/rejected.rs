//! Stores result messages that are damaged or of another protocol version: moves them from the server to
//! `rejected.jsonl` in the run's folder.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use lumos_queue::nats::Rejected;
use serde_json::json;
use tokio::sync::mpsc;

use super::Around;

/// Capacity of the channel to the file.
pub(super) const WAITING: usize = 16;
/// Maximum size of the file in bytes. Further messages are removed from the server and not stored.
const LARGEST: u64 = 16 << 20;
/// Delay before a message that could not be stored is retried.
const AGAIN: Duration = Duration::from_secs(5);

/// Stores rejected messages until the session ends.
pub(super) async fn keep(around: Around, folder: PathBuf, mut rejected: mpsc::Receiver<Rejected>) {
    let path = folder.join("rejected.jsonl");
    loop {
        let message = tokio::select! {
            message = rejected.recv() => message,
            () = around.over.cancelled() => return,
        };
        let Some(message) = message else { return };
        let (line, file) = (line(&message), path.clone());
        let kept = tokio::task::spawn_blocking(move || append(&file, &line)).await;
        let id: String = message.id().chars().take(200).collect();
        let why = message.why().to_owned();
        match kept.map_err(io::Error::other).and_then(|kept| kept) {
            Ok(true) => {
                tracing::warn!("rejected result message `{id}`: {why}; saved in `{}`", path.display());
            }
            Ok(false) => {
                tracing::warn!("dropped result message `{id}`: {why}; `{}` is full", path.display());
            }
            Err(error) => {
                tracing::warn!(
                    "failed to save rejected result message `{id}` ({why}) in `{}`: {error}",
                    path.display()
                );
                message.leave(AGAIN);
                continue;
            }
        }
        if let Err(error) = message.take_out().await {
            tracing::debug!(%error, id, "failed to remove a rejected message; it is redelivered");
        }
    }
}

/// Formats a message as a line of JSON. A body that is not UTF-8 is written in hexadecimal.
fn line(message: &Rejected) -> Vec<u8> {
    let headers: serde_json::Map<String, serde_json::Value> =
        message.headers().iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let body = match std::str::from_utf8(message.body()) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "hex": hex::encode(message.body()) }),
    };
    let value = json!({
        "id": message.id(), "why": message.why(), "received": Timestamp::now(), "headers": headers, "body": body,
    });
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Appends a line to a file and flushes it. Returns false if the file has reached its maximum size.
fn append(path: &Path, line: &[u8]) -> io::Result<bool> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    if file.metadata()?.len() + line.len() as u64 > LARGEST {
        return Ok(false);
    }
    file.write_all(line)?;
    file.sync_data()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_grows_line_by_line_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rejected.jsonl");
        assert!(append(&path, b"{}\n").unwrap());
        assert!(append(&path, b"{}\n").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\n{}\n");
        let large = vec![b'x'; usize::try_from(LARGEST).unwrap()];
        assert!(!append(&path, &large).unwrap());
        assert_eq!(std::fs::read(&path).unwrap().len(), 6);
    }
}
