//! The minimal responder: correct replies without any state, to measure the load tester with.
//!
//! Every announce is answered as that of a lone peer, every scrape with zeros. So the cost of a run
//! against it is the kernel's path and the load tester.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin responder -- 127.0.0.1:6999 [CPU]
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};
use onrush_proto::{ConnectionId, Request, TransactionId, scrape};

/// The only connection id.
const ID: ConnectionId = ConnectionId(0x0123_4567_89AB_CDEF);
/// Bytes of the largest reply: a scrape of 74 swarms.
const LARGEST: usize = scrape::HEAD_LEN + scrape::COUNTS_LEN * scrape::MAX_HASHES;
/// Datagrams per batch.
const BATCH: usize = 128;

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let listen: SocketAddr = words.next().context("which address?")?.parse()?;
    if let Some(cpu) = words.next() {
        onrush_net::affinity::pin_current_thread(cpu.parse()?)?;
    }
    let buffers = Buffers { receive: 4 << 20, send: 4 << 20 };
    let (socket, notices) = bind_client(listen, buffers)?;
    notices.iter().for_each(|notice| eprintln!("{notice}"));
    println!("listening on {}, process {}", socket.address(), std::process::id());
    let mut backend = Backend::new(vec![socket], Options { batch: BATCH, ..Options::default() })?;
    let mut bytes = vec![[0; LARGEST]; BATCH];
    let mut ways: Vec<(usize, Return)> = Vec::with_capacity(BATCH);
    loop {
        ways.clear();
        for (datagram, slot) in backend.receive(BATCH)?.iter() {
            let len = answer(datagram, &mut bytes[ways.len()]);
            if len > 0 {
                ways.push((len, slot.reply_to));
            }
        }
        if ways.is_empty() {
            backend.wait(Duration::from_secs(1))?;
        }
        let replies = ways.iter().zip(&bytes);
        backend.send(replies.map(|((len, to), bytes)| Reply { bytes: &bytes[..*len], to }));
    }
}

/// Writes the reply and returns its length; 0 for no reply.
fn answer(datagram: &[u8], into: &mut [u8; LARGEST]) -> usize {
    match Request::parse(datagram) {
        Ok(Request::Connect(connect)) => {
            let transaction_id = connect.transaction_id;
            let reply = ConnectResponse { transaction_id, connection_id: ID };
            reply.write(into.first_chunk_mut().expect("room for any reply"));
            RESPONSE_LEN
        }
        Ok(Request::Announce(announce)) if announce.connection_id == ID => {
            let seeders = u32::from(announce.left == 0);
            let transaction_id = announce.transaction_id;
            AnnounceHead { transaction_id, interval: 1800, leechers: 1 - seeders, seeders }
                .write(into.first_chunk_mut().expect("room for any reply"));
            HEAD_LEN
        }
        Ok(Request::Scrape(request)) if request.connection_id == ID => {
            write_zeros(request.transaction_id, request.info_hashes().len(), into)
        }
        _ => 0,
    }
}

fn write_zeros(transaction_id: TransactionId, hashes: usize, into: &mut [u8; LARGEST]) -> usize {
    scrape::write_head(transaction_id, into.first_chunk_mut().expect("room for any reply"));
    let len = scrape::HEAD_LEN + scrape::COUNTS_LEN * hashes.min(scrape::MAX_HASHES);
    into[scrape::HEAD_LEN..len].fill(0);
    len
}
