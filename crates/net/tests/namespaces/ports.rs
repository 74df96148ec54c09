//! Ports chosen by the system, when few are left.

use std::collections::BTreeSet;

use onrush_net::bind::{Address, Buffers, Options, bind_group};

use crate::namespace::{in_a_namespace, ip};

/// Several groups bind port 0 at the same time in a small port range: no two groups get the same
/// port, and none fails because its port was taken meanwhile.
#[test]
fn a_port_chosen_by_the_system_belongs_to_one_group() {
    in_a_namespace("ports::a_port_chosen_by_the_system_belongs_to_one_group", || {
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
