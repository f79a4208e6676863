//! Creates TLS certificates for servers.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use lumos_capabilities::{Capability, skip};
use tempfile::TempDir;

/// Creates a folder with the certificates of an authority and a server: `ca.pem`, `certificate.pem` and `key.pem`. Without
/// openssl, skips the test and returns `None`.
pub(crate) fn authority() -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    // The server may run as another user; the key is for this test only.
    let open = |name: &str, mode| {
        std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open("", 0o755);
    let openssl = |arguments: &str| {
        Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    std::fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    let made = [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost",
        "x509 -req -days 2 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out certificate.pem",
    ]
    .into_iter()
    .all(openssl);
    if !made {
        skip(Capability::OpenSsl, "openssl is not installed");
        return None;
    }
    open("key.pem", 0o644);
    Some(folder)
}
