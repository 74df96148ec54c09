//! AF_XDP where memory may not be locked: root of a user namespace lacks CAP_IPC_LOCK.

use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use onrush_net::xdp::{OpenError, Queue, QueueOptions};

use crate::namespace::{in_a_namespace, ip};

#[test]
fn a_queue_that_needs_more_memory_than_allowed_names_both() {
    in_a_namespace("memory::a_queue_that_needs_more_memory_than_allowed_names_both", || {
        ip("link add onrush0 type veth peer name onrush1");
        setrlimit(Resource::RLIMIT_MEMLOCK, 65_536, 65_536).unwrap();
        let interface = "onrush0".to_owned();
        let options = QueueOptions {
            interface,
            queue: 0,
            place: 0,
            ring: 256,
            batch: 32,
            zero_copy: false,
            busy_poll: 0,
        };
        let error = Queue::open(options, Duration::ZERO).unwrap_err();
        let OpenError::NoMemory { needed, allowed } = error else { panic!("{error:?}") };
        assert_eq!((needed, allowed), (2 << 20, 65_536));
    });
}
