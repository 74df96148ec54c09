//! Causes for the end of a connection of HTTP. Each has a counter and a name, the label `cause` in
//! metrics.

use crate::refusal::reasons;

reasons! {
    /// Why a connection of HTTP was closed.
    CloseCause {
        /// The client closed it first.
        Client = "client",
        /// The last reply was sent: `Connection: close`, HTTP/1.0, or `http.keep_alive` is 0.
        Served = "served",
        /// No request arrived within `http.keep_alive` after a reply.
        Idle = "idle",
        /// A TLS handshake, the head of a request, a message over WebSocket or the sending of a
        /// reply took longer than `http.timeout`, or a client by WebSocket did not answer a ping.
        Timeout = "timeout",
        /// Reading or writing failed.
        Reset = "reset",
        /// After a reply to input that is no request.
        BadRequest = "bad_request",
        /// It is of a trusted proxy, and does not begin with a header of the PROXY protocol.
        ProxyHeader = "proxy_header",
        /// The client began a TLS handshake on the port for plain HTTP.
        Tls = "tls",
        /// A TLS handshake failed, or a later record was invalid.
        TlsError = "tls_error",
        /// The source is on the block list.
        Blocked = "blocked",
        /// The source cannot be a peer on the internet, and the rules refuse such sources.
        Bogon = "bogon",
        /// The source has `http.connections_per_source` other connections.
        SourceLimit = "source_limit",
        /// `http.connections` others were open, and none of them was idle.
        Full = "full",
        /// It was idle for the longest time, and a new connection needed its place; members of
        /// swarms by WebSocket are closed last.
        Replaced = "replaced",
        /// `http.buffer_memory` was exceeded, and it had waited longest for its client, or no other
        /// had.
        Memory = "memory",
        /// A frame over WebSocket was invalid, a message was not UTF-8 or longer than
        /// `webtorrent.max_message`.
        Frame = "frame",
        /// It was a member of `webtorrent.memberships` swarms, and announced to another one.
        Memberships = "memberships",
        /// The tracker stops, or hands its listeners to another process.
        Stop = "stop",
    }
}
