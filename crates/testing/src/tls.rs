//! Certificates, and how a client connects to their servers.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm, date_time_ymd};
pub use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate that it has signed itself, and its key.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub der: CertificateDer<'static>,
    /// The same in PEM.
    pub certificate: String,
    /// The key in PEM.
    pub key: String,
}

impl Issued {
    /// For these names, valid until the end of 2099.
    pub fn of(names: &[&str]) -> Self {
        Self::with(names, &PKCS_ED25519, 2100)
    }

    /// For these names, with a key of this kind, valid until a year begins.
    pub fn with(names: &[&str], kind: &'static SignatureAlgorithm, year: i32) -> Self {
        Self::between(names, kind, [1975, year])
    }

    /// The same, valid from the beginning of a year until another begins.
    pub fn between(names: &[&str], kind: &'static SignatureAlgorithm, years: [i32; 2]) -> Self {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        [params.not_before, params.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        let key = KeyPair::generate_for(kind).expect("a kind of key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            der: certificate.der().clone(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes the files `NAME.crt` and `NAME.key`.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn write(&self, directory: &Path, name: &str) -> io::Result<()> {
        fs::write(directory.join(format!("{name}.crt")), &self.certificate)?;
        fs::write(directory.join(format!("{name}.key")), &self.key)
    }
}

/// A client of TLS 1.3 that accepts these certificates.
pub fn client(accepted: &[&Issued]) -> Arc<ClientConfig> {
    client_with(accepted, &[&TLS13])
}

/// A client of TLS 1.2 that accepts these certificates.
pub fn client_1_2(accepted: &[&Issued]) -> Arc<ClientConfig> {
    client_with(accepted, &[&TLS12])
}

fn client_with(
    accepted: &[&Issued],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for issued in accepted {
        roots.add(issued.der.clone()).expect("a certificate");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}
