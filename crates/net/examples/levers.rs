//! What a request and its reply cost before anybody looks at them: a server that sends every
//! datagram back, and clients that ask, in one thread over loopback.
//!
//! ```text
//! cargo run --release -p onrush-net --example levers -- [clients] [rounds] [address] [portable]
//! ```
//!
//! The address is an IPv4 one (default: `127.0.0.1:0`; `0.0.0.0:0` shows what control messages cost).
//! Every round each client asks once and the server answers all. Under callgrind, `serve` is what
//! the backend takes in user space.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onrush_net::bind::{Address, Buffers, Options, bind_client, bind_group};
use onrush_net::mio::{self, Backend};
use onrush_net::{Reply, Return, Sent, Socket};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let clients: usize = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let rounds: u32 = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let portable = arguments.next().is_some();

    let buffers = Buffers { receive: 4 << 20, send: 4 << 20 };
    let address = Address { address: listen, optional: false };
    let mut group = bind_group(&[address], &Options { workers: 1, buffers, probe: true })?;
    let options = mio::Options { portable, ..mio::Options::default() };
    let mut server = Backend::new(group.workers.remove(0), options)?;

    let mut sockets = Vec::new();
    for n in 0..clients {
        let source = format!("127.1.{}.{}:0", n / 250, n % 250 + 1).parse()?;
        sockets.push(bind_client(source, Buffers::default())?.0);
    }
    let mut client = Backend::new(sockets, mio::Options::default())?;
    let peer = SocketAddr::from(([127, 0, 0, 1], group.addresses[0].port()));
    let to: Vec<_> = (0..clients).map(|n| Return::to(peer, n as u16)).collect();

    let (mut busy, mut sent) = (Duration::ZERO, Sent::default());
    for _ in 0..rounds {
        client.send(to.iter().map(|to| Reply { bytes: &[7; 98], to }));
        let start = Instant::now();
        sent += serve(&mut server)?;
        busy += start.elapsed();
        while !client.receive(usize::MAX)?.is_empty() {}
    }
    println!(
        "{} replies in {} calls, {:.0} ns each of receiving and sending, kernel included",
        sent.datagrams,
        sent.calls,
        busy.as_nanos() as f64 / sent.datagrams.max(1) as f64
    );
    println!("{:?}", server.segmentation());
    Ok(())
}

/// Answers all that is there.
#[inline(never)]
fn serve(server: &mut Backend) -> Result<Sent, Box<dyn Error>> {
    let mut sent = Sent::default();
    let mut replies = Vec::with_capacity(128);
    loop {
        server.wait(Duration::ZERO)?;
        let batch = server.receive(usize::MAX)?;
        if batch.is_empty() {
            return Ok(sent);
        }
        replies.clear();
        replies.extend(batch.iter().map(|(_, slot)| slot.reply_to));
        sent += server.send(replies.iter().map(|to| Reply { bytes: &[3; 140], to }));
    }
}
