//! Reasons to refuse a request. Each has a counter and a name, the label `reason` in metrics.
//!
//! [`Refusal`] holds the reasons that any front has; [`UdpRefusal`] those of datagrams (BEP 15);
//! [`HttpRefusal`] those of requests over HTTP.

/// The longest text of an error reply, in bytes: with its head no longer than the announce that it
/// answers (BEP 15: 98 bytes).
pub const MAX_ERROR_TEXT: usize = 90;

/// Declares an enum of reasons or causes: each with its name in logs and metrics, in the order of
/// their counters.
macro_rules! reasons {
    (
        $(#[$doc:meta])*
        $Reasons:ident { $( $(#[$reason_doc:meta])* $Reason:ident = $name:literal, )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(usize)]
        pub enum $Reasons {
            $( $(#[$reason_doc])* $Reason, )*
        }

        impl $Reasons {
            /// All of them, in the order of their counters.
            pub const ALL: &[Self] = &[$( Self::$Reason ),*];

            /// Their names, in the same order.
            pub const NAMES: [&str; Self::ALL.len()] = [$( $name ),*];

            /// Its name in logs and metrics.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// A reason to refuse a request over any front. What the client gets is the front's decision;
    /// over UDP a reason without a [`text`](Self::text) gets no reply.
    Refusal {
        /// The source cannot be a peer on the internet, and the rules refuse such sources.
        Bogon = "bogon",
        /// The source is on the block list.
        Blocked = "blocked",
        /// The announced port is 0.
        Port = "port",
        /// The access list forbids the info hash.
        Forbidden = "forbidden",
        /// A scrape without a whole info hash.
        NoHash = "no_hash",
        /// No batch was free, or the lane to the shard was full. The client will ask again.
        Busy = "busy",
    }
}

reasons! {
    /// A reason to drop a datagram that is not a valid request of BEP 15. It gets no reply: its
    /// source may be forged.
    UdpRefusal {
        /// Too short for its action.
        Short = "short",
        /// A connect without the magic number.
        Magic = "magic",
        /// Neither connect, announce nor scrape.
        Action = "action",
        /// From port 0, to which no reply can be sent.
        SourcePort = "source_port",
        /// The connection id is not of this tracker, expired, or of another address (BEP 15,
        /// "Connect").
        ConnectionId = "connection_id",
    }
}

reasons! {
    /// A reason to refuse a request over HTTP that no other front has.
    HttpRefusal {
        /// It cannot be parsed as a request.
        Malformed = "malformed",
        /// It has a body or a Transfer-Encoding.
        Body = "body",
        /// Its target is too long.
        TargetLength = "target_length",
        /// Its head is too long or has too many fields.
        HeadLength = "head_length",
        /// It came without TLS on a port for HTTPS.
        NoTls = "no_tls",
        /// The method is not GET.
        Method = "method",
        /// The version is neither HTTP/1.1 nor HTTP/1.0.
        Version = "version",
        /// An announce or a scrape of a trusted proxy that does not name the client.
        NoClient = "no_client",
        /// An upgrade to WebSocket of a client that has `http.connections_per_source` connections,
        /// behind a proxy.
        SourceLimit = "source_limit",
        /// The path is none of the tracker's.
        Path = "path",
        /// An announce without an info hash of 20 bytes, or a scrape with one of another length.
        InfoHash = "info_hash",
        /// An announce with two info hashes.
        InfoHashes = "info_hashes",
        /// The peer id is missing or has no 20 bytes.
        PeerId = "peer_id",
        /// The port is missing or not a number from 0 to 65535.
        PortValue = "port_value",
        /// An upgrade to WebSocket without a valid key.
        Upgrade = "upgrade",
        /// An upgrade to another version of WebSocket than 13.
        UpgradeVersion = "upgrade_version",
        /// A message over WebSocket is no JSON object with a known action.
        Message = "message",
        /// An answer in a message over WebSocket is invalid.
        Answer = "answer",
        /// The connection is a member of `webtorrent.memberships` other swarms.
        Memberships = "memberships",
        /// The connection is a member of the swarm with another peer id.
        OtherPeerId = "other_peer_id",
    }
}

impl Refusal {
    /// The text of the error reply, if the client gets one. Only requests from a proven address
    /// have such a reason.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Port => Some("port cannot be 0"),
            Self::Forbidden => Some("info hash is not allowed on this tracker"),
            Self::NoHash => Some("scrape without an info hash"),
            Self::Bogon | Self::Blocked | Self::Busy => None,
        }
    }
}

const _: () = {
    let mut at = 0;
    while at < Refusal::ALL.len() {
        if let Some(text) = Refusal::ALL[at].text() {
            assert!(text.len() <= MAX_ERROR_TEXT);
        }
        at += 1;
    }
};
