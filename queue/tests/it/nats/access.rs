//! Tests of authentication and permissions, and of the errors for rejected clients.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lumos_capabilities::{Capability, skip};
use lumos_queue::QueueError;
use lumos_queue::nats::{Credential, NatsError};

use super::*;

async fn refused(access: &Access) -> NatsError {
    let connecting = Connecting { name: "test".to_owned(), patience: None, layout: Layout::default() };
    timeout(LONG, Server::connect(access, connecting)).await.expect("timed out").unwrap_err()
}

async fn let_in(access: &Access) -> Server {
    let server =
        timeout(LONG, Server::connect(access, connecting(Layout::default()))).await.unwrap().unwrap();
    server.ensure().await.unwrap();
    server
}

fn with_credentials(server: &NatsServer, credentials: &str) -> Access {
    Access::new(&format!("nats://{credentials}@{}", server.address())).unwrap()
}

on_servers! {
    async fn passwords_are_checked(program) {
        let server = NatsServer::configured(program, "authorization { user: anna, password: \"right\" }");
        let_in(&with_credentials(&server, "anna:right")).await;
        for wrong in [with_credentials(&server, "anna:wrong-one"), Access::new(&server.url()).unwrap()] {
            let error = refused(&wrong).await;
            assert!(matches!(error, NatsError::Denied(_)), "{error}");
            assert!(!error.to_string().contains("wrong-one"), "{error}");
        }
    }

    async fn tokens_are_checked(program) {
        let server = NatsServer::configured(program, "authorization { token: \"right\" }");
        let_in(&with_credentials(&server, "right")).await;
        let error = refused(&with_credentials(&server, "wrong-one")).await;
        assert!(matches!(&error, NatsError::Denied(why) if why.contains("token")), "{error}");
        let mut both = with_credentials(&server, "right");
        (both.user, both.password) = (Some("anna".to_owned()), Some(Credential::new("x")));
        assert!(matches!(refused(&both).await, NatsError::Address(_)));
    }

    async fn nkeys_are_checked(program) {
        let (right, wrong) = (nkeys::KeyPair::new_user(), nkeys::KeyPair::new_user());
        let server =
            NatsServer::configured(program, &format!("authorization {{ users: [ {{ nkey: {} }} ] }}", right.public_key()));
        let mut access = Access::new(&server.url()).unwrap();
        let file = server.folder().join("seed.nk");
        access.nkey_seed = Some(file.clone());
        assert!(matches!(refused(&access).await, NatsError::Address(_)), "the file does not exist");
        std::fs::write(&file, format!("{}\n", right.seed().unwrap())).unwrap();
        let_in(&access).await;
        std::fs::write(&file, wrong.seed().unwrap()).unwrap();
        assert!(matches!(refused(&access).await, NatsError::Denied(_)));
        std::fs::write(&file, "SUNOTASEED").unwrap();
        let error = refused(&access).await;
        assert!(matches!(error, NatsError::Denied(_)) && !error.to_string().contains("SUNOTASEED"), "{error}");
    }

    async fn what_is_not_allowed_is_told_at_once(program) {
        let server = NatsServer::configured(
            program,
            "authorization { users: [
                { user: boss, password: x },
                { user: idle, password: x, permissions: {
                    publish: [\"$JS.API.INFO\", \"$JS.API.CONSUMER.INFO.>\"], subscribe: [\"_INBOX.>\"] } },
                { user: worker, password: x, permissions: { publish: [\"$JS.API.INFO\"], subscribe: [\"_INBOX.>\"] } } ] }",
        );
        let boss = let_in(&with_credentials(&server, "boss:x")).await;
        let _shard = boss.shard_publisher::<u32>(SHARD, RUN).await.unwrap();
        let worker = Server::connect(&with_credentials(&server, "worker:x"), connecting(Layout::default())).await.unwrap();
        // Detected by the reported violation, not by a timeout.
        let error = worker.check().await.unwrap_err();
        assert!(matches!(&error, NatsError::Refused(why) if why.to_lowercase().contains("permissions")), "{error}");
        let shard = worker_shard(&server).await;
        assert!(matches!(timeout(LONG, shard.claim(1)).await.unwrap(), Err(QueueError::Refused(_))));
        let results = worker.results_publisher::<u32>(RUN).await.unwrap();
        assert!(matches!(results.publish("a", 1).await, Err(QueueError::Refused(_))));
    }

    async fn a_server_without_jetstream_is_told_what_to_do(program) {
        let server = NatsServer::without_jetstream(program);
        let error = refused(&Access::new(&server.url()).unwrap()).await;
        assert!(matches!(&error, NatsError::Unsuitable(why) if why.contains("-js")), "{error}");
        let server = NatsServer::configured(
            program,
            "accounts { A: { users: [ {user: a, password: a} ] }, B: { jetstream: enabled, users: [ {user: b, password: b} ] } }",
        );
        let error = refused(&with_credentials(&server, "a:a")).await;
        assert!(matches!(&error, NatsError::Unsuitable(why) if why.contains("account")), "{error}");
        let_in(&with_credentials(&server, "b:b")).await;
    }

    async fn a_server_that_is_not_there_is_waited_for(program) {
        let mut server = NatsServer::with_jetstream(program);
        let access = Access::new(&server.url()).unwrap();
        server.kill();
        let hasty = Connecting { name: "test".to_owned(), patience: Some(Duration::from_millis(300)), layout: Layout::default() };
        let error = timeout(LONG, Server::connect(&access, hasty)).await.unwrap().unwrap_err();
        assert!(matches!(&error, NatsError::Unreachable(why) if why.contains("127.0.0.1")), "{error}");
        let patient = tokio::spawn(async move {
            let connecting = Connecting { name: "test".to_owned(), patience: None, layout: Layout::default() };
            Server::connect(&access, connecting).await.map(|server| server.version().to_owned())
        });
        sleep(Duration::from_millis(500)).await;
        server.restart();
        assert!(timeout(LONG, patient).await.unwrap().unwrap().unwrap().starts_with('2'));
    }

    async fn tls_needs_an_authority_that_is_known(program) {
        let folder = tempfile::tempdir().unwrap();
        if !certificates(folder.path()) {
            skip(Capability::OpenSsl, "openssl not found");
            return;
        }
        let file = |name: &str| folder.path().join(name);
        let server = NatsServer::configured(
            program,
            &format!("tls {{ cert_file: {:?}, key_file: {:?} }}", file("server.pem"), file("server.key")),
        );
        let mut access = Access::new(&server.url()).unwrap();
        let error = refused(&access).await;
        assert!(matches!(error, NatsError::Tls(_)), "{error}");
        access.tls_ca = Some(file("missing.pem"));
        assert!(refused(&access).await.to_string().contains("missing.pem"));
        access.tls_ca = Some(file("other.pem"));
        let error = refused(&access).await;
        assert!(matches!(&error, NatsError::Tls(why) if why.contains("authority")), "{error}");
        access.tls_ca = Some(file("ca.pem"));
        let_in(&access).await;
        // No secrets are sent to a server without TLS.
        let open = NatsServer::with_jetstream(program);
        access = Access::new(&open.url()).unwrap();
        access.tls_ca = Some(file("ca.pem"));
        let error = refused(&access).await;
        assert!(matches!(error, NatsError::PlainText(_)), "{error}");
        // Client certificates.
        let mutual = NatsServer::configured(
            program,
            &format!(
                "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
                file("server.pem"), file("server.key"), file("ca.pem")
            ),
        );
        access = Access::new(&mutual.url()).unwrap();
        access.tls_ca = Some(file("ca.pem"));
        let error = refused_within(&access).await;
        assert!(matches!(error, NatsError::Tls(_) | NatsError::Unreachable(_)), "{error}");
        access.tls_certificate = Some(file("server.pem"));
        assert!(matches!(refused(&access).await, NatsError::Tls(_)), "the key is missing");
        access.tls_key = Some(file("server.key"));
        let_in(&access).await;
    }
}

/// Returns the claiming end of a shard for a user that may read the consumer but not pull from it.
async fn worker_shard(server: &NatsServer) -> NatsQueue<u32> {
    let idle =
        Server::connect(&with_credentials(server, "idle:x"), connecting(Layout::default())).await.unwrap();
    idle.shard_consumer(SHARD).await.unwrap()
}

async fn refused_within(access: &Access) -> NatsError {
    let hasty = Connecting {
        name: "test".to_owned(),
        patience: Some(Duration::from_secs(1)),
        layout: Layout::default(),
    };
    timeout(LONG, Server::connect(access, hasty)).await.unwrap().unwrap_err()
}

/// Creates a certificate authority, a certificate for 127.0.0.1 signed by it, and a second authority. Returns
/// false if openssl fails.
fn certificates(folder: &Path) -> bool {
    let run = |arguments: &str| {
        Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    std::fs::write(
        folder.join("names"),
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n",
    )
    .unwrap();
    let made = ["ca", "other"].iter().all(|name| {
        run(&format!("req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"))
    }) && run(&format!("req -new {key} -keyout server.key -out server.csr -subj /CN=server"))
        && run(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
        );
    if made {
        // The server may run as another user; the key is for this test only.
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder, 0o755);
        open(&folder.join("server.key"), 0o644);
    }
    made
}

/// Signs a JWT in the format of NATS.
fn signed(issuer: &nkeys::KeyPair, subject: &str, nats: &serde_json::Value) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let claims = serde_json::json!({
        "jti": "X", "iat": 1_700_000_000, "iss": issuer.public_key(), "name": "test", "sub": subject, "nats": nats,
    });
    let text = format!(
        "{}.{}",
        encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#),
        encode(claims.to_string().as_bytes())
    );
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", encode(&signature))
}

fn credentials(user_token: &str, user: &nkeys::KeyPair) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY \
         SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    )
}

on_servers! {
    async fn credentials_files_are_checked(program) {
        let (operator, account, system) =
            (nkeys::KeyPair::new_operator(), nkeys::KeyPair::new_account(), nkeys::KeyPair::new_account());
        let (user, stranger) = (nkeys::KeyPair::new_user(), nkeys::KeyPair::new_account());
        let limits = serde_json::json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let plain = serde_json::json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 });
        let operator_token = signed(&operator, &operator.public_key(), &serde_json::json!({ "type": "operator", "version": 2 }));
        let with = |limits| serde_json::json!({ "type": "account", "version": 2, "limits": limits });
        let account_token = signed(&operator, &account.public_key(), &with(limits));
        let system_token = signed(&operator, &system.public_key(), &with(plain));
        let server = NatsServer::configured(
            program,
            &format!(
                "operator: \"{operator_token}\"\nsystem_account: {1}\nresolver: MEMORY\nresolver_preload: {{ {0}: \"{account_token}\", {1}: \"{system_token}\" }}",
                account.public_key(), system.public_key(),
            ),
        );
        let rights = serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let file = server.folder().join("user.creds");
        let mut access = Access::new(&server.url()).unwrap();
        access.credentials = Some(file.clone());
        std::fs::write(&file, credentials(&signed(&account, &user.public_key(), &rights), &user)).unwrap();
        let_in(&access).await;
        std::fs::write(&file, credentials(&signed(&stranger, &user.public_key(), &rights), &user)).unwrap();
        assert!(matches!(refused(&access).await, NatsError::Denied(_)));
        std::fs::write(&file, "nothing of the kind").unwrap();
        assert!(matches!(refused(&access).await, NatsError::Address(_)));
    }
}
