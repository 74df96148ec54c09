//! What the faulty trackers over HTTP and WebSocket share, those of the load tester too: a thread
//! per connection, and [`Tracker`] behind HTTP.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::http::AnnounceQuery;
use onrush_proto::{Announce, Connect, ConnectionId, InfoHash, Scrape, TransactionId, scrape};

use super::faulty::{Fault, Tracker};

/// A listening socket, whose connections are served until it is dropped.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// At an unused port of an address; `serve` is called on a thread for each connection.
    pub(crate) fn start(
        ip: &str,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, serve) = (Arc::clone(&stop), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || serve(stream));
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A tracker that takes the requests of HTTP.
pub(crate) struct HttpTracker {
    tracker: Mutex<Tracker>,
    /// Connection ids of the tracker, which HTTP does not have.
    ids: Mutex<HashMap<IpAddr, u64>>,
}

impl HttpTracker {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { tracker: Mutex::new(Tracker::new(fault)), ids: Mutex::default() }
    }

    /// Head and peers of the reply to an announce, whose key `ip` is this, or 0.
    ///
    /// # Errors
    /// The text of a failure.
    pub(crate) fn announce(
        &self,
        query: &AnnounceQuery,
        ip: u32,
        source: SocketAddr,
    ) -> Result<(AnnounceHead, Vec<u8>), String> {
        let announce = Announce {
            connection_id: self.id(source),
            info_hash: query.info_hash,
            peer_id: query.peer_id,
            left: u64::from(!query.seeder),
            event: query.event,
            num_want: query.num_want,
            port: query.port,
            ip,
            ..Announce::default()
        };
        let mut datagram = [0; 98];
        announce.write(&mut datagram);
        let mut reply = self.answer(&datagram, source)?;
        let peers = reply.split_off(HEAD_LEN);
        Ok((AnnounceHead::parse(reply.first_chunk().unwrap()), peers))
    }

    /// The counts of these swarms, of which those without counts are removed.
    ///
    /// # Errors
    /// The text of a failure.
    pub(crate) fn scrape(
        &self,
        hashes: &mut Vec<[u8; 20]>,
        source: SocketAddr,
    ) -> Result<Vec<[u8; 12]>, String> {
        let asked: Vec<_> = hashes.iter().copied().map(InfoHash).collect();
        let mut datagram = vec![0; 16 + 20 * asked.len()];
        Scrape::write(self.id(source), TransactionId(0), &asked, &mut datagram);
        let reply = self.answer(&datagram, source)?;
        let counts = reply[scrape::HEAD_LEN..].as_chunks().0.to_vec();
        hashes.truncate(counts.len());
        Ok(counts)
    }

    /// The reply to a datagram, or the text of a failure.
    fn answer(&self, datagram: &[u8], source: SocketAddr) -> Result<Vec<u8>, String> {
        let reply = self.tracker.lock().unwrap().answer(datagram, source).remove(0);
        match reply[3] {
            3 => Err(String::from_utf8_lossy(&reply[8..]).into_owned()),
            _ => Ok(reply),
        }
    }

    fn id(&self, source: SocketAddr) -> ConnectionId {
        let mut connect = [0; 16];
        Connect { transaction_id: TransactionId(0) }.write(&mut connect);
        let mut ids = self.ids.lock().unwrap();
        let id = ids.entry(source.ip()).or_insert_with(|| {
            let reply = self.answer(&connect, source).unwrap();
            u64::from_be_bytes(*reply[8..].first_chunk().unwrap())
        });
        ConnectionId(*id)
    }
}
