//! The checks of certificates.

use onrush_testing::tls::{Issued, PKCS_ED25519, PKCS_RSA_SHA256};

use super::*;

#[test]
fn certificates_that_cannot_be_used_or_have_expired_are_problems() {
    let made = Made::new(&[]);
    let settings = format!(
        "http = {{ tls_listen = [':443'], certificates = ['{0}/t.crt'], keys = ['{0}/t.key'] }}",
        made.path().display()
    );
    let finds =
        |severity, part| finds_in(&made.look(&settings, false), "certificates", severity, part);
    finds(Problem, "t.crt: cannot be read");
    // For a socket of systemd, of which the doctor does not know.
    let by_systemd = settings.replace("tls_listen = [':443'], ", "");
    finds_in(&made.look(&by_systemd, false), "certificates", Note, "t.crt: cannot be read");
    // No user may read it, root included: the tracker's user might, as far as this one knows.
    let unreadable = settings.replace(made.path().to_str().unwrap(), "/proc/sys/vm");
    let unreadable = unreadable.replace("t.crt", "compact_memory");
    finds_in(&made.look(&unreadable, false), "certificates", Note, "(as this user)");
    for (kind, years, severity, part) in [
        (&PKCS_ED25519, [2020, 2100], Severity::Ok, "valid until 2100-01-01"),
        (&PKCS_ED25519, [2020, 2021], Problem, "expired on 2021-01-01"),
        (&PKCS_ED25519, [2099, 2100], Problem, "not valid before 2099-01-01"),
        (&PKCS_RSA_SHA256, [2020, 2100], Note, "RSA key of 2048 bits"),
    ] {
        Issued::between(&["t"], kind, years).write(made.path(), "t").unwrap();
        finds(severity, part);
    }
    assert_eq!(found(&made.look(&settings, true), "certificates"), None, "a start reports them");
    assert_eq!(found(&made.facts(), "certificates"), None);
}
