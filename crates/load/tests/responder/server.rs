//! A tracker without state, on a thread: every announcing peer is alone in its swarm, and every
//! scrape finds an empty one. These replies are right for a tracker that has just started.

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

/// The speed of the replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Replies at once.
    Prompt,
    /// Pauses at the start of each second, then answers the requests that have arrived meanwhile.
    Stalls(Duration),
    /// Answers at most this many requests per second, in the order of their arrival.
    Serves(f64),
}

pub(crate) struct Responder {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    pub(crate) fn start(listen: &str, manner: Behaviour) -> Self {
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

fn serve(mut backend: Backend, manner: Behaviour, stop: &AtomicBool) {
    let start = Instant::now();
    // When the next request may be answered.
    let mut free = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        // At most a millisecond of requests, so that the queue of a slow server is in the kernel.
        let limit =
            if let Behaviour::Serves(rate) = manner { (rate / 1e3).ceil() as usize } else { 128 };
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
            Behaviour::Prompt => {}
            Behaviour::Stalls(pause) => {
                let of_second = Duration::from_nanos(start.elapsed().subsec_nanos().into());
                std::thread::sleep(pause.saturating_sub(of_second));
            }
            Behaviour::Serves(rate) => {
                // A delay of this thread of up to 50 ms is caught up.
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
