//! Decodes messages and notices of the queue: work, results, workers, runs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_tasks::fleet::{
    ClaimNotice, ResultBatch, RunNotice, RunStatus, SharedInputs, WorkMessage, WorkerNotice,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a message's body after decompression.
const LIMIT: usize = 1 << 20;

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (kind, compressed, body) = input;
    match kind % 7 {
        0 => {
            if let Some(message) = read::<WorkMessage>(compressed, body) {
                let _ = message.message_id();
                let _ = message.unpack(|_| None);
            }
        }
        1 => {
            if let Some(batch) = read::<ResultBatch>(compressed, body) {
                let _ = batch.message_id();
            }
        }
        2 => drop(read::<WorkerNotice>(compressed, body)),
        3 => drop(read::<ClaimNotice>(compressed, body)),
        4 => drop(read::<RunNotice>(compressed, body)),
        5 => drop(read::<RunStatus>(compressed, body)),
        _ => {
            if let Some(inputs) = read::<SharedInputs>(compressed, body) {
                let _ = inputs.by_identity();
            }
        }
    }
});

/// Reads a body like the queue. A value that can be read can be written and read again.
fn read<T: DeserializeOwned + Serialize>(compressed: bool, body: &[u8]) -> Option<T> {
    let value: T = lumos_queue::fuzzing::decoded(compressed, body, LIMIT)?;
    let written = serde_json::to_vec(&value).expect("failed to write a message");
    let again: Result<T, _> = serde_json::from_slice(&written);
    assert!(again.is_ok(), "{:?}", again.err());
    Some(value)
}
