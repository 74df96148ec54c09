//! QUIC by quinn-proto, a state machine, over one socket per side. Each stream is bidirectional.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use onrush_net::mio::Backend;
use onrush_net::{Return, Socket as _};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, Incoming, ServerConfig, Side, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};

use super::certificate::NAME;
use super::datagrams::{Egress, backend, socket, wake};
use super::stack::{Arrivals, Stack, Wake};

/// Bytes of a connection without an acknowledgement.
const SEND_WINDOW: u64 = 64 << 20;
/// Datagrams of a connection that are made at once.
const AT_ONCE: usize = 10;
/// Datagrams that are received at once.
const BATCH: usize = 128;

/// The role of a side.
pub(super) enum Role {
    /// A server with this encryption.
    Server(Arc<rustls::ServerConfig>),
    /// The client of a server.
    Client(SocketAddr, Arc<rustls::ClientConfig>),
}

/// A side's connections over QUIC.
pub(super) struct Quic {
    backend: Backend,
    address: SocketAddr,
    egress: Egress,
    endpoint: Endpoint,
    client: Option<(SocketAddr, ClientConfig)>,
    /// By the number of their handle.
    links: Vec<Option<Link>>,
    /// Handles by the number of the connection.
    handles: Vec<usize>,
    /// Places of connections with something to do.
    dirty: Vec<usize>,
    /// Output of the state machines.
    scratch: Vec<u8>,
}

struct Link {
    connection: Connection,
    number: u32,
    to: Return,
    /// Streams opened so far.
    opened: u64,
    is_dirty: bool,
    deadline: Option<Instant>,
}

impl Quic {
    /// A side whose connections have up to `streams` streams.
    pub(super) fn new(streams: u32, role: Role) -> io::Result<Self> {
        let (backend, addresses) = backend(vec![socket()?])?;
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(streams))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .send_window(SEND_WINDOW);
        let transport = Arc::new(transport);
        let (server, client) = match role {
            Role::Server(config) => {
                let crypto = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
                let mut server = ServerConfig::with_crypto(Arc::new(crypto));
                server.transport_config(transport);
                (Some(Arc::new(server)), None)
            }
            Role::Client(server, config) => {
                let crypto = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
                let mut client = ClientConfig::new(Arc::new(crypto));
                client.transport_config(transport);
                (None, Some((server, client)))
            }
        };
        Ok(Self {
            backend,
            address: addresses[0],
            egress: Egress::default(),
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None),
            client,
            links: Vec::new(),
            handles: Vec::new(),
            dirty: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn add(&mut self, handle: ConnectionHandle, connection: Connection, number: u32) {
        let to = Return::to(connection.remote_address(), 0);
        let place = handle.0;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        if self.handles.len() <= number as usize {
            self.handles.resize(number as usize + 1, usize::MAX);
        }
        self.handles[number as usize] = place;
        let link = Link { connection, number, to, opened: 0, is_dirty: false, deadline: None };
        self.links[place] = Some(link);
        self.mark(place);
    }

    /// Notes that a connection has something to do.
    fn mark(&mut self, place: usize) {
        if let Some(link) = self.links.get_mut(place).and_then(Option::as_mut)
            && !std::mem::replace(&mut link.is_dirty, true)
        {
            self.dirty.push(place);
        }
    }

    fn respond(&mut self, transmit: &Transmit) {
        let to = Return::to(transmit.destination, 0);
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        self.egress.push(&to, &self.scratch[..transmit.size], segment);
        self.scratch.clear();
    }

    /// Gives a batch of datagrams to their connections, and returns those that clients begin.
    fn receive_batch(&mut self, now: Instant, begun: &mut Vec<Incoming>) -> io::Result<()> {
        let received = self.backend.receive(BATCH)?;
        for (bytes, slot) in received.iter() {
            let bytes = BytesMut::from(bytes);
            let scratch = &mut self.scratch;
            match self.endpoint.handle(now, slot.source, None, None, bytes, scratch) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    let link = self.links.get_mut(handle.0).and_then(Option::as_mut);
                    let Some(link) = link else { continue };
                    link.connection.handle_event(event);
                    if !std::mem::replace(&mut link.is_dirty, true) {
                        self.dirty.push(handle.0);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => begun.push(incoming),
                Some(DatagramEvent::Response(transmit)) => {
                    let to = Return::to(transmit.destination, 0);
                    self.egress.push(&to, &scratch[..transmit.size], transmit.size);
                    scratch.clear();
                }
                None => {}
            }
        }
        Ok(())
    }

    fn accept(&mut self, incoming: Incoming, now: Instant) {
        let number = self.handles.len() as u32;
        match self.endpoint.accept(incoming, now, &mut self.scratch, None) {
            Ok((handle, connection)) => self.add(handle, connection, number),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit);
                }
            }
        }
        self.scratch.clear();
    }

    /// Reads the events of a connection.
    fn read(&mut self, place: usize, arrivals: &mut Arrivals) {
        let Some(link) = &mut self.links[place] else { return };
        link.exchange(ConnectionHandle(place), &mut self.endpoint);
        let mut is_lost = false;
        while let Some(event) = link.connection.poll() {
            match event {
                Event::Connected => arrivals.opened.push(link.number),
                Event::ConnectionLost { reason } => {
                    is_lost = true;
                    arrivals.closed.push((link.number, reason.to_string()));
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = link.connection.streams().accept(dir) {
                        link.read(id, arrivals);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => link.read(id, arrivals),
                _ => {}
            }
        }
        if is_lost {
            self.handles[link.number as usize] = usize::MAX;
        }
        if link.connection.is_drained() {
            self.links[place] = None;
        }
    }

    /// Makes the datagrams of a connection.
    fn transmit(&mut self, place: usize, now: Instant) {
        let Some(link) = &mut self.links[place] else { return };
        link.is_dirty = false;
        while let Some(transmit) = link.connection.poll_transmit(now, AT_ONCE, &mut self.scratch) {
            let segment = transmit.segment_size.unwrap_or(transmit.size);
            self.egress.push(&link.to, &self.scratch[..transmit.size], segment);
            self.scratch.clear();
        }
        link.exchange(ConnectionHandle(place), &mut self.endpoint);
        link.deadline = link.connection.poll_timeout();
    }
}

impl Link {
    /// Passes events between a connection and its endpoint.
    fn exchange(&mut self, handle: ConnectionHandle, endpoint: &mut Endpoint) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    fn read(&mut self, id: StreamId, arrivals: &mut Arrivals) {
        let mut stream = self.connection.recv_stream(id);
        // A stream that was closed has no more bytes.
        let Ok(mut chunks) = stream.read(true) else { return };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            arrivals.push(self.number, id.index() as u32, &chunk.bytes);
        }
        // Whether it asks for a transmission: the connection is dirty in any case.
        let _ = chunks.finalize();
    }
}

impl Stack for Quic {
    fn wake(&self) -> io::Result<Wake> {
        Ok(wake(&self.backend))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.backend.wait(timeout)
    }

    fn receive(&mut self, now: Instant, arrivals: &mut Arrivals) -> io::Result<()> {
        let mut begun = Vec::new();
        self.receive_batch(now, &mut begun)?;
        for incoming in begun {
            self.accept(incoming, now);
        }
        for place in 0..self.links.len() {
            if let Some(link) = &mut self.links[place]
                && link.deadline.is_some_and(|deadline| deadline <= now)
            {
                link.connection.handle_timeout(now);
                self.mark(place);
            }
        }
        for at in 0..self.dirty.len() {
            self.read(self.dirty[at], arrivals);
        }
        Ok(())
    }

    fn connect(&mut self, connection: u32, now: Instant) -> io::Result<()> {
        let (server, config) = self.client.clone().ok_or(io::ErrorKind::NotConnected)?;
        let begun = self.endpoint.connect(now, config, server, NAME);
        let (handle, state) = begun.map_err(io::Error::other)?;
        self.add(handle, state, connection);
        Ok(())
    }

    fn send(&mut self, connection: u32, stream: u32, bytes: &[u8]) -> bool {
        let Some(&place) = self.handles.get(connection as usize) else { return false };
        let Some(link) = self.links.get_mut(place).and_then(Option::as_mut) else { return false };
        while link.connection.side() == Side::Client && link.opened <= u64::from(stream) {
            if link.connection.streams().open(Dir::Bi).is_none() {
                return false;
            }
            link.opened += 1;
        }
        let id = StreamId::new(Side::Client, Dir::Bi, u64::from(stream));
        let written = link.connection.send_stream(id).write(bytes);
        self.mark(place);
        // A block is smaller than what a stream may have without an acknowledgement, and it has a
        // bounded number of them. If a part is refused, the echo is wrong, which is noticed.
        written.is_ok_and(|count| count == bytes.len())
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        let dirty = std::mem::take(&mut self.dirty);
        for &place in &dirty {
            self.transmit(place, now);
            self.egress.flush_batch(&mut self.backend);
        }
        self.dirty = dirty;
        self.dirty.clear();
        self.egress.flush(&mut self.backend);
        Ok(())
    }

    fn timeout(&self) -> Option<Instant> {
        self.links.iter().flatten().filter_map(|link| link.deadline).min()
    }

    fn unsent(&self) -> u64 {
        self.egress.unsent
    }
}
