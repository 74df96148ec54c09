//! Certificates with their keys, from PEM files.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

/// Seconds before the expiry of a certificate from which on it is reported.
const REPORTED: u64 = 14 * 24 * 60 * 60;
/// CPU time of a handshake with a key of ECDSA on P-256 or of Ed25519, microseconds.
const P256_MICROS: u32 = 90;

/// The file of a certificate, and behind it of those that issued it, but for the root; and the file
/// of its private key.
pub type Files = (PathBuf, PathBuf);

/// One or more certificates, of which each client gets one by the name that it connects to.
#[derive(Debug)]
pub struct Certificates {
    list: Vec<Certificate>,
    /// The places of certificates by names, and those of `*.` and a name, by that name.
    names: HashMap<String, usize>,
    wildcards: HashMap<String, usize>,
    /// CPU time of a handshake with the most expensive key.
    handshake_micros: u32,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Certificate {
    /// Its file.
    pub file: PathBuf,
    /// The second from which on it is valid, since 1970.
    pub start: u64,
    /// The date of its start.
    pub start_date: String,
    /// The second after which it is invalid, since 1970.
    pub expiry: u64,
    /// The date of its expiry.
    pub expiry_date: String,
    /// The names for which it is valid, in lower case, as they are in it.
    pub names: Vec<String>,
    /// The bits of its key, if that is of RSA.
    pub rsa_bits: Option<usize>,
    /// CPU time of a handshake, microseconds.
    handshake_micros: u32,
    certified: Arc<CertifiedKey>,
}

/// What an operator should know about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Whether clients refuse the certificate: it has expired, or is not valid yet.
    pub is_refused_by_clients: bool,
    /// A sentence with its remedy.
    pub text: String,
}

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
#[error("{}: {what}", file.display())]
pub struct CertificateError {
    /// The number of the pair.
    pub number: usize,
    /// Whether the file is that of the key.
    pub is_key: bool,
    /// Whether this user may not read it: another may.
    pub is_unreadable: bool,
    file: PathBuf,
    what: String,
}

impl Certificates {
    /// Reads certificates and keys. The first certificate is for clients whose requested name is in
    /// no other certificate.
    ///
    /// # Errors
    /// For the first file that cannot be used.
    ///
    /// # Panics
    /// When there are none.
    pub fn load(files: &[Files]) -> Result<Self, CertificateError> {
        assert!(!files.is_empty(), "a server has a certificate");
        let load =
            |(number, (certificate, key)): (_, &Files)| Certificate::load(number, certificate, key);
        let list: Vec<_> = files.iter().enumerate().map(load).collect::<Result<_, _>>()?;
        let (mut names, mut wildcards) = (HashMap::new(), HashMap::new());
        for (number, certificate) in list.iter().enumerate() {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut wildcards, parent),
                    None => (&mut names, name.as_str()),
                };
                map.entry(name.to_owned()).or_insert(number);
            }
        }
        let handshake_micros = list.iter().map(|it| it.handshake_micros).max();
        let handshake_micros = handshake_micros.unwrap_or(P256_MICROS);
        Ok(Self { list, names, wildcards, handshake_micros })
    }

    /// All of them, in the order of the files.
    pub fn list(&self) -> &[Certificate] {
        &self.list
    }

    /// The warnings at this second since 1970.
    pub fn warnings(&self, unix: u64) -> Vec<Warning> {
        self.list
            .iter()
            .flat_map(|it| [it.validity_warning(unix), it.cost_warning()])
            .flatten()
            .collect()
    }

    /// The warnings about validity.
    pub fn validity_warnings(&self, unix: u64) -> Vec<Warning> {
        self.list.iter().filter_map(|certificate| certificate.validity_warning(unix)).collect()
    }

    /// The certificate for clients that connect to this name, in lower case (RFC 6066, section 3;
    /// RFC 6125, section 6.4.3).
    pub(crate) fn of_name(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let of = |name: &str| {
            let parent = || self.wildcards.get(name.split_once('.')?.1);
            self.names.get(name).or_else(parent).copied()
        };
        self.list[name.and_then(of).unwrap_or(0)].certified.clone()
    }

    /// CPU time of a handshake with the most expensive key, microseconds.
    pub(crate) fn handshake_micros(&self) -> u32 {
        self.handshake_micros
    }
}

impl Certificate {
    fn load(number: usize, certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let of = |file: &Path, is_key: bool, what: String| CertificateError {
            number,
            is_key,
            is_unreadable: false,
            file: file.to_owned(),
            what,
        };
        let read = |file: &Path, is_key: bool| {
            read(file).map_err(|error| {
                let is_unreadable = error.kind() == io::ErrorKind::PermissionDenied;
                let remedy = if is_unreadable { READABLE } else { PRESENT };
                let what = format!("cannot be read: {error}\n  {remedy}");
                CertificateError { is_unreadable, ..of(file, is_key, what) }
            })
        };
        let of_certificate = |what| of(certificate, false, what);
        let of_key = |what| of(key, true, what);
        let chain = chain(&read(certificate, false)?).map_err(of_certificate)?;
        let (_, leaf) = X509Certificate::from_der(&chain[0]).map_err(|error| {
            of_certificate(format!("the certificate is invalid: {error}\n  {RENEW}"))
        })?;
        let (rsa_bits, handshake_micros) = match leaf.public_key().parsed() {
            Ok(PublicKey::RSA(key)) => (Some(key.key_size()), rsa_micros(key.key_size())),
            Ok(PublicKey::EC(point)) if point.key_size() > 384 => (None, 310),
            Ok(PublicKey::EC(point)) if point.key_size() > 256 => (None, 200),
            _ => (None, P256_MICROS),
        };
        let [(start, start_date), (expiry, expiry_date)] =
            [leaf.validity().not_before, leaf.validity().not_after].map(|time| {
                let date = time.to_datetime().date().to_string();
                (u64::try_from(time.timestamp()).unwrap_or(0), date)
            });
        let names = names(&leaf);
        let private = private_key(&read(key, true)?).map_err(of_key)?;
        let certified = CertifiedKey::from_der(chain, private, &default_provider());
        let certified = Arc::new(certified.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => of_key(format!(
                "the key is not that of the certificate in {}\n  write the keys in the order of \
                 the certificates, the private key of each at the same place",
                certificate.display()
            )),
            Error::InvalidCertificate(error) => {
                of_certificate(format!("the certificate is invalid: {error:?}\n  {RENEW}"))
            }
            error => of_key(format!("the key cannot be used: {error}\n  {KEYS}")),
        })?);
        let file = certificate.to_owned();
        Ok(Self {
            file,
            start,
            start_date,
            expiry,
            expiry_date,
            names,
            rsa_bits,
            handshake_micros,
            certified,
        })
    }

    fn validity_warning(&self, unix: u64) -> Option<Warning> {
        let (file, date) = (self.file.display(), &self.expiry_date);
        let (is_refused_by_clients, state) = match self.expiry {
            _ if self.start > unix => {
                let text = format!(
                    "the certificate in {file} is not valid before {}: clients refuse it until \
                     then; check the clock of this host (`timedatectl`), or use another one",
                    self.start_date
                );
                return Some(Warning { is_refused_by_clients: true, text });
            }
            expiry if expiry <= unix => (true, "expired"),
            expiry if expiry <= unix.saturating_add(REPORTED) => (false, "expires"),
            _ => return None,
        };
        let text = format!(
            "the certificate in {file} {state} on {date}: renew it (`certbot renew`); the tracker \
             reads changed files again"
        );
        Some(Warning { is_refused_by_clients, text })
    }

    fn cost_warning(&self) -> Option<Warning> {
        let bits = self.rsa_bits?;
        let text = format!(
            "the certificate in {} has an RSA key of {bits} bits: a handshake takes about {} us of \
             CPU time, against {P256_MICROS} us with ECDSA: get a certificate with a key on P-256 \
             (`certbot renew --cert-name NAME --key-type ecdsa --force-renewal`)",
            self.file.display(),
            self.handshake_micros
        );
        Some(Warning { is_refused_by_clients: false, text })
    }
}

/// CPU time of a handshake with a key of RSA with so many bits, microseconds.
fn rsa_micros(bits: usize) -> u32 {
    let micros = [(2_048, 420), (3_072, 1_000), (4_096, 2_000)];
    micros.iter().find(|(most, _)| bits <= *most).map_or(35_000, |(_, micros)| *micros)
}

const KEYS: &str = "write an unencrypted private key of ECDSA, Ed25519 or RSA (2048 bits or more)";

const READABLE: &str = "let the group of the tracker's user read it (`chgrp onrush FILE` and \
                        `chmod g+r FILE`; its directories need g+x), or give a copy to the service \
                        (LoadCredential= of systemd)";

const PRESENT: &str = "write the path of a PEM file: those of certbot are fullchain.pem and \
                       privkey.pem in /etc/letsencrypt/live/NAME";

const RENEW: &str = "get it again from the authority that issued it (`certbot renew --cert-name \
                     NAME --force-renewal`)";

fn read(file: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(file)?.is_file() {
        true => fs::read(file),
        // Opening a pipe waits for its other end.
        false => Err(io::Error::other("not a regular file")),
    }
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err("there is no certificate in it\n  write the path of a PEM file with the \
                      certificate and those that issued it (fullchain.pem)"
            .to_owned()),
        Err(error) => Err(format!("not a PEM file: {error}\n  {PRESENT}")),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => format!("there is no private key in it\n  {KEYS}"),
        error => format!("not a PEM file: {error}\n  {PRESENT}"),
    })
}

/// The names for which a certificate is valid.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    names.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use onrush_testing::tls::{
        Issued, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    };

    use super::*;

    /// The second at which 2031 begins.
    const YEAR_2031: u64 = 1_924_992_000;
    const DAY: u64 = 24 * 60 * 60;
    /// A file that no user may read, root included.
    const WRITE_ONLY: &str = "/proc/sys/vm/compact_memory";

    fn files(directory: &Path, certificate: &str, key: &str) -> Files {
        (directory.join(certificate), directory.join(key))
    }

    #[test]
    fn expiry_and_the_cost_of_rsa_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let rsa = Issued::with(&["a.example"], &PKCS_RSA_SHA256, 2031);
        let p384 = Issued::with(&["c.example"], &PKCS_ECDSA_P384_SHA384, 2040);
        let ecdsa = Issued::with(&["b.example"], &PKCS_ECDSA_P256_SHA256, 2040);
        let pairs = [("a", rsa), ("b", ecdsa), ("c", p384)].map(|(name, issued)| {
            issued.write(directory.path(), name).unwrap();
            files(directory.path(), &format!("{name}.crt"), &format!("{name}.key"))
        });
        let certificates = Certificates::load(&pairs).unwrap();
        let facts = certificates.list().iter().map(|it| (it.expiry, it.rsa_bits));
        let facts: Vec<_> = facts.collect();
        assert_eq!(facts[0], (YEAR_2031, Some(2048)));
        assert_eq!((facts[1].1, certificates.list()[0].expiry_date.as_str()), (None, "2031-01-01"));
        let micros = certificates.list().iter().map(|it| it.handshake_micros);
        assert_eq!(micros.collect::<Vec<_>>(), [420, 90, 200]);
        assert_eq!(certificates.handshake_micros(), 420, "that of the most expensive");
        for (unix, expiry) in [
            (YEAR_2031 - 15 * DAY, None),
            (YEAR_2031 - 13 * DAY, Some("expires on 2031-01-01")),
            (YEAR_2031 + 1, Some("expired on 2031-01-01")),
        ] {
            let warnings = certificates.warnings(unix);
            assert_eq!(warnings.len(), 1 + usize::from(expiry.is_some()), "{warnings:?}");
            assert!(warnings.last().unwrap().text.contains("about 420 us"));
            assert!(expiry.is_none_or(|part| warnings[0].text.contains(part)), "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.text.contains("a.crt")));
            let refused = warnings.iter().filter(|warning| warning.is_refused_by_clients).count();
            assert_eq!(refused, usize::from(unix > YEAR_2031), "{warnings:?}");
            assert_eq!(certificates.validity_warnings(unix).len(), warnings.len() - 1);
        }
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let issued = Issued::between(&["a"], &PKCS_ECDSA_P256_SHA256, [2031, 2040]);
        issued.write(directory.path(), "a").unwrap();
        let pair = files(directory.path(), "a.crt", "a.key");
        let certificates = Certificates::load(&[pair]).unwrap();
        let warnings = certificates.validity_warnings(YEAR_2031 - 1);
        let Warning { is_refused_by_clients, text } = &warnings[0];
        assert!(text.contains("a.crt is not valid before 2031-01-01: "), "{text}");
        assert!(*is_refused_by_clients && certificates.validity_warnings(YEAR_2031).is_empty());
    }

    #[test]
    fn each_bad_file_is_named_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        Issued::of(&["a"]).write(directory.path(), "a").unwrap();
        Issued::of(&["b"]).write(directory.path(), "b").unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\naaaa\n-----END CERTIFICATE-----\n";
        fs::write(directory.path().join("broken"), broken).unwrap();
        fs::write(directory.path().join("bad key"), broken.replace("CERTIFICATE", "PRIVATE KEY"))
            .unwrap();
        fs::write(directory.path().join("garbled"), broken.replace("aaaa", "*")).unwrap();
        fs::write(directory.path().join("empty"), "").unwrap();
        for (certificate, key, is_key, what) in [
            ("a.crt", "b.key", true, "not that of the certificate"),
            ("a.key", "a.key", false, "no certificate"),
            ("a.crt", "a.crt", true, "no private key"),
            ("broken", "a.key", false, "invalid"),
            ("a.crt", "bad key", true, "cannot be used"),
            ("garbled", "a.key", false, "not a PEM file"),
            ("a.crt", "garbled", true, "not a PEM file"),
            ("empty", "a.key", false, "no certificate"),
            ("none", "a.key", false, "privkey.pem in /etc/letsencrypt"),
            ("a.crt", ".", true, "not a regular file"),
            ("a.crt", WRITE_ONLY, true, "LoadCredential="),
        ] {
            let good = files(directory.path(), "b.crt", "b.key");
            let bad = files(directory.path(), certificate, key);
            let error = Certificates::load(&[good, bad]).unwrap_err();
            assert_eq!(error.is_unreadable, key == WRITE_ONLY);
            assert_eq!((error.number, error.is_key), (1, is_key), "{error}");
            let file = if is_key { key } else { certificate };
            let text = error.to_string();
            let place = format!("/{}: ", file.trim_start_matches('/'));
            assert!(text.contains(what) && text.contains(&place), "{text}");
            assert!(text.contains("\n  "), "no remedy: {text}");
        }
    }
}
