//! A group of sockets for another number of workers: for a server that receives the sockets of its
//! predecessor, and has other workers or addresses.
//!
//! No socket of a group is closed: that would lose the datagrams queued in it and renumber the
//! other sockets, on whose numbers steering relies. So with fewer workers each reads several
//! sockets: worker `i % workers` reads socket `i` of a group, and the first `workers` sockets, to
//! which datagrams are steered, belong to the workers of the same numbers. More workers need more
//! sockets, which are bound behind the others as the last step: from then on they receive
//! datagrams.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;

use crate::bind::{Address, BindError, BoundSocket, Buffers, Group};

/// The sockets of one address, in the order of their group.
#[derive(Debug)]
pub struct AddressSockets {
    /// The address.
    pub address: SocketAddr,
    /// Its sockets.
    pub sockets: Vec<BoundSocket>,
}

/// Sockets that belong to a group but are not bound yet.
#[derive(Debug, Default)]
pub struct PendingSockets(Vec<BoundSocket>);

/// Distributes the sockets of `kept` over `workers`, opens missing ones, and binds the addresses in
/// `added`. The [`PendingSockets`] must be bound before datagrams are received.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be bound and is not optional.
///
/// # Panics
/// When `workers` is 0.
pub fn regroup(
    kept: Vec<AddressSockets>,
    added: &[Address],
    workers: usize,
    buffers: Buffers,
) -> Result<(Group, PendingSockets), BindError> {
    let mut group = Group::new(workers);
    let mut late = Vec::new();
    for AddressSockets { address, sockets } in kept {
        let missing = workers.saturating_sub(sockets.len());
        let kept = sockets.into_iter().map(|socket| socket.with_larger_buffers(buffers));
        let more = (0..missing).map(|_| {
            let (socket, notices) = BoundSocket::unbound(address)?.with_options(buffers)?;
            late.push(socket.try_clone().map_err(BindError::at(address, "copy a socket"))?);
            Ok((socket, notices))
        });
        group.add(address, kept.chain(more))?;
    }
    group.bind(added, buffers, true)?;
    Ok((group.with_an_address()?, PendingSockets(late)))
}

impl PendingSockets {
    /// Binds the sockets.
    ///
    /// # Errors
    /// The error of the first socket that cannot be bound. Datagrams that already arrived at the
    /// bound ones are lost.
    pub fn bind(self) -> io::Result<()> {
        self.0.iter().try_for_each(|socket| {
            let address = socket.address();
            SockRef::from(socket.as_udp()).bind(&address.into()).map_err(|error| {
                let what = format!("one more socket for {address} cannot be bound: {error}");
                io::Error::new(error.kind(), what)
            })
        })
    }

    /// Whether no socket is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::{Options, bind_group};
    use std::net::UdpSocket;

    const ANY: Options =
        Options { workers: 4, buffers: Buffers { receive: 0, send: 0 }, probe: true };

    fn addresses(texts: &[&str]) -> Vec<Address> {
        let parse = |text: &&str| Address { address: text.parse().unwrap(), optional: false };
        texts.iter().map(parse).collect()
    }

    fn kept(group: &Group) -> Vec<AddressSockets> {
        let copy = |socket: &BoundSocket| socket.try_clone().unwrap();
        let of = |&address: &SocketAddr| AddressSockets {
            address,
            sockets: group.sockets_at(address).into_iter().map(copy).collect(),
        };
        group.addresses.iter().map(of).collect()
    }

    /// Marks each socket by the size of its receive buffer.
    fn mark(group: &Group, address: SocketAddr) {
        for (number, socket) in group.sockets_at(address).into_iter().enumerate() {
            SockRef::from(socket.as_udp()).set_recv_buffer_size(50_000 + 10_000 * number).unwrap();
        }
    }

    fn marks(sockets: &[&BoundSocket]) -> Vec<usize> {
        let of = |socket: &&BoundSocket| (socket.buffers().unwrap().receive - 100_000) / 20_000;
        sockets.iter().map(of).collect()
    }

    #[test]
    fn fewer_workers_read_more_sockets_in_the_same_order() {
        let first = bind_group(&addresses(&["127.0.0.1:0", "127.0.0.1:0"]), &ANY).unwrap();
        let [address, other] = first.addresses[..] else { panic!("two addresses") };
        mark(&first, address);
        for workers in [3, 1, 2] {
            let (group, late) = regroup(kept(&first), &[], workers, Buffers::default()).unwrap();
            assert!(late.is_empty());
            assert_eq!(group.addresses, [address, other]);
            assert_eq!(marks(&group.sockets_at(address)), [0, 1, 2, 3]);
            for (worker, sockets) in group.workers.iter().enumerate() {
                let own: Vec<_> = sockets.iter().filter(|s| s.address() == address).collect();
                let expected: Vec<_> = (0..4).filter(|number| number % workers == worker).collect();
                assert_eq!(marks(&own), expected, "worker {worker} of {workers}");
            }
            // Regrouped once more from this state.
            let (next, late) = regroup(kept(&group), &[], 4, Buffers::default()).unwrap();
            assert!(late.is_empty());
            assert_eq!(marks(&next.sockets_at(address)), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn more_workers_get_sockets_that_are_bound_last() {
        let first = bind_group(&addresses(&["127.0.0.1:0"]), &ANY).unwrap();
        let address = first.addresses[0];
        mark(&first, address);
        let (group, late) = regroup(kept(&first), &[], 6, Buffers::default()).unwrap();
        assert!(!late.is_empty());
        // Datagrams now arrive at the first four sockets only.
        let send = |number: u32| {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(&number.to_be_bytes(), address).unwrap();
        };
        let heard = |sockets: &[&BoundSocket]| {
            let mut bytes = [0; 8];
            let all = |socket: &&BoundSocket| {
                std::iter::repeat_with(|| socket.as_udp().recv(&mut bytes))
                    .take_while(Result::is_ok)
                    .count()
            };
            let mut all = all;
            sockets.iter().map(&mut all).collect::<Vec<usize>>()
        };
        (0..200).for_each(send);
        let before = heard(&group.sockets_at(address));
        assert_eq!((before[..4].iter().sum::<usize>(), &before[4..]), (200, &[0, 0][..]));
        late.bind().unwrap();
        (0..200).for_each(send);
        let after = heard(&group.sockets_at(address));
        assert!(
            after.iter().all(|heard| *heard > 0) && after.iter().sum::<usize>() == 200,
            "{after:?}"
        );
    }

    #[test]
    fn addresses_are_added_and_dropped() {
        let first = bind_group(&addresses(&["127.0.0.1:0", "[::1]:0"]), &ANY).unwrap();
        let mut some = kept(&first);
        let dropped = some.pop().unwrap().address;
        let added = addresses(&["127.0.0.2:0"]);
        let (group, late) = regroup(some, &added, 2, Buffers::default()).unwrap();
        assert!(late.is_empty() && !group.addresses.contains(&dropped));
        assert_eq!(group.addresses[0], first.addresses[0]);
        assert_eq!(group.sockets_at(group.addresses[0]).len(), 4);
        assert_eq!(group.sockets_at(group.addresses[1]).len(), 2);
        // An address that another socket has is refused.
        let taken = [Address { address: dropped, optional: false }];
        let error = regroup(kept(&first), &taken, 2, Buffers::default()).unwrap_err();
        assert!(error.to_string().contains("is taken"), "{error}");
        assert!(regroup(Vec::new(), &[], 2, Buffers::default()).is_err());
    }
}
