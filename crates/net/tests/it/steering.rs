//! Steering over real sockets, both families: each datagram arrives at the socket that the function
//! computes, and at no other.

use std::net::{SocketAddr, UdpSocket};

use onrush_net::bind::{Address, BoundSocket, Buffers, Group, Options, bind_client, bind_group};
use onrush_net::steering::{Function, Steering, detach};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A function as a tracker would use it: a key of 20 bytes at 16.
fn function(rng: &mut SmallRng, buckets: u16) -> Function {
    let multipliers = rng.random::<[u32; 5]>().map(|word| word | 1);
    Function { offset: 16, multipliers, min_len: 36, buckets }
}

/// A group of `workers` on one address of each family.
fn group(workers: usize) -> Group {
    let addresses = ["127.0.0.1:0", "[::1]:0"]
        .map(|address| Address { address: address.parse().unwrap(), optional: false });
    let buffers = Buffers { receive: 1 << 20, send: 0 };
    bind_group(&addresses, &Options { workers, buffers, probe: true }).unwrap()
}

/// The payloads at a socket; loopback has delivered them by now.
fn drain(socket: &BoundSocket) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok((len, _)) = socket.as_udp().recv_from(&mut buffer) {
        payloads.push(buffer[..len].to_vec());
    }
    payloads
}

/// The payloads at each worker's socket for one address.
fn landed(group: &Group, address: usize) -> Vec<Vec<Vec<u8>>> {
    group.workers.iter().map(|sockets| drain(&sockets[address])).collect()
}

/// How many payloads are at each worker's socket for one address.
fn counts_at(group: &Group, address: usize) -> Vec<usize> {
    landed(group, address).iter().map(Vec::len).collect()
}

/// Sends `payloads` from as many ports, so that the kernel's own hash spreads them.
fn send(to: SocketAddr, payloads: &[Vec<u8>]) {
    let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    for payload in payloads {
        let client = UdpSocket::bind(any).unwrap();
        assert_eq!(client.send_to(payload, to).unwrap(), payload.len());
    }
}

/// Random payloads of at least `min` bytes.
fn payloads(rng: &mut SmallRng, count: usize, min: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| (0..rng.random_range(min..min + 80)).map(|_| rng.random()).collect())
        .collect()
}

/// An independent implementation of the function: integer arithmetic in 128 bits.
fn independent(function: &Function, payload: &[u8]) -> usize {
    let word = |i: usize| {
        payload[function.offset as usize + 4 * i..][..4]
            .iter()
            .fold(0u128, |word, byte| word * 256 + u128::from(*byte))
    };
    let sum: u128 = (0..5).map(|i| word(i) * u128::from(function.multipliers[i])).sum();
    let high = (sum % (1 << 32)) / (1 << 16);
    (high * u128::from(function.buckets) / (1 << 16)) as usize
}

#[test]
fn every_datagram_arrives_where_the_function_says() {
    let mut rng = SmallRng::seed_from_u64(1);
    for workers in [1, 2, 5] {
        let group = group(workers);
        let function = function(&mut rng, workers as u16);
        let (_steering, notices) = Steering::attach(function, &group);
        assert!(notices.is_empty(), "{notices:?}");
        for (number, &address) in group.addresses.iter().enumerate() {
            let payloads = payloads(&mut rng, 200, 36);
            send(address, &payloads);
            let landed = landed(&group, number);
            assert_eq!(landed.iter().map(Vec::len).sum::<usize>(), payloads.len());
            for (worker, payloads) in landed.iter().enumerate() {
                for payload in payloads {
                    assert_eq!(independent(&function, payload), worker);
                    assert_eq!(function.bucket(payload), Some(worker as u16));
                }
            }
        }
    }
}

#[test]
fn datagrams_without_a_key_are_spread_by_the_kernel() {
    let mut rng = SmallRng::seed_from_u64(2);
    let group = group(4);
    let function = function(&mut rng, 4);
    let (_steering, _) = Steering::attach(function, &group);
    for (number, &address) in group.addresses.iter().enumerate() {
        // Equal payloads of the greatest length without a key.
        for short in [vec![7; 16], vec![7; 35]] {
            assert_eq!(function.bucket(&short), None);
            send(address, &vec![short; 100]);
            let counts = counts_at(&group, number);
            assert_eq!(counts.iter().sum::<usize>(), 100);
            assert!(counts.iter().all(|count| (5..50).contains(count)), "{counts:?}");
        }
        // One byte more, and all arrive at one socket.
        send(address, &vec![vec![7; 36]; 100]);
        let counts = counts_at(&group, number);
        assert!(counts.contains(&100), "{counts:?}");
    }
}

#[test]
fn sockets_beyond_the_buckets_receive_nothing() {
    let mut rng = SmallRng::seed_from_u64(3);
    let group = group(3);
    let (_steering, _) = Steering::attach(function(&mut rng, 2), &group);
    send(group.addresses[0], &payloads(&mut rng, 100, 36));
    let counts = counts_at(&group, 0);
    assert!(counts[0] > 20 && counts[1] > 20 && counts[2] == 0, "{counts:?}");
}

#[test]
fn a_withdrawn_bucket_is_spread_and_a_restored_one_is_not() {
    let mut rng = SmallRng::seed_from_u64(4);
    let group = group(4);
    let function = function(&mut rng, 4);
    let (mut steering, _) = Steering::attach(function, &group);
    assert!(steering.addresses().eq(group.addresses.iter().copied()));
    let all = payloads(&mut rng, 400, 36);
    let of = |bucket| -> Vec<Vec<u8>> {
        all.iter().filter(|payload| function.bucket(payload) == Some(bucket)).cloned().collect()
    };
    // The sockets where the payloads of a bucket arrived, for each address.
    let counts = |bucket| -> Vec<Vec<usize>> {
        let count = |(number, &address): (usize, &SocketAddr)| {
            send(address, &of(bucket));
            counts_at(&group, number)
        };
        group.addresses.iter().enumerate().map(count).collect()
    };
    let whole =
        |bucket: u16| counts(bucket).iter().all(|c| c[usize::from(bucket)] == of(bucket).len());
    let spread = |bucket| counts(bucket).iter().all(|c| c.iter().all(|&count| count > 5));
    assert!((0..4).all(whole));
    steering.withdraw(2).unwrap();
    steering.withdraw(0).unwrap();
    steering.withdraw(2).unwrap();
    assert_eq!(steering.withdrawn(), [2, 0]);
    assert!(spread(2) && spread(0) && whole(1) && whole(3));
    steering.restore(2).unwrap();
    assert!(whole(2) && spread(0) && whole(1) && whole(3));
    steering.restore(0).unwrap();
    assert!((0..4).all(whole));
}

/// As after an upgrade to a tracker that does not steer: the predecessor's program must be removed.
#[test]
fn a_detached_group_is_spread_by_the_kernel() {
    let mut rng = SmallRng::seed_from_u64(6);
    let group = group(4);
    detach(&group).unwrap();
    // Payloads of one bucket.
    let _ = Steering::attach(function(&mut rng, 1), &group);
    let all = payloads(&mut rng, 400, 36);
    let counts = |number: usize| -> Vec<usize> {
        send(group.addresses[number], &all);
        counts_at(&group, number)
    };
    assert!((0..2).all(|number| counts(number) == [400, 0, 0, 0]));
    detach(&group).unwrap();
    assert!((0..2).all(|number| counts(number).iter().all(|count| *count > 20)));
}

#[test]
fn refused_steering_is_a_notice() {
    // Sockets without SO_REUSEPORT are in no group, and accept no program.
    let alone = || bind_client("127.0.0.1:0".parse().unwrap(), Buffers::default()).unwrap().0;
    let workers = vec![vec![alone(), alone()]];
    let addresses: Vec<_> = workers[0].iter().map(|socket| socket.address()).collect();
    let group = Group { workers, addresses, notices: Vec::new() };
    let function = function(&mut SmallRng::seed_from_u64(5), 1);
    let (steering, notices) = Steering::attach(function, &group);
    assert_eq!((steering.addresses().count(), notices.len()), (0, 2), "{notices:?}");
    assert!(notices[0].to_string().contains(&group.addresses[0].to_string()), "{}", notices[0]);
    send(group.addresses[0], &vec![vec![1; 40]; 50]);
    assert_eq!(counts_at(&group, 0).iter().sum::<usize>(), 50);
}
