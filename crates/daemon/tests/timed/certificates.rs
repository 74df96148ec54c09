//! Certificates whose files change are used without a signal. What a look at the files leads to is
//! in the unit tests of `src/certificates.rs`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_testing::tls::{Issued, client};
use rustls::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::harness::{Launch, eventually, free_address};

/// Changed files were read.
const CERTIFICATES_CHANGED: &str = "certificates or keys have changed";
/// "About once a minute" (docs/HTTP.md).
const PERIOD: Duration = Duration::from_secs(65);

#[test]
fn changed_files_are_used_within_a_minute() {
    let [old, new] = [(); 2].map(|()| Issued::of(&["t.example"]));
    let address = free_address();
    let config = "[http]\ncertificates = [\"HOME/live/t.crt\"]\nkeys = [\"HOME/live/t.key\"]\n";
    let launch = Launch::on_loopback().flag("--https", address.to_string()).config(config);
    let home = launch.config_path().parent().unwrap().to_owned();
    install(&old, &home, "old");
    let mut daemon = launch.serve();
    assert_eq!(certificate(address, &[&old, &new]), old.der);
    let changed = Instant::now();
    install(&new, &home, "new");
    daemon.line(CERTIFICATES_CHANGED);
    eventually("a new connection has it", || certificate(address, &[&old, &new]) == new.der);
    assert!(changed.elapsed() < PERIOD, "{:?}", changed.elapsed());
}

/// Installs certificate and key in one step, so that the tracker never reads one of each pair.
fn install(issued: &Issued, home: &Path, name: &str) {
    let directory = home.join(name);
    fs::create_dir(&directory).unwrap();
    issued.write(&directory, "t").unwrap();
    symlink(name, home.join("next")).unwrap();
    fs::rename(home.join("next"), home.join("live")).unwrap();
}

/// The certificate of a new connection, which resumes no session.
fn certificate(address: SocketAddr, accepted: &[&Issued]) -> CertificateDer<'static> {
    let mut stream = TcpStream::connect(address).unwrap();
    let name = ServerName::try_from("t.example").unwrap();
    let mut tls = ClientConnection::new(client(accepted), name).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).unwrap();
    }
    tls.peer_certificates().expect("a certificate")[0].clone()
}
