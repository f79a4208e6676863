//! Creates TLS certificates for servers.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Creates the certificates of an authority and a server with openssl: `ca.pem`, `certificate.pem` and
/// `key.pem`. Returns false if openssl is not available.
pub(crate) fn certificates(folder: &Path) -> bool {
    let openssl = |arguments: &str| {
        Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    let made = [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost",
        "x509 -req -days 2 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out certificate.pem",
    ]
    .iter()
    .all(|arguments| openssl(arguments));
    if made {
        // The server may run as another user; the key is for this test only.
        std::fs::set_permissions(folder.join("key.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    made
}
