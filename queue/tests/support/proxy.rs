//! A TCP proxy between a client and its server that injects faults: it flips bits, delays data, cuts
//! connections in the middle of a message, duplicates messages, and blocks all data. Tests of other crates
//! include this file with `#[path]`.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Direction of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Flips one bit in the next `times` occurrences of some bytes.
#[derive(Debug, Clone)]
struct Flip {
    direction: Direction,
    needle: Vec<u8>,
    /// Offset from the start of the needle, in bytes.
    offset: usize,
    times: u64,
}

#[derive(Debug, Default)]
struct Faults {
    flips: Mutex<Vec<Flip>>,
    flipped: AtomicU64,
    /// Delay of all data, in milliseconds.
    delay: AtomicU64,
    /// Remaining bytes before all connections are cut; 0 for no cut.
    cut_after: AtomicU64,
    /// Remaining bytes, in either direction, before one bit is flipped.
    flip_after: Mutex<Vec<u64>>,
    /// Number of reads starting with a NATS message that are still to be sent twice.
    twice: AtomicU64,
    doubled: AtomicU64,
    /// Whether all data is blocked while connections stay open.
    held: AtomicBool,
    refuse: AtomicBool,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// A proxy in front of a server. Stops when dropped.
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    pub fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(client), false) = (client, shared.refuse.load(Ordering::Relaxed)) else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                let both = (client.try_clone(), server.try_clone());
                let (Ok(client_again), Ok(server_again)) = both else { continue };
                shared
                    .open
                    .lock()
                    .unwrap()
                    .extend([client.try_clone(), server.try_clone()].into_iter().flatten());
                for (from, to, direction) in
                    [(client, server_again, Direction::ToServer), (server, client_again, Direction::ToClient)]
                {
                    let faults = Arc::clone(&shared);
                    std::thread::spawn(move || pump(from, to, direction, &faults));
                }
            }
        });
        Self { address, faults, accepting: Some(accepting) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Flips one bit in the next `times` occurrences of `needle` in this direction.
    pub fn flip(&self, direction: Direction, needle: &str, times: u64) {
        self.flip_behind(direction, needle.as_bytes(), needle.len() / 2, times);
    }

    /// Like `flip`, at `offset` bytes from the start of each occurrence.
    pub fn flip_behind(&self, direction: Direction, needle: &[u8], offset: usize, times: u64) {
        let needle = needle.to_vec();
        self.faults.flips.lock().unwrap().push(Flip { direction, needle, offset, times });
    }

    /// Flips one bit after each of these numbers of further bytes, in either direction.
    pub fn flip_after(&self, bytes: &[u64]) {
        self.faults.flip_after.lock().unwrap().extend(bytes);
    }

    /// Sends the next `messages` NATS messages twice, in either direction.
    pub fn send_twice(&self, messages: u64) {
        self.faults.twice.store(messages, Ordering::Relaxed);
    }

    /// Returns the number of messages sent twice so far.
    pub fn doubled(&self) -> u64 {
        self.faults.doubled.load(Ordering::Relaxed)
    }

    /// Blocks all data, like a network that drops all packets, until called with `false`.
    pub fn hold(&self, hold: bool) {
        self.faults.held.store(hold, Ordering::Relaxed);
    }

    /// Removes all faults.
    pub fn calm(&self) {
        self.cut(false);
        self.hold(false);
        self.delay(Duration::ZERO);
        self.send_twice(0);
        self.faults.cut_after.store(0, Ordering::Relaxed);
        self.faults.flips.lock().unwrap().clear();
        self.faults.flip_after.lock().unwrap().clear();
    }

    /// Returns the number of bits flipped so far.
    pub fn flipped(&self) -> u64 {
        self.faults.flipped.load(Ordering::Relaxed)
    }

    /// Delays all data from now on.
    pub fn delay(&self, delay: Duration) {
        self.faults.delay.store(u64::try_from(delay.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Cuts all connections after `bytes` further bytes, so that the data being sent arrives in part.
    pub fn cut_after(&self, bytes: u64) {
        self.faults.cut_after.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Cuts all connections, and rejects new ones until called with `false`.
    pub fn cut(&self, cut: bool) {
        self.faults.refuse.store(cut, Ordering::Relaxed);
        if cut {
            self.faults.close_all();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.ended.store(true, Ordering::Relaxed);
        self.calm();
        self.faults.close_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Faults {
    fn close_all(&self) {
        for open in self.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// Applies the flips of `flip` to some bytes.
    fn flip(&self, direction: Direction, bytes: &mut [u8]) {
        for flip in self.flips.lock().unwrap().iter_mut().filter(|flip| flip.direction == direction) {
            let mut from = 0;
            while flip.times > 0 {
                let rest = &bytes[from..];
                let Some(found) = rest.windows(flip.needle.len()).position(|window| window == flip.needle)
                else {
                    break;
                };
                let place = from + found + flip.offset;
                // A byte in the next read is left unchanged.
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1;
                    flip.times -= 1;
                    self.flipped.fetch_add(1, Ordering::Relaxed);
                }
                from = (place + 1).min(bytes.len());
            }
        }
    }

    /// Applies the flips of `flip_after` that are due within these bytes.
    fn flip_within(&self, bytes: &mut [u8]) {
        let count = bytes.len() as u64;
        self.flip_after.lock().unwrap().retain_mut(|left| {
            if *left >= count {
                *left -= count;
                return true;
            }
            bytes[usize::try_from(*left).unwrap_or(0)] ^= 1 << (*left % 7);
            self.flipped.fetch_add(1, Ordering::Relaxed);
            false
        });
    }

    /// Returns whether to send these bytes twice: only complete messages, as far as they can be recognised.
    fn sends_twice(&self, bytes: &[u8]) -> bool {
        let message = [&b"PUB "[..], b"HPUB ", b"MSG ", b"HMSG "].iter().any(|verb| bytes.starts_with(verb));
        let less = |left: u64| left.checked_sub(1);
        let twice = message
            && bytes.ends_with(b"\r\n")
            && self.twice.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.doubled.fetch_add(u64::from(twice), Ordering::Relaxed);
        twice
    }

    /// Returns how many of these bytes are forwarded, if a cut is due within them.
    fn cut_within(&self, bytes: usize) -> Option<usize> {
        let left = self.cut_after.load(Ordering::Relaxed);
        if left == 0 {
            return None;
        }
        let bytes = bytes as u64;
        if bytes < left {
            self.cut_after.store(left - bytes, Ordering::Relaxed);
            return None;
        }
        self.cut_after.store(0, Ordering::Relaxed);
        usize::try_from(left - 1).ok()
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, direction: Direction, faults: &Faults) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        faults.flip(direction, bytes);
        faults.flip_within(bytes);
        let delay = faults.delay.load(Ordering::Relaxed);
        if delay > 0 {
            std::thread::sleep(Duration::from_millis(delay));
        }
        if let Some(passing) = faults.cut_within(count) {
            let _ = to.write_all(&bytes[..passing]);
            faults.close_all();
            break;
        }
        while faults.held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(bytes).is_err() || faults.sends_twice(bytes) && to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
