//! Tests with invalid messages from other programs: they are never delivered, never cause a panic, and do not
//! block other messages.

use async_nats::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

/// Computes the checksum that a lumos publisher sets.
fn checksum(id: &str, encoding: &str, body: &[u8]) -> String {
    let hash = Sha256::new().chain_update(id).chain_update([0]).chain_update(encoding).chain_update([0]);
    hex::encode(hash.chain_update(body).finalize())
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.insert(*name, *value);
    }
    headers
}

on_servers! {
    async fn hostile_messages_are_dropped(program) {
        let bench = Bench::new(program, Layout { body_limit: 1 << 20, ..Layout::default() }).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        let plain = bench.plain().await;
        let bomb = zstd::bulk::compress(&vec![b'1'; 256 << 20], 3).unwrap();
        let good = ("Lumos-Protocol", "2");
        let hostile: Vec<(&str, HeaderMap, Vec<u8>)> = vec![
            ("nojson", headers(&[good]), b"{".to_vec()),
            ("otherkind", headers(&[good]), b"\"text\"".to_vec()),
            ("nothing", headers(&[good]), Vec::new()),
            ("noprotocol", HeaderMap::new(), b"1".to_vec()),
            ("oddprotocol", headers(&[("Lumos-Protocol", "one")]), b"1".to_vec()),
            ("bomb", headers(&[good, ("Lumos-Encoding", "zstd")]), bomb),
            ("nozstd", headers(&[good, ("Lumos-Encoding", "zstd")]), b"1".to_vec()),
            ("noencoding", headers(&[good, ("Lumos-Encoding", "rot13")]), b"1".to_vec()),
            ("binary", headers(&[good]), vec![0xff; 100]),
            ("deep", headers(&[good]), "[".repeat(100_000).into_bytes()),
            ("sub.id", headers(&[good]), b"1".to_vec()),
            ("ünicode", headers(&[good]), b"1".to_vec()),
        ];
        for (id, mut headers, body) in hostile {
            // All but one have a valid checksum.
            if id != "nothing" {
                let encoding = headers.get("Lumos-Encoding").map_or("", |encoding| encoding.as_str());
                let last = id.rsplit('.').next().unwrap();
                headers.insert("Lumos-Checksum", checksum(last, encoding, &body));
            }
            let subject = format!("lumos.2.work.00000000000000aa.5.{RUN}.{id}");
            plain.publish_with_headers(subject, headers, body.into()).await.unwrap();
        }
        plain.flush().await.unwrap();
        publisher.publish("fine", 7).await.unwrap();
        // `sub.id` is delivered as message `id`, since the id is the last token of the subject.
        let mut seen = Vec::new();
        let taking = async {
            loop {
                for lease in consumer.claim(4).await.unwrap() {
                    seen.push((lease.id().to_owned(), *lease.body()));
                    lease.acknowledge().await.unwrap();
                }
            }
        };
        tokio::select! {
            () = taking => {}
            () = eventually("the stream is empty", async || bench.connection.work_present(RUN).await.unwrap().is_empty()) => {}
        }
        seen.sort();
        assert_eq!(seen, [("fine".to_owned(), 7), ("id".to_owned(), 1)]);
    }

    async fn messages_with_damaged_headers_are_removed(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        // NATS clients do not send such headers.
        let mut raw = std::net::TcpStream::connect(bench.server.address()).unwrap();
        for (id, headers) in [
            ("nocolon", "NATS/1.0\r\nLumos-Protocol2\r\n\r\n"),
            ("noversion", "NAUS/1.0\r\nLumos-Protocol: 2\r\n\r\n"),
            ("noname", "NATS/1.0\r\nLumos Protocol: 2\r\n\r\n"),
        ] {
            let subject = format!("lumos.2.work.00000000000000aa.5.{RUN}.{id}");
            let all = headers.len() + 1;
            let text = format!("HPUB {subject} {} {all}\r\n{headers}1\r\n", headers.len());
            let text = if id == "nocolon" { format!("CONNECT {{\"headers\":true}}\r\n{text}") } else { text };
            std::io::Write::write_all(&mut raw, text.as_bytes()).unwrap();
        }
        eventually("they are stored", async || bench.connection.work_present(RUN).await.unwrap().len() == 3).await;
        publisher.publish("fine", 7).await.unwrap();
        let mut removed = bench.connection.remove_unreadable(RUN).await.unwrap();
        removed.sort();
        assert_eq!(removed, ["nocolon", "noname", "noversion"]);
        let lease = claim_one(&consumer).await;
        assert_eq!((lease.id(), *lease.body()), ("fine", 7));
        assert!(bench.connection.remove_unreadable(RUN).await.unwrap().is_empty());
    }

    async fn another_protocol_is_left_to_others(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let consumer = bench.consumer_after_setup().await;
        let subject = format!("lumos.2.work.00000000000000aa.5.{RUN}.later");
        let headers = headers(&[("Lumos-Protocol", "3")]);
        bench.plain().await.request_with_headers(subject, headers, "1".into()).await.unwrap();
        assert!(timeout(Duration::from_millis(700), consumer.claim(1)).await.is_err());
        assert_eq!(bench.connection.work_present(RUN).await.unwrap().len(), 1);
    }

    async fn bodies_that_are_gone_or_false_are_dropped(program) {
        let bench = Bench::new(program, Layout { body_limit: 4 << 20, ..Layout::default() }).await;
        let (publisher, consumer) = (bench.publisher::<String>().await, bench.consumer::<String>().await);
        publisher.publish("false", super::queues::noise(2 << 20)).await.unwrap();
        let plain = bench.plain().await;
        let streams = async_nats::jetstream::new(plain.clone());
        let bodies = streams.get_stream("OBJ_lumos-2-payloads").await.unwrap();
        // Replaces the second chunk with other bytes.
        let chunk = bodies.get_raw_message(2).await.unwrap();
        bodies.delete_message(2).await.unwrap();
        plain.request(chunk.subject.to_string(), vec![b'x'; chunk.payload.len()].into()).await.unwrap();
        // A valid body in chunks of one byte, each of which would take a request.
        for chunk in ["\"", "a", "\""] {
            plain.request("$O.lumos-2-payloads.C.tiny", chunk.into()).await.unwrap();
        }
        let digest = format!("SHA-256={}", URL_SAFE.encode(Sha256::digest(b"\"a\"")));
        let description = json!({
            "name": "tiny", "bucket": "lumos-2-payloads", "nuid": "tiny", "size": 3, "chunks": 3, "digest": digest,
        });
        let described = format!("$O.lumos-2-payloads.M.{}", URL_SAFE.encode("tiny"));
        plain.request(described, description.to_string().into()).await.unwrap();
        for (id, object) in [("missing", "no/such/object"), ("odd", "*"), ("empty", ""), ("small", "tiny")] {
            let subject = format!("lumos.2.work.00000000000000aa.5.{RUN}.{id}");
            let sum = checksum(id, "", b"\"a\"");
            let pairs = [("Lumos-Protocol", "2"), ("Lumos-Object", object), ("Lumos-Checksum", &sum)];
            plain.request_with_headers(subject, headers(&pairs), "".into()).await.unwrap();
        }
        tokio::select! {
            leases = consumer.claim(5) => {
                panic!("{:?} must not be delivered", leases.unwrap().iter().map(Lease::id).collect::<Vec<_>>());
            }
            () = eventually("the stream is empty", async || {
                bench.connection.work_present(RUN).await.unwrap().is_empty()
            }) => {}
        }
    }

    async fn what_is_written_to_an_inbox_is_not_answered(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let consumer = bench.consumer_after_setup().await;
        let plain = bench.plain().await;
        let mut heard = plain.subscribe("elsewhere").await.unwrap();
        let mut spy = plain.subscribe("$JS.API.CONSUMER.MSG.NEXT.>").await.unwrap();
        plain.flush().await.unwrap();
        sleep(Duration::from_millis(200)).await;
        let (claimed, ()) = tokio::join!(timeout(Duration::from_millis(700), consumer.claim(1)), async {
            let request = timeout(LONG, futures::StreamExt::next(&mut spy)).await.unwrap().unwrap();
            let inbox = request.reply.unwrap();
            plain.publish_with_reply(inbox.clone(), "elsewhere", "1".into()).await.unwrap();
            plain.publish(inbox.clone(), "1".into()).await.unwrap();
            plain.publish_with_reply(inbox, "$JS.ACK.lumos-2-work.c.x.y.z.0.0", "1".into()).await.unwrap();
        });
        assert!(claimed.is_err());
        assert!(timeout(Duration::from_millis(100), futures::StreamExt::next(&mut heard)).await.is_err());
    }
}

impl Bench {
    async fn consumer_after_setup(&self) -> NatsQueue<u32> {
        let _made = self.publisher::<u32>().await;
        self.consumer().await
    }
}
