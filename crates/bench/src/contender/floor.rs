//! The floor: a server of onrush-lab on the network code of onrush that does no work of a tracker.
//! No tracker on sockets can cost less.

use super::{Contender, Launch, USUAL, Variant};

/// Bytes of an announce reply without peers, and of a peer (BEP 15).
const REPLY: usize = 20;
const PEER: usize = 6;

/// The variant whose replies are as long.
pub const MODEL: &str = "onrush (colocated)";

/// The floor, which has one thread.
pub const FLOOR: Contender = Contender {
    name: "floor",
    keyword: "floor",
    remedy: "cargo build --release -p onrush-lab --bin floor",
    settings: "replies as long as the mean of onrush (colocated) just before, without peers where \
               that is not measured; all of its replies count",
    by_name: true,
    checked: false,
    variants: |_, seats, _| match seats.tracker.len() {
        1 => vec![Variant::new("floor", None, &[])],
        _ => Vec::new(),
    },
    launch: |found, _, setup| {
        let bytes = REPLY + PEER * setup.peers;
        let line = format!("--listen {} --reply-bytes {bytes}", setup.address);
        let arguments = line.split(' ').map(Into::into).collect();
        Ok(Launch { program: found.program.clone(), arguments, ..Launch::default() })
    },
    ..USUAL
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contender::Setup;
    use crate::contender::tests::{installed, setup};
    use crate::mix::Mix;

    #[test]
    fn replies_have_the_length_of_their_peers() {
        let floor = installed(&FLOOR);
        let variant = Variant::new("floor", None, &[]);
        let of = |setup: &Setup| floor.launch(&variant, setup).unwrap()[0].0.arguments.join(" ");
        let setup = Setup { peers: 8, ..setup(Path::new("/tmp"), Mix::Spread) };
        assert_eq!(of(&setup), "--listen 127.0.0.1:7000 --reply-bytes 68");
        let any = Setup { address: ([0, 0, 0, 0], 7000).into(), ..setup };
        assert_eq!(of(&any), "--listen 0.0.0.0:7000 --reply-bytes 68");
    }
}
