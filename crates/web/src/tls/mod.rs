//! TLS 1.3 and 1.2 (RFC 8446, RFC 5246) by rustls, over the streams of connections.
//!
//! | module | contents |
//! |---|---|
//! | [`certificates`] | certificates with their keys, from files |
//! | `session` | the server's side of one connection |

pub mod certificates;
pub(crate) mod session;

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, Error, ServerConfig};

use certificates::Certificates;

/// CPU time of handshakes per turn of a worker, microseconds.
const HANDSHAKE_MICROS_PER_TURN: u32 = 1_000;

/// The preferred suites: processors have instructions for SHA-256, but seldom for the SHA-384 of
/// others. The first is mandatory to implement (RFC 8446, section 9.1).
const PREFERRED: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// How all web workers serve TLS. Clones are the same.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
}

impl Tls {
    /// With these certificates.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(certificates: Arc<Certificates>) -> io::Result<Self> {
        Self::of(certificates).map_err(io::Error::other)
    }

    fn of(certificates: Arc<Certificates>) -> Result<Self, Error> {
        let resolver = Arc::new(Resolver(ArcSwap::new(certificates)));
        let mut provider = default_provider();
        provider.cipher_suites.sort_by_key(|suite| !PREFERRED.contains(&suite.suite()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(resolver.clone());
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        // Sessions are resumed by tickets alone, so that nothing is stored for a client. With one
        // ticket, a client that delays small segments until all sent ones are acknowledged gets an
        // acknowledgement at once (RFC 896).
        config.ticketer = Ticketer::new()?;
        config.send_tls13_tickets = 1;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), resolver })
    }

    /// Replaces the certificates for handshakes that begin from now on.
    pub fn replace(&self, certificates: Arc<Certificates>) {
        self.resolver.0.store(certificates);
    }

    /// The most handshakes in a turn of a worker.
    pub(crate) fn handshakes_per_turn(&self) -> usize {
        (HANDSHAKE_MICROS_PER_TURN / self.resolver.0.load().handshake_micros()).max(1) as usize
    }
}

/// The certificates in force.
#[derive(Debug)]
struct Resolver(ArcSwap<Certificates>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().of_name(hello.server_name()))
    }
}
