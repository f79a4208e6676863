//! Logins to a database server over TLS, with the certificate authority that signed its certificate and with
//! another one.

use std::path::Path;

use super::line;
use super::sql_agent::SqlAgent;
use crate::sql::import;
use crate::support::certificates::authority;
use crate::support::mariadb::{PASSWORD, Server};
use crate::support::{Lumos, lumos};

/// Sets environment variables.
fn with(command: Lumos, settings: &[(&str, String)]) -> Lumos {
    settings.iter().fold(command, |command, (name, value)| command.env(name, value))
}

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// Runs an item on a server. Returns the exit code and the output.
fn run(folder: &Path, name: &str, url: &str, settings: &[(&str, String)]) -> (i32, String) {
    let agent = SqlAgent::sending(["SELECT COUNT(*) FROM author".to_owned()]);
    let command = agent.command(folder, name).args("--tool sql=mysql").env("LUMOS_SQL_URL", url);
    let ended = with(command, settings).run();
    let shown = lumos().args("show").arg(folder.join(name)).args("0").ok().stdout;
    let said = format!("{shown}\n{}\n{}\n{:?}", ended.stdout, ended.stderr, agent.tried());
    assert!(!said.contains(PASSWORD), "{said}");
    (ended.code, said)
}

#[test]
fn v01_tls_to_a_database_server() {
    let (Some(own), Some(other)) = (authority(), authority()) else { return };
    let folder = tempfile::tempdir().unwrap();
    // The server refuses unencrypted connections.
    let arguments = [
        format!("--ssl-cert={}", file(own.path(), "certificate.pem")),
        format!("--ssl-key={}", file(own.path(), "key.pem")),
        "--require-secure-transport=ON".to_owned(),
    ];
    let Some(server) = Server::with_arguments(&arguments) else { return };
    let url = server.url();
    let (ca, wrong) = (file(own.path(), "ca.pem"), file(other.path(), "ca.pem"));
    let by = |tls: &'static str, ca: &str| {
        vec![("LUMOS_SQL_TLS", tls.to_owned()), ("LUMOS_SQL_CA", ca.to_owned())]
    };
    with(import(&url, "samples"), &by("verify-identity", &ca)).ok();
    let attempt = |name: &str, host: &str, settings: &[(&str, String)]| {
        run(folder.path(), name, &server.url_at(host), settings)
    };
    // The certificate is valid for 127.0.0.1 and localhost. 0.0.0.0 is also this machine, but neither
    // loopback nor certified.
    for (name, host, settings) in [
        ("identity", "127.0.0.1", by("verify-identity", &ca)),
        ("name", "localhost", by("verify-identity", &ca)),
        ("authority", "0.0.0.0", by("verify-ca", &ca)),
    ] {
        let (code, said) = attempt(name, host, &settings);
        assert_eq!(code, 0, "{name}: {said}");
        assert!(said.contains("(6,)"), "{name}: {said}");
    }
    for (name, host, settings, why) in [
        ("wrong-ca", "127.0.0.1", by("verify-identity", &wrong), "certificate"),
        ("wrong-ca-only", "127.0.0.1", by("verify-ca", &wrong), "certificate"),
        ("other-name", "0.0.0.0", by("verify-identity", &ca), "certificate"),
        ("default", "0.0.0.0", vec![("LUMOS_SQL_CA", ca.clone())], "certificate"),
        ("plain", "127.0.0.1", Vec::new(), "access denied"),
    ] {
        let (code, said) = attempt(name, host, &settings);
        assert_eq!(code, 5, "{name}: {said}");
        assert!(said.to_lowercase().contains(why), "{name}: {said}");
    }
    // A server off loopback without TLS receives neither name nor password.
    drop(server);
    let Some(plain) = Server::with_arguments(&["--skip-ssl".to_owned()]) else { return };
    let (code, said) = run(folder.path(), "off-loopback", &plain.url_at("0.0.0.0"), &[]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("does not support TLS"), "{said}");
    line(
        "V1",
        "logins to MariaDB over TLS: 3 with the authority, 4 with another or another name, 2 without TLS",
        "3 succeed, 6 are refused",
    );
}
