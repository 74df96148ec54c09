//! WebRTC with data channels: ICE by `is`, DTLS by dimpl, and SCTP by sctp-proto, all of them state
//! machines (docs/decisions/0101).
//!
//! The client has a socket for each connection, as browsers have; the server has one. The client
//! offers, the server answers, and each passes the texts on ([`Stack::descriptions`]).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{Config, Dtls, DtlsCertificate, Output};
use is::stun::{StunMessage, StunPacket};
use is::{Candidate, IceAgent, IceAgentEvent, IceCreds, Protocol};
use onrush_net::mio::Backend;
use onrush_net::{Return, Socket as _};
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier as Ppi, ServerConfig, StreamEvent, TransportConfig,
};

use super::certificate;
use super::datagrams::{Egress, backend, socket, wake};
use super::sdp::{ChannelMessage, Description, Setup};
use super::stack::{Arrivals, Stack, Wake};

/// Bytes of SCTP in a datagram, so that it has less than 1,200.
const SCTP_PAYLOAD: u32 = 1100;
/// Bytes of a datagram that DTLS writes.
const MTU: usize = 1200;
/// Datagrams that DTLS keeps between two polls.
const QUEUE: usize = 256;
/// Bytes that a side of a connection may have on the way: sctp-proto looks at each of their chunks
/// whenever it is polled.
const RECEIVE_BUFFER: u32 = 256 << 10;
/// Datagrams that are received at once.
const BATCH: usize = 128;

/// A side's connections over WebRTC.
pub(super) struct WebRtc {
    backend: Backend,
    addresses: Vec<SocketAddr>,
    egress: Egress,
    is_client: bool,
    identity: Identity,
    links: Vec<Option<Box<Link>>>,
    /// Connections of the server by the user name in its description, and by the client's address.
    names: HashMap<String, u32>,
    sources: HashMap<SocketAddr, u32>,
    descriptions: Vec<(u32, String)>,
    dirty: Vec<u32>,
    /// What DTLS writes.
    buffer: Box<[u8]>,
}

/// What all connections of a side have.
struct Identity {
    certificate: DtlsCertificate,
    fingerprint: [u8; 32],
    dtls: Arc<Config>,
    endpoint: Arc<EndpointConfig>,
    transport: Arc<TransportConfig>,
}

/// A connection.
struct Link {
    number: u32,
    socket: u16,
    ice: IceAgent,
    /// Where to send, once a pair of candidates is nominated.
    to: Option<Return>,
    dtls: Dtls,
    /// The other side's certificate.
    fingerprint: Option<[u8; 32]>,
    /// Whether this side begins the encryption.
    is_active: bool,
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    /// Why it cannot go on.
    failure: Option<String>,
    is_dirty: bool,
    /// When DTLS has something to do.
    dtls_due: Option<Instant>,
    deadline: Option<Instant>,
}

impl WebRtc {
    /// A server, or a client of `connections`.
    pub(super) fn new(connections: Option<u32>) -> io::Result<Self> {
        let sockets = (0..connections.unwrap_or(1)).map(|_| socket());
        let (backend, addresses) = backend(sockets.collect::<io::Result<_>>()?)?;
        let (der, key) = certificate::generate()?;
        let dtls = Config::builder()
            .mtu(MTU)
            .max_queue_rx(QUEUE)
            .max_queue_tx(QUEUE)
            // Both sides would choose AES-256 first; browsers choose this.
            .dtls12_cipher_suites(&[Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256])
            .build()
            .map_err(io::Error::other)?;
        let mut endpoint = EndpointConfig::new();
        endpoint.max_payload_size(SCTP_PAYLOAD);
        let transport = TransportConfig::default().with_max_receive_buffer_size(RECEIVE_BUFFER);
        Ok(Self {
            backend,
            addresses,
            egress: Egress::default(),
            is_client: connections.is_some(),
            identity: Identity {
                fingerprint: certificate::fingerprint(&der),
                certificate: DtlsCertificate { certificate: der.to_vec(), private_key: key },
                dtls: Arc::new(dtls),
                endpoint: Arc::new(endpoint),
                transport: Arc::new(transport),
            },
            links: Vec::new(),
            names: HashMap::new(),
            sources: HashMap::new(),
            descriptions: Vec::new(),
            dirty: Vec::new(),
            buffer: vec![0; 1 << 16].into(),
        })
    }

    /// The server's address.
    pub(super) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Adds a connection, and returns its description.
    fn add(&mut self, number: u32, is_active: bool, now: Instant) -> io::Result<()> {
        let socket = if self.is_client { number as u16 } else { 0 };
        let address = self.addresses[usize::from(socket)];
        let credentials = IceCreds::new();
        let candidate = Candidate::host(address, Protocol::Udp).map_err(io::Error::other)?;
        let description = Description {
            ufrag: credentials.ufrag.clone(),
            password: credentials.pass.clone(),
            fingerprint: self.identity.fingerprint,
            setup: if self.is_client { Setup::Actpass } else { Setup::Active },
            candidates: vec![candidate_text(&candidate)],
        };
        let link = self.identity.link(number, socket, credentials, is_active, now);
        let mut link = Box::new(link);
        link.ice.set_controlling(self.is_client);
        link.ice.add_local_candidate(candidate);
        // An agent that gets a request before its first time-out would never ask for one.
        link.ice.handle_timeout(now);
        if self.links.len() <= number as usize {
            self.links.resize_with(number as usize + 1, || None);
        }
        self.names.insert(description.ufrag.clone(), number);
        self.links[number as usize] = Some(link);
        self.descriptions.push((number, description.encode()));
        Ok(())
    }

    /// Gives a batch of datagrams to their connections.
    fn receive_batch(&mut self, now: Instant) -> io::Result<()> {
        let Self { backend, links, names, sources, dirty, addresses, is_client, .. } = self;
        let received = backend.receive(BATCH)?;
        for (bytes, slot) in received.iter() {
            let socket = slot.reply_to.socket();
            let number = match is_client {
                true => Some(u32::from(socket)),
                false => sources.get(&slot.source).copied().or_else(|| {
                    let number = named(names, bytes)?;
                    sources.insert(slot.source, number);
                    Some(number)
                }),
            };
            let link = number.and_then(|number| links.get_mut(number as usize)?.as_mut());
            let Some(link) = link else { continue };
            link.accept(bytes, slot.source, addresses[usize::from(socket)], now);
            if !std::mem::replace(&mut link.is_dirty, true) {
                dirty.push(link.number);
            }
        }
        Ok(())
    }

    /// Notes that a connection has something to do.
    fn mark(&mut self, number: u32) {
        if let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut link.is_dirty, true)
        {
            self.dirty.push(number);
        }
    }

    /// Does what the dirty connections have to do with their input.
    fn read_dirty(&mut self, now: Instant, arrivals: &mut Arrivals) {
        for at in 0..self.dirty.len() {
            let number = self.dirty[at];
            let Some(link) = &mut self.links[number as usize] else { continue };
            let read = link.read(&self.identity, &mut self.buffer, &mut self.egress, now, arrivals);
            if let Err(reason) = read {
                self.links[number as usize] = None;
                arrivals.closed.push((number, reason));
            }
        }
    }
}

impl Identity {
    fn link(
        &self,
        number: u32,
        socket: u16,
        credentials: IceCreds,
        is_active: bool,
        now: Instant,
    ) -> Link {
        let mut dtls = Dtls::new_12(Arc::clone(&self.dtls), self.certificate.clone(), now);
        dtls.set_active(is_active);
        let mut server = ServerConfig::new();
        server.transport = Arc::clone(&self.transport);
        Link {
            number,
            socket,
            ice: IceAgent::new(credentials),
            to: None,
            dtls,
            fingerprint: None,
            is_active,
            endpoint: Endpoint::new(Arc::clone(&self.endpoint), Some(Arc::new(server))),
            association: None,
            failure: None,
            is_dirty: false,
            dtls_due: None,
            deadline: None,
        }
    }
}

/// The connection that a message of ICE names.
fn named(names: &HashMap<String, u32>, bytes: &[u8]) -> Option<u32> {
    let message = StunMessage::parse(bytes).ok()?;
    let (local, _) = message.split_username()?;
    names.get(local).copied()
}

/// Whether a datagram is one of ICE and not of DTLS (RFC 7983, section 7).
fn is_stun(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first < 4)
}

impl Link {
    /// Takes a datagram.
    fn accept(&mut self, bytes: &[u8], source: SocketAddr, local: SocketAddr, now: Instant) {
        if is_stun(bytes) {
            if let Ok(message) = StunMessage::parse(bytes) {
                let proto = Protocol::Udp;
                let packet = StunPacket { proto, source, destination: local, message };
                self.ice.handle_packet(now, packet);
            }
        } else if self.to.is_some() || !self.is_active {
            // A handshake needs the time, and panics where it has never got one.
            let is_ready = match self.association {
                None => self.dtls.handle_timeout(now),
                Some(_) => Ok(()),
            };
            let taken = is_ready.and_then(|()| self.dtls.handle_packet(bytes));
            if let Err(error) = taken {
                self.failure.get_or_insert(error.to_string());
            }
        }
    }

    /// Reads what has arrived, and does what timers ask for.
    fn read(
        &mut self,
        identity: &Identity,
        buffer: &mut [u8],
        egress: &mut Egress,
        now: Instant,
        arrivals: &mut Arrivals,
    ) -> Result<(), String> {
        self.read_ice(egress);
        self.poll_dtls(Some(identity), buffer, egress, now)?;
        self.read_association(arrivals)?;
        // Also one of the encryption before there is an association.
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Reads the messages of SCTP.
    fn read_association(&mut self, arrivals: &mut Arrivals) -> Result<(), String> {
        let Some((handle, association)) = &mut self.association else { return Ok(()) };
        while let Some(event) = association.poll_endpoint_event() {
            self.endpoint.handle_event(*handle, event);
        }
        while let Some(event) = association.poll() {
            match event {
                Event::Connected => arrivals.opened.push(self.number),
                Event::HandshakeFailed { reason } | Event::AssociationLost { reason } => {
                    return Err(reason.to_string());
                }
                Event::Stream(StreamEvent::Opened { id } | StreamEvent::Readable { id }) => {
                    read_channel(association, id, self.number, self.is_active, arrivals);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends what ICE has to send, and notes what it has decided.
    fn read_ice(&mut self, egress: &mut Egress) {
        while let Some(event) = self.ice.poll_event() {
            if let IceAgentEvent::NominatedSend { destination, .. } = event {
                self.to = Some(Return::to(destination, self.socket));
            }
        }
        while let Some(transmit) = self.ice.poll_transmit() {
            let to = Return::to(transmit.destination, self.socket);
            egress.push(&to, &transmit.contents, transmit.contents.len());
        }
    }

    /// Sends what DTLS has to send, and gives what it has decrypted to SCTP.
    fn poll_dtls(
        &mut self,
        identity: Option<&Identity>,
        buffer: &mut [u8],
        egress: &mut Egress,
        now: Instant,
    ) -> Result<(), String> {
        let Some(to) = self.to else { return Ok(()) };
        loop {
            match self.dtls.poll_output(buffer) {
                Output::Packet(packet) => egress.push(&to, packet, packet.len()),
                Output::PeerCert(der)
                    if Some(certificate::fingerprint(der)) != self.fingerprint =>
                {
                    return Err("the certificate is not that of the description".into());
                }
                Output::Connected if self.is_active => {
                    let transport = identity.map(|identity| Arc::clone(&identity.transport));
                    let mut config = ClientConfig::new();
                    config.transport = transport.unwrap_or(config.transport);
                    let begun = self.endpoint.connect(config, to.peer());
                    self.association = Some(begun.map_err(|error| error.to_string())?);
                }
                Output::ApplicationData(bytes) => {
                    let bytes = Bytes::copy_from_slice(bytes);
                    match self.endpoint.handle(now, to.peer(), None, None, bytes) {
                        Some((handle, DatagramEvent::NewAssociation(association))) => {
                            self.association = Some((handle, association));
                        }
                        Some((_, DatagramEvent::AssociationEvent(event))) => {
                            if let Some((_, association)) = &mut self.association {
                                association.handle_event(event);
                            }
                        }
                        None => {}
                    }
                }
                Output::CloseNotify => return Err("the other side closed the connection".into()),
                Output::BufferTooSmall { needed } => {
                    return Err(format!("a message of {needed} bytes"));
                }
                Output::Timeout(at) => {
                    self.dtls_due = Some(at);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Sends what SCTP has to send.
    fn transmit(
        &mut self,
        buffer: &mut [u8],
        egress: &mut Egress,
        now: Instant,
    ) -> Result<(), String> {
        self.is_dirty = false;
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.encrypt(transmit.payload, buffer, egress, now)?;
        }
        // A poll returns all packets, and another one would look at all that are on the way again.
        let polled = self.association.as_mut().and_then(|(_, it)| it.poll_transmit(now));
        if let Some(transmit) = polled {
            self.encrypt(transmit.payload, buffer, egress, now)?;
        }
        self.poll_dtls(None, buffer, egress, now)?;
        let sctp = self.association.as_ref().and_then(|(_, it)| it.poll_timeout());
        // The encryption begins once it is known where to send.
        let dtls = self.dtls_due.filter(|_| self.to.is_some());
        self.deadline = [sctp, dtls, self.ice.poll_timeout()].into_iter().flatten().min();
        Ok(())
    }

    fn encrypt(
        &mut self,
        payload: Payload,
        buffer: &mut [u8],
        egress: &mut Egress,
        now: Instant,
    ) -> Result<(), String> {
        let Payload::RawEncode(packets) = payload else { return Ok(()) };
        for packets in packets.chunks(QUEUE / 2) {
            for packet in packets {
                let taken = self.dtls.send_application_data(packet);
                taken.map_err(|error| error.to_string())?;
            }
            self.poll_dtls(None, buffer, egress, now)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ice.handle_timeout(now);
        if self.to.is_some()
            && let Err(error) = self.dtls.handle_timeout(now)
        {
            self.failure.get_or_insert(error.to_string());
        }
        if let Some((_, association)) = &mut self.association {
            association.handle_timeout(now);
        }
    }
}

/// Reads the messages of a channel; the server confirms that it opens.
fn read_channel(
    association: &mut Association,
    id: u16,
    number: u32,
    is_server: bool,
    arrivals: &mut Arrivals,
) {
    let Ok(mut stream) = association.stream(id) else { return };
    while let Ok(Some(message)) = stream.read_sctp() {
        // Its length is that of the space for it.
        let read = |space: &mut [u8]| drop(message.read(space));
        if message.ppi != Ppi::Dcep {
            arrivals.push_with(number, u32::from(id / 2), message.len(), read);
        } else if is_server {
            let mut bytes = vec![0; message.len()];
            read(&mut bytes);
            if ChannelMessage::parse(&bytes) == Some(ChannelMessage::Open) {
                // Only a channel that is closed refuses it.
                drop(stream.write_with_ppi(&ChannelMessage::Ack.encode(), Ppi::Dcep));
            }
        }
    }
}

/// A candidate as an attribute without its name.
fn candidate_text(candidate: &Candidate) -> String {
    let text = candidate.to_sdp_string();
    text.trim_start_matches("a=").trim_start_matches("candidate:").to_owned()
}

impl Stack for WebRtc {
    fn wake(&self) -> io::Result<Wake> {
        Ok(wake(&self.backend))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.backend.wait(timeout)
    }

    fn receive(&mut self, now: Instant, arrivals: &mut Arrivals) -> io::Result<()> {
        self.receive_batch(now)?;
        for number in 0..self.links.len() {
            if let Some(link) = &mut self.links[number]
                && link.deadline.is_some_and(|deadline| deadline <= now)
            {
                link.deadline = None;
                link.handle_timeout(now);
                self.mark(number as u32);
            }
        }
        self.read_dirty(now, arrivals);
        Ok(())
    }

    fn connect(&mut self, connection: u32, now: Instant) -> io::Result<()> {
        // The side that answers begins the encryption (RFC 8842, section 5.3).
        self.add(connection, false, now)
    }

    fn send(&mut self, connection: u32, stream: u32, bytes: &[u8]) -> bool {
        let link = self.links.get_mut(connection as usize).and_then(Option::as_mut);
        let Some((_, association)) = link.and_then(|link| link.association.as_mut()) else {
            return false;
        };
        // The side that did not begin the encryption has the odd ones (RFC 8832, section 6).
        let id = 2 * stream as u16 + 1;
        let is_open = association.stream(id).is_ok();
        let sent = if is_open {
            association.stream(id).and_then(|mut stream| stream.write_with_ppi(bytes, Ppi::Binary))
        } else {
            association.open_stream(id, Ppi::Binary).and_then(|mut stream| {
                stream.write_with_ppi(&ChannelMessage::Open.encode(), Ppi::Dcep)?;
                stream.write_with_ppi(bytes, Ppi::Binary)
            })
        };
        self.mark(connection);
        sent.is_ok()
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        let dirty = std::mem::take(&mut self.dirty);
        for &number in &dirty {
            let Some(link) = &mut self.links[number as usize] else { continue };
            if let Err(reason) = link.transmit(&mut self.buffer, &mut self.egress, now) {
                link.failure.get_or_insert(reason);
                link.deadline = Some(now);
            }
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

    fn descriptions(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.descriptions)
    }

    fn describe(&mut self, connection: u32, text: &str, now: Instant) -> Result<(), String> {
        let remote = Description::parse(text).map_err(|error| error.to_string())?;
        if !self.is_client {
            self.add(connection, true, now).map_err(|error| error.to_string())?;
        }
        let link = self.links.get_mut(connection as usize).and_then(Option::as_mut);
        let Some(link) = link else { return Err(format!("there is no connection {connection}")) };
        link.fingerprint = Some(remote.fingerprint);
        link.ice.set_remote_credentials(IceCreds { ufrag: remote.ufrag, pass: remote.password });
        for candidate in &remote.candidates {
            // One of another protocol, or of a name that has to be looked up, is left out.
            if let Ok(candidate) = Candidate::from_sdp_string(&format!("candidate:{candidate}")) {
                link.ice.add_remote_candidate(candidate);
            }
        }
        link.deadline = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Before anything is known of the other side, as the first message of the encryption is.
    #[test]
    fn a_failure_of_the_encryption_ends_a_connection_with_its_reason() {
        let mut client = WebRtc::new(Some(1)).unwrap();
        let (mut arrivals, end) = (Arrivals::default(), Instant::now() + Duration::from_secs(60));
        client.connect(0, Instant::now()).unwrap();
        // A fatal alert (handshake_failure) of DTLS 1.2.
        let alert = [21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 40];
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&alert, client.addresses[0]).unwrap();
        while arrivals.closed.is_empty() {
            assert!(Instant::now() < end, "the connection was not reported as closed");
            client.wait(Duration::from_secs(1)).unwrap();
            client.receive(Instant::now(), &mut arrivals).unwrap();
        }
        let [(0, reason)] = &arrivals.closed[..] else { panic!("{:?}", arrivals.closed) };
        assert!(reason.contains("40"), "{reason}");
        assert!(!client.send(0, 0, b"x"));
    }
}
