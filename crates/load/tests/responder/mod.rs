//! A tracker that remembers nothing, on a thread, and that answers as fast as it is told to: it
//! says that each peer is alone, and that nobody is where it is asked by a scrape. That is right.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of this module")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Socket};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};
use onrush_proto::{ConnectionId, Request, scrape};

const ID: ConnectionId = ConnectionId(0x0123_4567_89AB_CDEF);

/// How fast it answers.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// At once.
    Prompt,
    /// Not for so long at the beginning of each second; what came meanwhile is answered then.
    Stalls(Duration),
    /// At most so many requests per second, in the order in which they come.
    Serves(f64),
}

pub struct Responder {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    pub fn start(listen: &str, manner: Manner) -> Self {
        let buffers = Buffers { receive: 4 << 20, send: 0 };
        let (socket, _) = bind_client(listen.parse().unwrap(), buffers).unwrap();
        let address = socket.address();
        let backend = Backend::new(vec![socket], Options::default()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(backend, manner, &stopped));
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut backend: Backend, manner: Manner, stop: &AtomicBool) {
    let start = Instant::now();
    // When the one behind the requests taken so far may be answered.
    let mut free = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        // As few as a millisecond's worth, so that a slow server's queue is in the kernel.
        let limit =
            if let Manner::Serves(rate) = manner { (rate / 1e3).ceil() as usize } else { 128 };
        let batch = backend.receive(limit.clamp(1, 128)).unwrap();
        let requests = batch.len() as f64;
        let answers: Vec<_> = batch
            .iter()
            .filter_map(|(bytes, slot)| Some((answer(bytes)?, slot.reply_to)))
            .collect();
        if requests == 0.0 {
            backend.wait(Duration::from_millis(20)).unwrap();
            continue;
        }
        match manner {
            Manner::Prompt => {}
            Manner::Stalls(lasts) => {
                let of_second = Duration::from_nanos(start.elapsed().subsec_nanos().into());
                std::thread::sleep(lasts.saturating_sub(of_second));
            }
            Manner::Serves(rate) => {
                // What it could not do while it was held up itself is made good, up to 50 ms.
                let earliest = start.elapsed().saturating_sub(Duration::from_millis(50));
                free = free.max(earliest) + Duration::from_secs_f64(requests / rate);
                std::thread::sleep(free.saturating_sub(start.elapsed()));
            }
        }
        backend.send(answers.iter().map(|(bytes, to)| Reply { bytes, to }));
    }
}

fn answer(datagram: &[u8]) -> Option<Vec<u8>> {
    match Request::parse(datagram).ok()? {
        Request::Connect(connect) => {
            let mut reply = [0; RESPONSE_LEN];
            let transaction_id = connect.transaction_id;
            ConnectResponse { transaction_id, connection_id: ID }.write(&mut reply);
            Some(reply.to_vec())
        }
        Request::Announce(announce) if announce.connection_id == ID => {
            let mut reply = [0; HEAD_LEN];
            let seeders = u32::from(announce.left == 0);
            let transaction_id = announce.transaction_id;
            AnnounceHead { transaction_id, interval: 1800, leechers: 1 - seeders, seeders }
                .write(&mut reply);
            Some(reply.to_vec())
        }
        Request::Scrape(request) if request.connection_id == ID => {
            let mut head = [0; scrape::HEAD_LEN];
            scrape::write_head(request.transaction_id, &mut head);
            let mut reply = head.to_vec();
            reply.resize(scrape::HEAD_LEN + scrape::COUNTS_LEN * request.info_hashes().len(), 0);
            Some(reply)
        }
        _ => None,
    }
}
