//! Encoding of message bodies: JSON, compressed when long, with a checksum and a protocol number. Also the rate-limited
//! warnings about messages of other senders, so that they cannot flood the log.

use std::cell::RefCell;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{HeaderMap, HeaderName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::QueueError;

/// Header with the protocol number of a message.
pub(super) const PROTOCOL: HeaderName = HeaderName::from_static("Lumos-Protocol");
/// Header with the compression of the body.
pub(super) const ENCODING: HeaderName = HeaderName::from_static("Lumos-Encoding");
/// Header with the name of the object that holds the body of a message above the size limit.
pub(super) const OBJECT: HeaderName = HeaderName::from_static("Lumos-Object");
/// Header with the [`checksum`] of a message.
pub(super) const CHECKSUM: HeaderName = HeaderName::from_static("Lumos-Checksum");
/// Header with the number of messages that a pull request left undelivered.
pub(super) const PENDING: HeaderName = HeaderName::from_static("Nats-Pending-Messages");

/// Size in bytes that most bodies do not exceed.
const USUAL: usize = 2048;
/// Bodies up to this size in bytes are not compressed: compressing them costs more than it saves.
const COMPRESSED_ABOVE: usize = 4096;
/// Compression level of zstd: the fastest one that is worthwhile.
const LEVEL: i32 = 1;

/// Whether the client can parse the headers of a stored message. The client drops its connection when it
/// receives headers that it cannot parse.
pub(super) fn is_readable(headers: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(headers) else { return false };
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return true };
    let status = first.strip_prefix("NATS/1.0").map(|rest| rest.split_whitespace().next());
    if status.is_none_or(|status| status.is_some_and(|status| status.parse::<u16>().is_err())) {
        return false;
    }
    lines.filter(|line| !line.is_empty()).enumerate().all(|(number, line)| {
        let goes_on = number > 0 && line.starts_with(char::is_whitespace);
        goes_on || line.split_once(':').is_some_and(|(name, _)| name.parse::<HeaderName>().is_ok())
    })
}

thread_local! {
    /// Reused, since creating a compressor costs about as much as compressing a short body.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    /// Reused for the same reason.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Bodies with a larger declared size (in bytes) are decompressed incrementally, without allocating the
/// declared size in advance.
const LONGEST_AT_ONCE: u64 = 1 << 20;

/// Encodes the body of message `id`. Returns the bytes and their encoding.
pub(super) fn encoded<T: Serialize>(
    id: &str,
    body: &T,
    limit: usize,
) -> Result<(Vec<u8>, Option<&'static str>), QueueError> {
    let failed = |error: io::Error| QueueError::Refused(format!("failed to encode message `{id}`: {error}"));
    let mut plain = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut plain, body).map_err(|error| failed(error.into()))?;
    if plain.len() > limit {
        return Err(QueueError::TooLarge { id: id.to_owned(), bytes: plain.len(), limit });
    }
    if plain.len() <= COMPRESSED_ABOVE {
        return Ok((plain, None));
    }
    Ok((compress(&plain).map_err(failed)?, Some("zstd")))
}

fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(plain),
        None => kept.insert(zstd::bulk::Compressor::new(LEVEL)?).compress(plain),
    })
}

/// Returns the decoded size in bytes that a message declares: that of its compressed frame, or that of an
/// uncompressed body. At most `limit`, because a larger body is not decoded completely. A frame that declares no
/// size counts as `limit`. [`decoded`] never produces more than `limit`, nor more than the frame declares.
pub(super) fn declared_size(headers: Option<&HeaderMap>, bytes: &[u8], limit: usize) -> usize {
    let declared = match header(headers, ENCODING) {
        Some("zstd") => frame_size(bytes).map_or(limit, |size| usize::try_from(size).unwrap_or(limit)),
        _ => bytes.len(),
    };
    declared.min(limit)
}

/// Returns the decompressed size in bytes that a frame declares; `None` if it declares none or is invalid.
fn frame_size(bytes: &[u8]) -> Option<u64> {
    zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten()
}

/// Decompresses a body. If the result exceeds `limit` bytes, only a prefix longer than `limit` may be
/// returned. Fails if the result is longer than the body declares, for example because another frame follows.
fn decompress(bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    match frame_size(bytes) {
        Some(length) if length <= most.min(LONGEST_AT_ONCE) => {
            DECOMPRESSOR.with_borrow_mut(|kept| match kept {
                Some(decompressor) => decompressor.decompress(bytes, length as usize),
                None => kept.insert(zstd::bulk::Decompressor::new()?).decompress(bytes, length as usize),
            })
        }
        declared => {
            let most = declared.map_or(most, |length| length.min(most));
            let mut plain = Vec::new();
            let decoder = zstd::stream::read::Decoder::new(bytes)?;
            let read = decoder.take(most.saturating_add(1)).read_to_end(&mut plain)?;
            if read > usize::try_from(most).unwrap_or(usize::MAX) && read <= limit {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than declared"));
            }
            Ok(plain)
        }
    }
}

/// Problem with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It cannot be decoded.
    Undecodable,
    /// It uses another protocol.
    Protocol,
    /// Its body is larger than allowed.
    TooLarge,
    /// Its body is missing from the object store, or corrupt.
    Body,
    /// The object store currently does not return its body.
    Unavailable,
    /// Its lease could not be returned immediately.
    Release,
    /// Its content differs from what was published.
    Damaged,
}

const KINDS: usize = 7;
const QUIET: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default)]
struct Said {
    at: Option<Instant>,
    since: u64,
}

/// Logs at most one warning per kind in ten seconds, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: Mutex<[Said; KINDS]>,
}

impl Complaints {
    pub(super) fn warn(&self, kind: Kind, subject: &str, why: &str) {
        let now = Instant::now();
        let unsaid = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let said = &mut said[kind as usize];
            if said.at.is_some_and(|at| now.duration_since(at) < QUIET) {
                said.since += 1;
                return;
            }
            said.at = Some(now);
            std::mem::take(&mut said.since)
        };
        // The subject is chosen by the publisher and may contain control characters.
        let subject: String = subject.chars().filter(|letter| !letter.is_control()).take(200).collect();
        tracing::warn!(subject, unsaid, "{why}");
    }
}

/// Why a message is not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) kind: Kind,
    pub(super) why: String,
}

impl Unfit {
    pub(super) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }
}

/// Returns the SHA-256, in hexadecimal, of a message's id, the encoding of its body, and its body, wherever
/// that is stored. The publisher computes it and the claimer verifies it, so that a change in between is
/// detected: TCP's checksum misses some errors, and proxies and disks can corrupt data.
pub(super) fn checksum(id: &str, encoding: Option<&str>, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [id, encoding.unwrap_or_default()] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(body);
    hex::encode(hash.finalize())
}

/// Verifies the checksum of a message.
pub(super) fn check_content(headers: Option<&HeaderMap>, id: &str, body: &[u8]) -> Result<(), Unfit> {
    let why = match header(headers, CHECKSUM) {
        Some(claimed) if claimed == checksum(id, header(headers, ENCODING), body) => return Ok(()),
        Some(_) => "the content of a message does not match its checksum",
        None => "a message has no checksum",
    };
    Err(Unfit::new(Kind::Damaged, why))
}

/// Checks that a message uses protocol `protocol`.
pub(super) fn check_protocol(headers: Option<&HeaderMap>, protocol: u32) -> Result<(), Unfit> {
    let said = header(headers, PROTOCOL);
    match said.map(str::parse::<u32>) {
        Some(Ok(number)) if number == protocol => Ok(()),
        Some(Ok(number)) => Err(Unfit::new(
            Kind::Protocol,
            format!("message uses protocol {number}, this version of lumos uses protocol {protocol}"),
        )),
        // Publishers always set the header, so it was probably corrupted in transit.
        Some(Err(_)) | None => Err(Unfit::new(Kind::Damaged, "a message has no protocol number")),
    }
}

pub(super) fn header(headers: Option<&HeaderMap>, name: HeaderName) -> Option<&str> {
    headers.and_then(|headers| headers.get(name)).map(async_nats::HeaderValue::as_str)
}

/// Decodes the body of a message. Decompresses at most `limit` + 1 bytes, whatever size the message declares.
pub(super) fn decoded<T: DeserializeOwned>(
    headers: Option<&HeaderMap>,
    bytes: &[u8],
    limit: usize,
) -> Result<T, Unfit> {
    let undecodable = |why: String| Unfit::new(Kind::Undecodable, why);
    let too_large = || Unfit::new(Kind::TooLarge, format!("the body of a message exceeds {limit} bytes"));
    let parsed = match header(headers, ENCODING) {
        None if bytes.len() > limit => return Err(too_large()),
        None => serde_json::from_slice(bytes),
        Some("zstd") => {
            let plain = decompress(bytes, limit).map_err(|error| {
                undecodable(format!("failed to decompress the body of a message: {error}"))
            })?;
            if plain.len() > limit {
                return Err(too_large());
            }
            serde_json::from_slice(&plain)
        }
        Some(_) => {
            return Err(undecodable("unknown encoding of the body of a message".to_owned()));
        }
    };
    parsed.map_err(|error| undecodable(format!("invalid body of a message: {error}")))
}

/// Decodes the body of a message as received from the server: the entry point of a fuzz target.
pub fn fuzz_decoded<T: DeserializeOwned>(compressed: bool, bytes: &[u8], limit: usize) -> Option<T> {
    let mut headers = HeaderMap::new();
    if compressed {
        headers.insert(ENCODING, "zstd");
    }
    decoded(Some(&headers), bytes, limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(encoding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ENCODING, encoding);
        headers
    }

    #[test]
    fn long_bodies_are_compressed_and_come_back() {
        let body = "lumos ".repeat(2000);
        let (bytes, encoding) = encoded("a", &body, 1 << 20).unwrap();
        assert!(encoding == Some("zstd") && bytes.len() < 1000);
        assert_eq!(decoded::<String>(Some(&headers("zstd")), &bytes, 1 << 20).unwrap(), body);
        let (bytes, encoding) = encoded("a", &7, 10).unwrap();
        assert_eq!(encoding, None);
        assert_eq!(decoded::<u32>(None, &bytes, 10).unwrap(), 7);
        assert!(matches!(encoded("a", &body, 100), Err(QueueError::TooLarge { limit: 100, .. })));
        let long = "lumos ".repeat(400_000);
        let (bytes, _) = encoded("a", &long, 1 << 22).unwrap();
        assert_eq!(decoded::<String>(Some(&headers("zstd")), &bytes, 1 << 22).unwrap(), long);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (id, body) = ("unit-1", br#"{"question":"How many pears?"}"#);
        let with = |claimed: &str, encoding: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(CHECKSUM, claimed);
            if let Some(encoding) = encoding {
                headers.insert(ENCODING, encoding);
            }
            headers
        };
        let plain = checksum(id, None, body);
        assert_eq!(check_content(Some(&with(&plain, None)), id, body), Ok(()));
        for bit in 0..body.len() * 8 {
            let mut flipped = body.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let unfit = check_content(Some(&with(&plain, None)), id, &flipped).unwrap_err();
            assert_eq!(unfit.kind, Kind::Damaged);
        }
        assert!(check_content(Some(&with(&plain, None)), "unit-2", body).is_err());
        assert!(check_content(Some(&with(&plain, Some("zstd"))), id, body).is_err());
        assert!(check_content(Some(&HeaderMap::new()), id, body).is_err());
        assert!(check_content(None, id, body).is_err());
    }

    #[test]
    fn the_decoded_size_is_known_before_decoding() {
        let limit = 16 << 20;
        let (bytes, _) = encoded("a", &" ".repeat(9 << 20), limit).unwrap();
        assert!(bytes.len() < 1 << 16);
        assert_eq!(declared_size(Some(&headers("zstd")), &bytes, limit), (9 << 20) + 2);
        assert_eq!(declared_size(Some(&headers("zstd")), &bytes, 1 << 20), 1 << 20);
        assert_eq!(declared_size(None, b"12345678", limit), 8);
        // A frame of another program that declares no size, or an invalid one.
        let silent = zstd::stream::encode_all(b"7".as_slice(), 1).unwrap();
        assert_eq!(frame_size(&silent), None);
        for bytes in [silent.as_slice(), b"no"] {
            assert_eq!(declared_size(Some(&headers("zstd")), bytes, limit), limit);
        }
        assert_eq!(decoded::<u32>(Some(&headers("zstd")), &silent, limit).unwrap(), 7);
    }

    #[test]
    fn what_is_longer_than_declared_is_not_decoded() {
        let limit = 16 << 20;
        let frame = |bytes: usize| zstd::bulk::compress(&vec![b' '; bytes], 1).unwrap();
        for first in [5_000, 2 << 20] {
            let both = [frame(first), frame(8 << 20)].concat();
            assert_eq!(declared_size(Some(&headers("zstd")), &both, limit), first);
            let unfit = decoded::<u32>(Some(&headers("zstd")), &both, limit).unwrap_err();
            assert_eq!(unfit.kind, Kind::Undecodable, "{unfit:?}");
            assert!(decompress(&both, limit).is_err());
        }
        assert_eq!(decompress(&frame(2 << 20), limit).unwrap().len(), 2 << 20);
        assert_eq!(decompress(&frame(2 << 20), 2 << 20).unwrap().len(), 2 << 20);
    }

    #[test]
    fn what_decompresses_to_more_than_allowed_is_not_held() {
        let bomb = zstd::bulk::compress(&vec![b' '; 64 << 20], 19).unwrap();
        assert!(bomb.len() < 1 << 16);
        assert_eq!(decoded::<u32>(Some(&headers("zstd")), &bomb, 1 << 20).unwrap_err().kind, Kind::TooLarge);
        let small = zstd::bulk::compress(&vec![b' '; 5000], 1).unwrap();
        let cut = &small[..small.len() - 1];
        for (encoding, bytes) in
            [("zstd", b"no".as_slice()), ("br", b"1"), ("zstd", &bomb[..20]), ("zstd", cut)]
        {
            let unfit = decoded::<u32>(Some(&headers(encoding)), bytes, 1 << 20).unwrap_err();
            assert_eq!(unfit.kind, Kind::Undecodable);
        }
        let deep = "[".repeat(100_000);
        assert!(decoded::<serde_json::Value>(None, deep.as_bytes(), 1 << 20).is_err());
        assert_eq!(decoded::<u32>(None, b"12345678", 4).unwrap_err().kind, Kind::TooLarge);
    }
}
