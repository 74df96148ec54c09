//! Reasons to refuse a request. Each has a counter and a name, the label `reason` in metrics.
//!
//! [`Refusal`] holds the reasons that any front has; [`UdpRefusal`] those of datagrams (BEP 15).

/// The longest text of an error reply, in bytes: what a buffer for it must hold.
pub const MAX_ERROR_TEXT: usize = 64;

/// A reason to refuse a request over any front. What the client gets is the front's decision; over
/// UDP a reason without a [`text`](Self::text) gets no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(usize)]
pub enum Refusal {
    /// The source cannot be a peer on the internet, and the rules refuse such sources.
    Bogon,
    /// The source is on the block list.
    Blocked,
    /// The announced port is 0.
    Port,
    /// The access list forbids the info hash.
    Forbidden,
    /// A scrape without a whole info hash.
    NoHash,
    /// The source has not proven its address, and the host is overloaded.
    Shed,
    /// No batch was free, or the lane to the shard was full. The client will ask again.
    Busy,
}

impl Refusal {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::Bogon,
        Self::Blocked,
        Self::Port,
        Self::Forbidden,
        Self::NoHash,
        Self::Shed,
        Self::Busy,
    ];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bogon => "bogon",
            Self::Blocked => "blocked",
            Self::Port => "port",
            Self::Forbidden => "forbidden",
            Self::NoHash => "no_hash",
            Self::Shed => "shed",
            Self::Busy => "busy",
        }
    }

    /// The text of the error reply, if the client gets one. Only requests from a proven address
    /// have such a reason.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Port => Some("port cannot be 0"),
            Self::Forbidden => Some("info hash is not allowed on this tracker"),
            Self::NoHash => Some("scrape without an info hash"),
            Self::Bogon | Self::Blocked | Self::Shed | Self::Busy => None,
        }
    }
}

/// A reason to drop a datagram that is not a valid request of BEP 15. It gets no reply: its source
/// may be forged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(usize)]
pub enum UdpRefusal {
    /// Too short for its action.
    Short,
    /// A connect without the magic number.
    Magic,
    /// Neither connect, announce nor scrape.
    Action,
    /// From port 0, to which no reply can be sent.
    SourcePort,
    /// The connection id is not of this tracker, expired, or of another address (BEP 15,
    /// "Connect").
    ConnectionId,
}

impl UdpRefusal {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 5] =
        [Self::Short, Self::Magic, Self::Action, Self::SourcePort, Self::ConnectionId];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Magic => "magic",
            Self::Action => "action",
            Self::SourcePort => "source_port",
            Self::ConnectionId => "connection_id",
        }
    }
}

const _: () = {
    let mut at = 0;
    while at < Refusal::ALL.len() {
        assert!(Refusal::ALL[at] as usize == at, "counters are indexed in the order of ALL");
        if let Some(text) = Refusal::ALL[at].text() {
            assert!(text.len() <= MAX_ERROR_TEXT);
        }
        at += 1;
    }
    at = 0;
    while at < UdpRefusal::ALL.len() {
        assert!(UdpRefusal::ALL[at] as usize == at, "counters are indexed in the order of ALL");
        at += 1;
    }
};
