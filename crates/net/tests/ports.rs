//! Ports of the system's choice, where these are few. Apart from other tests of binding: a process that a test starts
//! has this one's sockets until it has begun, and addresses that are given back meanwhile are taken that long.
#![cfg(target_os = "linux")]

mod namespace;

use std::collections::BTreeSet;

use onrush_net::bind::{Address, Buffers, Options, bind_group};

use namespace::{in_a_namespace, ip};

/// Few ports and many who want one at the same time: nobody gets another's, and none is told that a port which it did
/// not name is taken.
#[test]
fn a_port_of_the_systems_choice_is_had_by_one_group() {
    in_a_namespace("a_port_of_the_systems_choice_is_had_by_one_group", || {
        ip("link set lo up");
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 20015").unwrap();
        let wanted = Address { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        let options = Options { workers: 2, buffers: Buffers::default(), probe: true };
        let bind = || bind_group(&[wanted], &options);
        for _ in 0..200 {
            let groups: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
            });
            let ports: BTreeSet<_> = groups.iter().map(|group| group.addresses[0].port()).collect();
            assert_eq!(ports.len(), groups.len(), "two groups have one port: {ports:?}");
        }
    });
}
