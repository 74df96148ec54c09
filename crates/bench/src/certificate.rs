//! The certificate of trackers over TLS: self-signed, with an ECDSA key on P-256, the kind with
//! which certbot and load testers spend the least CPU time. Each round has one of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

/// The file of the certificate in a round's directory, in PEM.
pub const CERTIFICATE: &str = "certificate.pem";
/// The file of its key (PKCS #8), in PEM.
pub const KEY: &str = "key.pem";

/// Writes certificate and key to `directory`, readable by trackers that change their user.
///
/// # Errors
/// When a file cannot be written, or there are no random numbers.
pub fn write(directory: &Path) -> anyhow::Result<()> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    for (name, text) in [(CERTIFICATE, certificate.pem()), (KEY, key.serialize_pem())] {
        let path = directory.join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o644)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
