//! Bodies on the wire: JSON, compressed when long.

use std::cell::RefCell;
use std::io::{self, Read};

use async_nats::{HeaderMap, HeaderName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::complaints::Kind;

/// Names the protocol of a message.
pub(super) const PROTOCOL: HeaderName = HeaderName::from_static("Lumos-Protocol");
/// Names how the body is compressed.
pub(super) const ENCODING: HeaderName = HeaderName::from_static("Lumos-Encoding");
/// Names the object that holds the body of a message too large to hold it itself.
pub(super) const OBJECT: HeaderName = HeaderName::from_static("Lumos-Object");
/// Names how many messages a request left unanswered.
pub(super) const PENDING: HeaderName = HeaderName::from_static("Nats-Pending-Messages");

/// Bytes that most bodies stay within.
const USUAL: usize = 2048;
/// Bodies up to this are sent as they are: compressing them costs more than it saves.
const COMPRESSED_ABOVE: usize = 4096;
/// The fastest that is worth it.
const LEVEL: i32 = 1;

thread_local! {
    /// Making a compressor costs about as much as compressing a short body.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    /// The same holds for a decompressor.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// A body that says it is longer is read piece by piece instead of into memory set aside for all of it.
const LONGEST_AT_ONCE: u64 = 1 << 20;

/// A body ready to be sent.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) compressed: bool,
}

/// Why a body cannot be sent.
pub(super) enum Unsendable {
    /// Its length, which is above the limit.
    TooLarge(usize),
    /// It is no JSON.
    Failed(String),
}

pub(super) fn encoded<T: Serialize>(body: &T, limit: usize) -> Result<Encoded, Unsendable> {
    let mut plain = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut plain, body).map_err(|error| Unsendable::Failed(error.to_string()))?;
    if plain.len() > limit {
        return Err(Unsendable::TooLarge(plain.len()));
    }
    if plain.len() <= COMPRESSED_ABOVE {
        return Ok(Encoded { bytes: plain, compressed: false });
    }
    let bytes = compress(&plain).map_err(|error| Unsendable::Failed(error.to_string()))?;
    Ok(Encoded { bytes, compressed: true })
}

fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(plain),
        None => kept.insert(zstd::bulk::Compressor::new(LEVEL)?).compress(plain),
    })
}

/// What was compressed, or its beginning with more than `limit` bytes.
fn decompress(bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    match zstd::zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(length)) if length <= most.min(LONGEST_AT_ONCE) => {
            DECOMPRESSOR.with_borrow_mut(|kept| match kept {
                Some(decompressor) => decompressor.decompress(bytes, length as usize),
                None => kept.insert(zstd::bulk::Decompressor::new()?).decompress(bytes, length as usize),
            })
        }
        _ => {
            let mut plain = Vec::new();
            let decoder = zstd::stream::read::Decoder::new(bytes)?;
            decoder.take(most.saturating_add(1)).read_to_end(&mut plain)?;
            Ok(plain)
        }
    }
}

/// Why a message is not given to anyone.
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

/// Whether a message speaks our protocol.
pub(super) fn check_protocol(headers: Option<&HeaderMap>, protocol: u32) -> Result<(), Unfit> {
    let said = header(headers, PROTOCOL);
    match said.map(str::parse::<u32>) {
        Some(Ok(number)) if number == protocol => Ok(()),
        Some(Ok(number)) => Err(Unfit::new(
            Kind::Protocol,
            format!("a message speaks protocol {number}, this is protocol {protocol}: left to others"),
        )),
        Some(Err(_)) | None => Err(Unfit::new(Kind::Undecodable, "a message names no protocol: dropped")),
    }
}

pub(super) fn header(headers: Option<&HeaderMap>, name: HeaderName) -> Option<&str> {
    headers.and_then(|headers| headers.get(name)).map(async_nats::HeaderValue::as_str)
}

/// The body of a message; never holds more than `limit` bytes, whatever the message claims.
pub(super) fn decoded<T: DeserializeOwned>(
    headers: Option<&HeaderMap>,
    bytes: &[u8],
    limit: usize,
) -> Result<T, Unfit> {
    let undecodable = |why: String| Unfit::new(Kind::Undecodable, why);
    let too_large =
        || Unfit::new(Kind::TooLarge, format!("a message has a body above {limit} bytes: dropped"));
    let parsed = match header(headers, ENCODING) {
        None if bytes.len() > limit => return Err(too_large()),
        None => serde_json::from_slice(bytes),
        Some("zstd") => {
            let plain = decompress(bytes, limit).map_err(|error| {
                undecodable(format!("a message's body cannot be decompressed: {error}: dropped"))
            })?;
            if plain.len() > limit {
                return Err(too_large());
            }
            serde_json::from_slice(&plain)
        }
        Some(_) => {
            return Err(undecodable("a message's body is encoded in an unknown way: dropped".to_owned()));
        }
    };
    parsed.map_err(|error| undecodable(format!("a message's body is not what is expected: {error}: dropped")))
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
        let sent = encoded(&body, 1 << 20).ok().unwrap();
        assert!(sent.compressed && sent.bytes.len() < 1000);
        assert_eq!(decoded::<String>(Some(&headers("zstd")), &sent.bytes, 1 << 20).unwrap(), body);
        let short = encoded(&7, 10).ok().unwrap();
        assert!(!short.compressed);
        assert_eq!(decoded::<u32>(None, &short.bytes, 10).unwrap(), 7);
        assert!(matches!(encoded(&body, 100), Err(Unsendable::TooLarge(_))));
        let long = "lumos ".repeat(400_000);
        let sent = encoded(&long, 1 << 22).ok().unwrap();
        assert_eq!(decoded::<String>(Some(&headers("zstd")), &sent.bytes, 1 << 22).unwrap(), long);
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
