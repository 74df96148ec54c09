//! Binding: groups, the text of refusals, and the effect of options.

use std::net::{SocketAddr, TcpListener};

use onrush_net::bind::{
    Address, BindError, Buffers, Group, Options, Transport, bind_client, bind_group, check,
};

const PLAIN: Options =
    Options { workers: 1, buffers: Buffers { receive: 0, send: 0 }, probe: true };

fn address(address: SocketAddr, optional: bool) -> Address {
    Address { address, optional }
}

fn named(address: &str) -> Address {
    self::address(address.parse().unwrap(), false)
}

/// The error of a bind that must fail.
fn refused(result: Result<Group, BindError>) -> BindError {
    match result {
        Ok(group) => panic!("bound {:?}", group.addresses),
        Err(error) => error,
    }
}

#[test]
fn a_group_has_a_socket_per_worker_and_address_on_one_port_each() {
    let wanted = [named("127.0.0.1:0"), named("[::1]:0"), named("127.0.0.2:0")];
    let group = bind_group(&wanted, &Options { workers: 3, ..PLAIN }).unwrap();
    assert_eq!(group.workers.len(), 3);
    for sockets in &group.workers {
        let bound: Vec<_> = sockets.iter().map(|socket| socket.address()).collect();
        assert_eq!(bound, group.addresses);
    }
    for (bound, wanted) in group.addresses.iter().zip(wanted) {
        assert_eq!(bound.ip(), wanted.address.ip());
        assert_ne!(bound.port(), 0);
    }
    assert!(group.notices.is_empty(), "{:?}", group.notices);
}

#[test]
fn both_families_share_a_port() {
    // Without IPV6_V6ONLY the IPv6 socket would always take IPv4's port as well. Another process
    // may have that port now and then.
    let both = (0..20).find_map(|_| {
        let v6 = bind_group(&[named("[::]:0")], &PLAIN).unwrap();
        let port = v6.addresses[0].port();
        bind_group(&[named(&format!("0.0.0.0:{port}"))], &PLAIN).ok().map(|v4| (v4, port))
    });
    let (v4, port) = both.expect("of 20 ports one is IPv4's too");
    assert_eq!(v4.addresses[0].port(), port);
}

#[test]
fn only_a_wildcard_reports_the_local_address() {
    let group = bind_group(&[named("0.0.0.0:0"), named("127.0.0.1:0")], &PLAIN).unwrap();
    let reports: Vec<_> = group.workers[0].iter().map(|socket| socket.reports_local()).collect();
    assert_eq!(reports, [true, false]);
}

#[test]
fn a_second_copy_is_refused_by_name() {
    let first = bind_group(&[named("127.0.0.1:0")], &PLAIN).unwrap();
    let taken = first.addresses[0];
    let again = [named("[::1]:0"), address(taken, true)];
    let error = refused(bind_group(&again, &PLAIN));
    assert!(matches!(error, BindError::Taken { address, .. } if address == taken), "{error}");
    let text = error.to_string();
    assert!(text.contains(&taken.to_string()) && text.contains("ss -ulpn"), "{text}");
    // A wildcard overlaps the bound address.
    let wildcard = format!("0.0.0.0:{}", taken.port());
    let error = refused(bind_group(&[named(&wildcard)], &PLAIN));
    assert!(matches!(error, BindError::Taken { .. }), "{error}");
    // Without the probe a second group can bind.
    bind_group(&[address(taken, false)], &Options { probe: false, ..PLAIN }).unwrap();
    drop(first);
    bind_group(&[address(taken, false)], &PLAIN).unwrap();
}

#[test]
fn a_socket_of_another_process_is_found_without_a_probe() {
    let theirs = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = theirs.local_addr().unwrap();
    for probe in [true, false] {
        let error = refused(bind_group(&[address(taken, false)], &Options { probe, ..PLAIN }));
        assert!(matches!(error, BindError::Taken { .. }), "{error}");
    }
}

#[test]
fn a_check_reports_what_binding_would_and_keeps_nothing() {
    let first = bind_group(&[named("127.0.0.1:0")], &PLAIN).unwrap();
    let taken = first.addresses[0];
    let error = check(address(taken, false), Transport::Udp).unwrap_err();
    assert!(matches!(error, BindError::Taken { address, .. } if address == taken), "{error}");
    let elsewhere: SocketAddr = "198.51.100.7:0".parse().unwrap();
    let error = check(address(elsewhere, false), Transport::Udp).unwrap_err();
    assert!(matches!(error, BindError::NotHere { .. }), "{error}");
    check(address(elsewhere, true), Transport::Udp).unwrap();
    drop(first);
    check(address(taken, false), Transport::Udp).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listens = address(listener.local_addr().unwrap(), false);
    let error = check(listens, Transport::Tcp).unwrap_err();
    assert!(matches!(error, BindError::Taken { transport: Transport::Tcp, .. }), "{error}");
    check(listens, Transport::Udp).unwrap();
    bind_group(&[address(taken, false)], &PLAIN).unwrap();
}

#[test]
fn an_absent_address_is_an_error_or_a_notice() {
    // TEST-NET-2 (RFC 5737) is not assigned to any host.
    let elsewhere: SocketAddr = "198.51.100.7:0".parse().unwrap();
    let error = refused(bind_group(&[address(elsewhere, false)], &PLAIN));
    assert!(matches!(error, BindError::NotHere { address } if address == elsewhere), "{error}");
    let text = error.to_string();
    assert!(text.contains("ip addr") && text.contains("net.ipv4.ip_nonlocal_bind"), "{text}");

    let mixed = [address(elsewhere, true), named("127.0.0.1:0")];
    let group = bind_group(&mixed, &Options { workers: 2, ..PLAIN }).unwrap();
    assert_eq!((group.addresses.len(), group.workers[1].len()), (1, 1));
    match &group.notices[..] {
        [notice] => {
            assert!(notice.contains(&format!("not listening on {elsewhere},")), "{notice}");
        }
        other => panic!("{other:?}"),
    }

    let error = refused(bind_group(&[address(elsewhere, true)], &PLAIN));
    assert!(matches!(error, BindError::Nothing), "{error}");
}

#[test]
fn buffers_have_the_requested_size_or_a_notice() {
    let modest = Buffers { receive: 150_000, send: 100_000 };
    let group =
        bind_group(&[named("127.0.0.1:0")], &Options { buffers: modest, workers: 2, ..PLAIN });
    let group = group.unwrap();
    assert!(group.notices.is_empty(), "{:?}", group.notices);
    for socket in group.workers.iter().flatten() {
        let given = socket.buffers().unwrap();
        assert_eq!((given.receive, given.send), (300_000, 200_000), "twice, see socket(7)");
    }
    // A size above the limit of any host: granted to root, refused to others. Either result must be
    // reported correctly.
    let huge = Buffers { receive: 1 << 28, send: 1 << 28 };
    let group =
        bind_group(&[named("127.0.0.1:0")], &Options { buffers: huge, workers: 2, ..PLAIN });
    let group = group.unwrap();
    let given = group.workers[1][0].buffers().unwrap();
    let clamped = [given.receive, given.send].iter().filter(|given| **given / 2 < 1 << 28).count();
    assert_eq!(group.notices.len(), clamped, "{:?}", group.notices);
}

#[test]
fn a_client_has_its_port_to_itself() {
    let (client, notices) =
        bind_client("127.9.8.7:0".parse().unwrap(), Buffers::default()).unwrap();
    assert!(notices.is_empty());
    assert_eq!(client.address().ip().to_string(), "127.9.8.7");
    assert!(!client.reports_local());
    let error = bind_client(client.address(), Buffers::default()).unwrap_err();
    assert!(matches!(error, BindError::Taken { .. }), "{error}");
}
