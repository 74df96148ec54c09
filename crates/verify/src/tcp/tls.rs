//! The client's side of TLS (RFC 8446, RFC 5246) by rustls, with the cryptography of the tracker.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

/// TLS of all connections. The certificate is verified by those of the file `ca` alone, or not at
/// all without it. With `resume`, a session is resumed where the tracker has sent a ticket;
/// `only_1_3` refuses TLS 1.2.
///
/// # Errors
/// When the file cannot be used.
pub fn client(
    ca: Option<&Path>,
    resume: bool,
    only_1_3: bool,
) -> Result<Arc<ClientConfig>, String> {
    let versions = if only_1_3 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    client_of(ca, resume, versions)
}

/// [`client`] with these versions of TLS.
///
/// # Errors
/// When the file cannot be used.
pub(crate) fn client_of(
    ca: Option<&Path>,
    resume: bool,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let config = config.map_err(|error| error.to_string())?;
    let config = match ca {
        Some(file) => config.with_root_certificates(roots(file)?),
        None => config.dangerous().with_custom_certificate_verifier(Arc::new(Unverified)),
    };
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if !resume {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let unusable = |why: &dyn Display| format!("--ca {}: {why}", file.display());
    let pem = std::fs::read(file).map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    match roots.is_empty() {
        true => Err(unusable(&"there is no certificate in it")),
        false => Ok(roots),
    }
}

/// Accepts any certificate without a look at it, which is no part of a tracker's work.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
