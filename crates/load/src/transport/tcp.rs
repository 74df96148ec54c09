//! TCP, and TLS over it: each connection carries its streams as [`frames`](super::frames).

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::certificate::NAME;
use super::frames::{Decoder, header};
use super::stack::{Arrivals, Stack, Wake};

/// Tokens of what is no connection.
const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// Bytes that a call reads.
const READ: usize = 1 << 17;
/// Bytes of a connection that may wait for room in the kernel.
const MAX_WAITING: usize = 8 << 20;
/// Bytes of memory that a connection without output keeps.
const KEPT: usize = 1 << 15;

/// The encryption of a side.
pub(super) enum Encryption {
    /// None.
    Plain,
    /// The server's.
    Server(Arc<ServerConfig>),
    /// The client's.
    Client(Arc<ClientConfig>),
}

/// A side's connections over TCP.
pub(super) struct Tcp {
    poll: Poll,
    waker: Arc<Waker>,
    events: Events,
    listener: Option<TcpListener>,
    /// The server, for the client.
    server: Option<SocketAddr>,
    encryption: Encryption,
    streams: u32,
    links: Vec<Option<Link>>,
    /// Connections with output to hand to the kernel.
    dirty: Vec<u32>,
    /// Connections whose output failed, for the next turn.
    failed: Vec<(u32, String)>,
    buffer: Box<[u8]>,
}

/// A connection.
struct Link {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
    is_open: bool,
    is_dirty: bool,
    decoder: Decoder,
    /// Output, and how much of it the kernel has.
    out: Vec<u8>,
    sent: usize,
}

impl Tcp {
    /// A side whose connections have up to `streams` streams: the client of `server`, or a server.
    pub(super) fn new(
        streams: u32,
        server: Option<SocketAddr>,
        encryption: Encryption,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let listener = match server {
            Some(_) => None,
            None => {
                let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
                poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
                Some(listener)
            }
        };
        Ok(Self {
            waker: Arc::new(Waker::new(poll.registry(), WAKER)?),
            poll,
            events: Events::with_capacity(1024),
            listener,
            server,
            encryption,
            streams,
            links: Vec::new(),
            dirty: Vec::new(),
            failed: Vec::new(),
            buffer: vec![0; READ].into(),
        })
    }

    /// The server's address.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.as_ref().map_or(Err(io::ErrorKind::NotConnected.into()), |it| it.local_addr())
    }

    fn add(&mut self, number: usize, mut stream: TcpStream) -> io::Result<()> {
        let tls = match &self.encryption {
            Encryption::Plain => None,
            Encryption::Server(config) => {
                let session =
                    ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Some(Connection::Server(session))
            }
            Encryption::Client(config) => {
                let name = NAME.try_into().map_err(io::Error::other)?;
                let session = ClientConnection::new(Arc::clone(config), name);
                Some(Connection::Client(session.map_err(io::Error::other)?))
            }
        };
        let tls = tls.map(|mut session| {
            session.set_buffer_limit(None);
            Box::new(session)
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(number), interest)?;
        if self.links.len() <= number {
            self.links.resize_with(number + 1, || None);
        }
        let decoder = Decoder::new(self.streams);
        self.links[number] = Some(Link {
            stream,
            tls,
            is_open: false,
            is_dirty: false,
            decoder,
            out: Vec::new(),
            sent: 0,
        });
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nodelay(true)?;
                    self.add(self.links.len(), stream)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from a connection that has an event, and writes to it.
    fn serve(&mut self, number: u32, arrivals: &mut Arrivals) {
        let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let served = link
            .establish(number, arrivals)
            .and_then(|()| link.read(number, &mut self.buffer, arrivals))
            .and_then(|()| link.write());
        if let Err(error) = served {
            self.links[number as usize] = None;
            arrivals.closed.push((number, error.to_string()));
        }
    }
}

impl Link {
    /// Notices that the connection is established.
    fn establish(&mut self, number: u32, arrivals: &mut Arrivals) -> io::Result<()> {
        if self.is_open {
            return Ok(());
        }
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        let is_connected = self.stream.peer_addr().is_ok();
        if is_connected && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking()) {
            self.is_open = true;
            arrivals.opened.push(number);
        }
        Ok(())
    }

    fn read(&mut self, number: u32, buffer: &mut [u8], arrivals: &mut Arrivals) -> io::Result<()> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(io::Error::other("the other side closed the connection")),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => return Ok(()),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                },
            };
            self.accept(number, &buffer[..count], arrivals)?;
            // A short read has emptied the socket; later input is another event.
            if count < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Takes bytes that the kernel has received.
    fn accept(&mut self, number: u32, mut bytes: &[u8], arrivals: &mut Arrivals) -> io::Result<()> {
        let Self { tls, decoder, .. } = self;
        let Some(tls) = tls else {
            let each = |stream, payload: &[u8]| arrivals.push(number, stream, payload);
            return decoder.feed(bytes, each).map_err(io::Error::other);
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            let mut reader = tls.reader();
            loop {
                let plain = match reader.fill_buf() {
                    Ok(plain) => plain,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                if plain.is_empty() {
                    break;
                }
                let each = |stream, payload: &[u8]| arrivals.push(number, stream, payload);
                decoder.feed(plain, each).map_err(io::Error::other)?;
                let count = plain.len();
                reader.consume(count);
            }
        }
        self.establish(number, arrivals)
    }

    /// Hands output to the kernel, as far as there is room.
    fn write(&mut self) -> io::Result<()> {
        self.is_dirty = false;
        let written = match &mut self.tls {
            Some(tls) => {
                if self.is_open && !self.out.is_empty() {
                    tls.writer().write_all(&self.out)?;
                    self.out.clear();
                }
                loop {
                    match tls.wants_write() {
                        true => match tls.write_tls(&mut self.stream) {
                            Ok(_) => {}
                            Err(error) => break Err(error),
                        },
                        false => break Ok(()),
                    }
                }
            }
            None => loop {
                match &self.out[self.sent..] {
                    [] => break Ok(()),
                    rest => match self.stream.write(rest) {
                        Ok(count) => self.sent += count,
                        Err(error) => break Err(error),
                    },
                }
            },
        };
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            self.out.shrink_to(KEPT);
        }
        match written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        }
    }
}

impl Stack for Tcp {
    fn wake(&self) -> io::Result<Wake> {
        let waker = Arc::clone(&self.waker);
        Ok(Box::new(move || drop(waker.wake())))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            other => other,
        }
    }

    fn receive(&mut self, _: Instant, arrivals: &mut Arrivals) -> io::Result<()> {
        arrivals.closed.append(&mut self.failed);
        let tokens: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
        for token in tokens {
            match token {
                WAKER => {}
                LISTENER => self.accept()?,
                Token(number) => self.serve(number as u32, arrivals),
            }
        }
        self.events.clear();
        Ok(())
    }

    fn connect(&mut self, connection: u32, _: Instant) -> io::Result<()> {
        let server = self.server.ok_or(io::ErrorKind::NotConnected)?;
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        self.add(connection as usize, stream)
    }

    fn send(&mut self, connection: u32, stream: u32, bytes: &[u8]) -> bool {
        let link = self.links.get_mut(connection as usize).and_then(Option::as_mut);
        let Some(link) = link.filter(|link| link.out.len() - link.sent < MAX_WAITING) else {
            return false;
        };
        link.out.extend_from_slice(&header(stream, bytes.len() as u16));
        link.out.extend_from_slice(bytes);
        if !std::mem::replace(&mut link.is_dirty, true) {
            self.dirty.push(connection);
        }
        true
    }

    fn flush(&mut self, _: Instant) -> io::Result<()> {
        for number in self.dirty.drain(..) {
            let place = &mut self.links[number as usize];
            if let Some(Err(error)) = place.as_mut().map(Link::write) {
                *place = None;
                self.failed.push((number, error.to_string()));
            }
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Instant> {
        None
    }
}
