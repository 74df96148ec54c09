//! The server's certificate: it makes one for each run, and the client trusts that one alone.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The name in the certificate.
pub(super) const NAME: &str = "localhost";

/// A certificate, and its key as PKCS #8.
///
/// # Errors
/// When the system has no random numbers.
pub(super) fn generate() -> io::Result<(CertificateDer<'static>, Vec<u8>)> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let params = CertificateParams::new(vec![NAME.to_owned()]).map_err(io::Error::other)?;
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    Ok((certificate.der().clone(), key.serialize_der()))
}

/// The SHA-256 of a certificate.
pub(super) fn fingerprint(der: &[u8]) -> [u8; 32] {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("it is a suite of TLS 1.3");
    let hash = suite.common.hash_provider.hash(der);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A certificate, and TLS 1.3 with it.
///
/// # Errors
/// As [`generate`].
pub(super) fn server() -> io::Result<(Vec<u8>, ServerConfig)> {
    let (certificate, key) = generate()?;
    let key = PrivateKeyDer::try_from(key).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .map_err(io::Error::other)?;
    Ok((certificate.to_vec(), config))
}

/// TLS 1.3 with the server that has this certificate.
///
/// # Errors
/// When it is none.
pub(super) fn client(certificate: &[u8]) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec())).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_protocol_versions(&[&TLS13])
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
