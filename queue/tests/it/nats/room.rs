//! Tests with servers with limited space.

use lumos_queue::nats::NatsError;

use super::*;

const GIB: i64 = 1 << 30;

/// Starts a server with a store of `bytes` bytes and sets it up. Returns it with the number of bytes that its
/// streams reserve.
async fn set_up(program: &std::path::Path, bytes: i64) -> Result<(NatsServer, Server, i64), NatsError> {
    let server = NatsServer::configured(program, &format!("jetstream {{ max_file_store: {bytes} }}"));
    let connection = connect(&server, Layout::default()).await;
    connection.ensure().await?;
    let streams = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut reserved = 0;
    for name in ["lumos-2-work", "lumos-2-results", "lumos-2-room"] {
        reserved += streams.get_stream(name).await.unwrap().cached_info().config.max_bytes;
    }
    Ok((server, connection, reserved))
}

on_servers! {
    // Regression test: work and results reserved 16 and 4 GiB, so that no bucket could be created.
    async fn a_store_of_exactly_twenty_gibibytes_has_room_for_the_buckets(program) {
        let (_server, connection, reserved) = set_up(program, 20 * GIB).await.unwrap();
        assert!(reserved <= 20 * GIB, "{reserved}");
        connection.check().await.unwrap();
        let (runs, workers) = (connection.runs().await.unwrap(), connection.workers().await.unwrap());
        let (owners, status) = (connection.owners().await.unwrap(), connection.status().await.unwrap());
        for bucket in [runs, workers, owners, status] {
            bucket.put(RUN, b"value").await.unwrap();
        }
        connection.shared().await.unwrap().put(&[7; 4096]).await.unwrap();
        // Setting it up again changes nothing.
        connection.ensure().await.unwrap();
    }

    async fn stores_of_any_size_are_divided(program) {
        for bytes in [GIB / 2, GIB, 16 * GIB, 24 * GIB, 64 * GIB] {
            let (_server, connection, reserved) = set_up(program, bytes).await.unwrap();
            assert!(reserved <= bytes, "{reserved} of {bytes}");
            connection.check().await.unwrap();
        }
    }

    async fn too_little_room_is_said_with_numbers(program) {
        let error = set_up(program, 150 << 20).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, NatsError::Unsuitable(_)), "{error}");
        let message = error.to_string();
        for part in ["lumos-2-work", "at least 64 MiB", "lumos-2-room 64 MiB", "max_file_store", "nats stream edit"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
