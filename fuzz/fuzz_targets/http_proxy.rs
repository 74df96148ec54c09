//! Arbitrary bytes as what a trusted proxy sends: no panic; a PROXY header is the same however its
//! bytes arrive; and the client that fields name is never a proxy, and is decided by what the proxy
//! has appended, whatever was before.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use onrush_tracker::access::addresses::AddressSet;
use onrush_tracker::proxies::{ClientAddress, Proxies};
use onrush_web::proxy::fields::client;
use onrush_web::proxy::header::{MAX_HEADER, parse};

/// What a proxy at 192.0.2.1 appends for this client.
const CLIENT: &str = "198.51.100.7:0";

fn header(bytes: &[u8]) {
    let whole = parse(bytes);
    if let Ok(Some(header)) = whole {
        assert!(header.len <= bytes.len().min(MAX_HEADER));
        assert_eq!(parse(&bytes[..header.len]), whole);
    }
    for end in 0..bytes.len().min(512) {
        match parse(&bytes[..end]) {
            Ok(None) => {}
            // Decided by these bytes, whatever follows.
            decided => assert_eq!(decided, whole),
        }
    }
}

fn fields(bytes: &[u8]) {
    let [proxy] = ["192.0.2.0/24"].map(|text| text.parse().unwrap());
    let mut proxies = Proxies {
        addresses: AddressSet::new([proxy]),
        client_address: ClientAddress::XForwardedFor,
    };
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let appended: Option<SocketAddr> = Some(CLIENT.parse().unwrap());
    for by in ClientAddress::ALL {
        proxies.client_address = *by;
        let found = client(lines.iter().copied(), &proxies);
        assert!(found.is_none_or(|found| !proxies.contain(found.ip())));
        let last: [&[u8]; 2] = match by {
            ClientAddress::XForwardedFor => [b"198.51.100.7", b"192.0.2.9"],
            ClientAddress::Forwarded => [b"for=198.51.100.7", b"for=192.0.2.9;proto=http"],
            ClientAddress::XRealIp | ClientAddress::ProxyProtocol => continue,
        };
        let behind = lines.iter().copied().chain(last);
        assert_eq!(client(behind, &proxies), appended);
        // In the same field: a malformed one names nobody.
        let same = [lines[0], b", ", last[0], b" , ", last[1]].concat();
        let found = client([&same[..]].into_iter(), &proxies);
        assert!(found == appended || (found.is_none() && *by == ClientAddress::Forwarded));
    }
}

fuzz_target!(|bytes: &[u8]| {
    header(bytes);
    fields(bytes);
});
