"""Certificates for scripts, made by openssl."""

import base64
import hashlib
import subprocess

from processes import Failure


class Certificate:
    """A certificate that signs itself, for names written as in subjectAltName ("IP:127.0.0.1", "DNS:tracker.example").
    `chain` and `key` are its files, `both` is the file with both."""

    def __init__(self, place, name, *subjects):
        self.chain, self.key, self.both = (place / f"{name}-{part}.pem" for part in ("chain", "key", "both"))
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=" + ",".join(subjects),
             "-keyout", self.key, "-out", self.chain],
            capture_output=True, text=True)
        if made.returncode != 0:
            raise Failure(f"openssl: {made.stderr}")
        self.both.write_bytes(self.key.read_bytes() + self.chain.read_bytes())
        self.both.chmod(0o600)


def key_hash(chain):
    """The SHA-256 of the public key of a certificate, in base64: what Chromium can be told to accept."""
    command = ["sh", "-c", 'openssl x509 -in "$1" -noout -pubkey | openssl pkey -pubin -outform der', "sh", chain]
    key = subprocess.run(command, capture_output=True)
    if key.returncode != 0:
        raise Failure(f"openssl: {key.stderr.decode()}")
    return base64.b64encode(hashlib.sha256(key.stdout).digest()).decode()
