//! The table of the workers' counters, and the macro that makes structs of a table. Each row is one
//! series of `/metrics`: its type, the workers that show it, its name, its labels, its help text,
//! and the fields whose values it shows. Another crate declares a table of the same form, calls
//! [`declare_counters`](crate::declare_counters) with it, and `onrush-control` joins the tables.
//!
//! A new counter of the workers is one row or one field here. From the table follow the fields of
//! [`WorkerMetrics`](super::WorkerMetrics), the sum over all workers in
//! [`Summary`](super::Summary), `/metrics`, `/stats.json` and `docs/METRICS.md`. Every view shows
//! its losses, [`LOSSES`](super::LOSSES).

/// Calls the macro `$then` with the table. `onrush-control` generates the JSON types from it.
///
/// A row reads `Counter|Gauge WORKERS "name" [labels] "help" { fields }`. `Sockets`, `Shards`,
/// `Fronts`, `Programs` and `All` select the workers. A counter's name is written without `_total`.
/// A series without the label `worker` or `interface` shows the sum over all workers. Labels other
/// than these and `family` take their values from the fields:
///
/// - `counters` are single counters: `field as "JSON key" = "label value"`, where key and value are
///   optional;
/// - `named` are arrays with one counter per name: `field = NAMES`, and `over "value"` where the
///   series has the label `transport`, too;
/// - `hidden` counters have no series of their own; computed series show them;
/// - `lost(key "label" read)` after the help text makes a row a loss. `read` selects what of a
///   [`Summary`](super::Summary) is lost; nothing is in two losses. A loss whose key is a reason to
///   refuse takes the requests of this reason out of those that views show as refused.
/// - `also` lists the fields that are not counters.
#[macro_export]
macro_rules! counter_table {
    ($then:ident) => {
        $then! {

/// Traffic of one address family.
Incoming (IncomingStats) {
    counters {
        Counter Sockets "onrush_received_datagrams" [family, worker] "Datagrams received"
            { datagrams }
        Counter Sockets "onrush_received_bytes" [family, worker] "Payload bytes received"
            { bytes as "bytes_in" }
        Counter Sockets "onrush_requests" [kind, family, worker]
            "Requests that passed every check of the request and of its source"
            { connects = "connect", announces = "announce", scrapes = "scrape" }
        Counter Sockets "onrush_unconnectable_announces" [family]
            "Announces of peers that cannot accept connections (port 1)"
            { unconnectable }
    }
    named {
        Counter Sockets "onrush_refused_requests" [reason, family, worker]
            "Requests refused. busy: no batch was free or a lane was full; clients retry"
            lost(busy "refused as busy" |sum| sum.refused_for(Refusal::Busy))
            { refused_by_udp = UDP_REFUSALS, refused = REFUSALS }
        Counter Sockets "onrush_announces" [event, family]
            "Announces by event; paused is the event of partial seeds (BEP 21)"
            { events = EVENT_NAMES }
        Counter Sockets "onrush_replies" [kind, family, worker]
            "Replies passed to the kernel, whether it accepted them or not"
            { replies = REPLIES }
        Counter Sockets "onrush_sampled_announces" [client, family]
            "Announces by client software, of one announce in onrush_announces_per_sample"
            { clients = CLIENTS }
    }
    hidden {}
    also {}
}

/// The counters of one worker.
WorkerMetrics (WorkerCounts) {
    counters {
        Counter Sockets "onrush_sent_datagrams" [worker] "Replies that the kernel accepted"
            { sent as "replies" }
        Counter Sockets "onrush_sent_bytes" [worker] "Payload bytes of replies sent"
            { sent_bytes as "bytes_out" }
        Counter Sockets "onrush_send_calls" [worker] "System calls for sending" { send_calls }
        Counter Sockets "onrush_kernel_dropped_datagrams" [worker]
            "Datagrams that the kernel dropped because a receive buffer was full: raise \
             net.core.rmem_max and socket.receive_buffer, or add workers"
            lost(kernel_drops "kernel drops" |sum| sum.kernel_drops)
            { kernel_drops }
        Counter Sockets "onrush_checksum_errors" [worker]
            "Datagrams with a wrong UDP checksum that the kernel found at a socket; it drops short \
             ones before"
            lost(checksum_errors "checksum errors" |sum| sum.checksum_errors)
            { checksum_errors }
        Counter Sockets "onrush_kernel_shed_datagrams" [worker]
            "Datagrams that the filter against overload dropped in the kernel: no requests, and \
             connection ids that cannot be valid"
            lost(kernel_shed "shed in the kernel" |sum| sum.kernel_shed)
            { kernel_shed }
        Gauge Sockets "onrush_receive_buffer_bytes" [worker]
            "Size of the receive buffers of all sockets of a worker, as the kernel counts it"
            { receive_buffer }
        Gauge Sockets "onrush_send_buffer_bytes" [worker]
            "Size of the send buffers of all sockets of a worker, as the kernel counts it"
            { send_buffer }
        Counter Sockets "onrush_shard_requests" [way, worker]
            "Requests served by the receiving worker's own shard (local), or sent over a lane \
             although the worker has a shard (foreign)"
            { local = "local", foreign = "foreign" }
        Counter Sockets "onrush_lane_full_batches" [worker]
            "Batches of requests dropped because a lane was full; requests over UDP count as busy"
            { lane_full }
        Counter Shards "onrush_orphaned_requests" [worker]
            "Requests served for a worker or front that had exited before the reply"
            { orphaned }
        Counter All "onrush_turns" [worker] "Turns, idle ones included" { turns }
    }
    named {
        Counter Sockets "onrush_unsent_replies" [cause, worker]
            "Replies that the kernel did not accept. full_buffer: raise socket.send_buffer; \
             permission: a firewall forbids them; unreachable: no route; no_buffers: the queue of \
             the network card is full; too_long: larger than the MTU of the path"
            lost(unsent "replies not sent" Summary::unsent_in_all)
            { unsent = UNSENT }
    }
    hidden {}
    also {
        /// Traffic by address family.
        incoming: ByFamily<Incoming>,
        /// Datagrams per receive call; empty calls are not counted.
        receives: BatchSizes,
        /// Duration of turns that had work.
        turn_times: TurnTimes,
        /// The worker's shard, if it has one.
        shard: ShardGauges,
        /// The worker's connections of HTTP, if it serves them.
        web: WebCounters,
        /// The frames of the interface, if this is an XDP program.
        xdp: XdpFrames,
        /// The worker's AF_XDP queues.
        queues: Box<[XdpQueue]>,
        /// Whether the kernel refuses the filter against overload at the worker's sockets.
        filter_refusal: FilterRefusal,
    }
}

/// Connections and requests over HTTP. Exactly: accepted connections are those that are open and
/// those closed for any cause; requests are those answered, refused for any reason and abandoned.
WebCounters (WebStats) {
    counters {
        Counter Fronts "onrush_http_accepted_connections" [transport, worker]
            "Connections accepted: those open now, and those closed for any cause"
            { accepted = "http", https_accepted = "https" }
        Counter Fronts "onrush_http_accept_errors" [worker]
            "Times that no connection could be accepted, as the process or the host had no \
             descriptors or memory left: raise LimitNOFILE= in the unit"
            { accept_errors }
        Gauge Fronts "onrush_http_connections" [transport, worker] "Open connections"
            { open = "http", https_open = "https", ws_open = "ws", wss_open = "wss" }
        Counter Fronts "onrush_http_requests" [transport, worker]
            "Requests over HTTP and WebSocket: those answered, refused for any reason, and \
             abandoned"
            {
                requests = "http",
                https_requests = "https",
                ws_requests = "ws",
                wss_requests = "wss"
            }
        Counter Fronts "onrush_http_handshakes" [result, worker]
            "TLS handshakes. full: with a signature of the certificate's key; resumed: by a ticket \
             of an earlier one; failed: by an error of TLS, or the connection was closed before \
             its end"
            {
                full_handshakes = "full",
                resumed_handshakes = "resumed",
                failed_handshakes = "failed"
            }
        Counter Fronts "onrush_http_answered_requests" [worker]
            "Requests over HTTP and WebSocket that were answered and not refused"
            { answered }
        Counter Fronts "onrush_http_abandoned_requests" [worker]
            "Requests over HTTP and WebSocket whose connection was closed before the reply"
            { abandoned }
        Counter Fronts "onrush_http_received_bytes" [worker]
            "Bytes received over HTTP and WebSocket, without those of TLS"
            { http_received_bytes as "received_bytes" }
        Counter Fronts "onrush_http_sent_bytes" [worker]
            "Bytes sent over HTTP and WebSocket, without those of TLS"
            { http_sent_bytes as "sent_bytes" }
        Gauge Fronts "onrush_http_buffered_bytes" [worker]
            "Memory of incomplete requests and messages, and of unsent output, which \
             http.buffer_memory limits"
            { buffered_bytes }
        Gauge Fronts "onrush_http_accept_queue" [worker]
            "Connections that wait to be accepted by the worker, once a second. Workers that share \
             a listener each count all of its connections"
            { accept_queue }
        Gauge Fronts "onrush_webtorrent_swarms" [worker]
            "Swarms of WebRTC peers, at the worker that owns them" { webrtc_swarms }
        Gauge Fronts "onrush_webtorrent_peers" [role, worker]
            "WebRTC peers stored; a client is one in each of its swarms"
            { webrtc_seeders = "seeder", webrtc_leechers = "leecher" }
        Counter Fronts "onrush_webtorrent_forwarded_messages" [kind, worker]
            "Offers and answers of WebRTC peers that were sent to other ones"
            { webrtc_offers = "offer", webrtc_answers = "answer" }
        Counter Fronts "onrush_webtorrent_dropped_messages" [kind, worker]
            "Offers and answers of WebRTC peers that were not sent: the receiver does not read, or \
             has left, or no message buffer was free. Also answers to no offer that was sent"
            { webrtc_offers_dropped = "offer", webrtc_answers_dropped = "answer" }
    }
    named {
        Counter Fronts "onrush_http_closed_connections" [cause, worker]
            "Connections closed. client: the client closed it first; served: after the last \
             reply; idle: http.keep_alive was over; timeout: a handshake, a request, a message or \
             the sending of a reply took longer than http.timeout, or a ping got no answer; \
             reset: reading or writing failed; proxy_header: a proxy began without a valid PROXY \
             header; tls: TLS on the port for plain HTTP; tls_error: a TLS handshake failed, or a \
             later record was invalid; source_limit: http.connections_per_source; full: \
             http.connections, and none was idle; replaced: idle longest, and a new one needed \
             its place; memory: http.buffer_memory was exceeded, and it was the first to be \
             closed; frame: an invalid frame over WebSocket, or a message that is not UTF-8 or \
             over webtorrent.max_message; memberships: webtorrent.memberships; bad_request: after \
             the reply to an invalid request; blocked, bogon: its source is not served; stop: the \
             tracker stops or is upgraded"
            { closed = CLOSE_CAUSES }
        Counter Fronts "onrush_http_refused_requests" [transport, reason, worker]
            "Requests over HTTP and WebSocket refused, by the parser or as over UDP. info_hash, \
             peer_id: it is missing or not 20 bytes; port_value: the port is missing or not a \
             number; port: it is 0; info_hashes: two in an announce; no_client: a \
             proxy has not named the client; upgrade, upgrade_version: an invalid upgrade to \
             WebSocket; source_limit: an upgrade of a client that has http.connections_per_source \
             connections, behind a proxy; message, answer: a message over WebSocket is invalid; \
             memberships: webtorrent.memberships; other_peer_id: a second peer id for a swarm on a \
             connection"
            {
                http_refused = HTTP_REFUSALS over "http",
                https_refused = HTTP_REFUSALS over "https",
                ws_refused = HTTP_REFUSALS over "ws",
                wss_refused = HTTP_REFUSALS over "wss"
            }
    }
    hidden {}
    also {}
}

/// State of one shard. Its worker updates it at most once a second.
ShardGauges (ShardStats) {
    counters {
        Gauge Shards "onrush_swarms" [state, worker]
            "Swarms with peers (active), and without (idle, kept for their completed count)"
            { swarms = "active", idle_swarms = "idle" }
        Counter Shards "onrush_completed_peers" [worker] "Peers that completed their download"
            { completed }
        Counter Shards "onrush_expired_peers" [worker]
            "Peers removed because they did not announce again in time"
            { expired }
        Counter Shards "onrush_not_stored_peers" [limit, worker]
            "New peers answered but not stored, or stored in place of a neighbour's \
             (source_peers_per_swarm), by the key of the table limits that was reached"
            { refused_full as "not_stored" = "peers",
              refused_per_swarm as "not_stored_per_swarm" = "source_peers_per_swarm",
              refused_of_source as "not_stored_of_source" = "source_peers",
              refused_new_swarms as "not_stored_new_swarms" = "source_new_swarms" }
        Counter Shards "onrush_replaced_peers" [worker]
            "Peers removed for a new peer of a source that occupies less, because limits.peers \
             was reached"
            { replaced }
        Gauge Shards "onrush_crowded_source_tables" [worker]
            "Whether a table of sources is crowded (1): limits of single sources are suspended, \
             and only those of /24 and /48 networks apply"
            { crowded_tables }
        Counter Shards "onrush_evicted_idle_swarms" [worker]
            "Swarms without peers removed early because limits.idle_swarms was reached"
            { idle_evicted }
        Counter Shards "onrush_swept_entries" [worker] "Entries examined for expiry" { swept }
        Counter Shards "onrush_sweep_passes" [worker] "Expiry passes over all entries"
            { sweep_passes }
        Gauge Shards "onrush_expiry_backlog_entries" [worker]
            "Entries whose examination for expiry is overdue; a growing number means that the \
             worker is overloaded"
            { expiry_backlog }
    }
    named {}
    hidden {
        /// Swarms with IPv4 peers, as of the last expiry pass; 0 before the first pass has ended.
        swarms_v4,
        /// Swarms with IPv6 peers, likewise.
        swarms_v6,
        /// IPv4 peers, seeders included.
        peers_v4,
        /// IPv6 peers, seeders included.
        peers_v6,
        /// IPv4 peers that are seeders.
        seeders_v4,
        /// IPv6 peers that are seeders.
        seeders_v6,
    }
    also {}
}

        }
    };
}

/// Declares the structs of a table, of any crate, and their series:
/// [`SERIES`](crate::metrics::WorkerMetrics::SERIES). [`counter_table`](crate::counter_table)
/// describes the form of a table.
#[macro_export]
macro_rules! declare_counters {
    ($(
        $(#[$doc:meta])*
        $Struct:ident ($Json:ident) {
            counters { $(
                $kind:ident $shown:ident $series:literal [$($label:ident),*] $help:literal
                $( lost($($lost:tt)*) )?
                { $( $field:ident $(as $key:literal)? $(= $value:literal)? ),* }
            )* }
            named { $(
                $named_kind:ident $named_shown:ident $named_series:literal [$($named_label:ident),*]
                $named_help:literal
                $( lost($($named_lost:tt)*) )?
                { $( $named:ident = $names:ident $(over $transport:literal)? ),* }
            )* }
            hidden { $( $(#[$hidden_doc:meta])* $hidden:ident, )* }
            also { $( $(#[$also_doc:meta])* $also:ident: $Also:ty, )* }
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $Struct {
                $($(
                    #[doc = concat!($help, $(": ", $value,)? ".")]
                    pub $field: $crate::metrics::Counter,
                )*)*
                $($(
                    #[doc = concat!($named_help, "; in the order of [`", stringify!($names), "`].")]
                    pub $named: [$crate::metrics::Counter; $names.len()],
                )*)*
                $( $(#[$hidden_doc])* pub $hidden: $crate::metrics::Counter, )*
                $( $(#[$also_doc])* pub $also: $Also, )*
            }

            impl Default for $Struct {
                fn default() -> Self {
                    Self {
                        $($( $field: Default::default(), )*)*
                        $($( $named: std::array::from_fn(|_| Default::default()), )*)*
                        $( $hidden: Default::default(), )*
                        $( $also: Default::default(), )*
                    }
                }
            }

            impl $Struct {
                /// The series of these counters, in the order of the table.
                pub const SERIES: &[$crate::metrics::Series<Self>] = &[
                    $( $crate::metrics::Series {
                        kind: $crate::metrics::Kind::$kind,
                        shown: $crate::metrics::Shown::$shown,
                        name: $series,
                        labels: &[$( stringify!($label) ),*],
                        help: $help,
                        fields: &[$( $crate::metrics::Field {
                            transport: "",
                            values: &[$( $value )?],
                            read: |counters| std::slice::from_ref(&counters.$field),
                        } ),*],
                    }, )*
                    $( $crate::metrics::Series {
                        kind: $crate::metrics::Kind::$named_kind,
                        shown: $crate::metrics::Shown::$named_shown,
                        name: $named_series,
                        labels: &[$( stringify!($named_label) ),*],
                        help: $named_help,
                        fields: &[$( $crate::metrics::Field {
                            transport: concat!($($transport)?),
                            values: &$names,
                            read: |counters| &counters.$named,
                        } ),*],
                    }, )*
                ];
            }
        )*
    };
}

/// Declares the sum and the losses of the workers' table.
macro_rules! declare_summary {
    ($(
        $(#[$doc:meta])*
        $Struct:ident ($Json:ident) {
            counters { $(
                $kind:ident $shown:ident $series:literal $labels:tt $help:literal
                $( lost($loss:ident $loss_label:literal $loss_read:expr) )?
                { $( $field:ident $(as $key:literal)? $(= $value:literal)? ),* }
            )* }
            named { $(
                $named_kind:ident $named_shown:ident $named_series:literal $named_labels:tt
                $named_help:literal
                $( lost($named_loss:ident $named_loss_label:literal $named_loss_read:expr) )?
                { $( $named:ident = $names:ident $(over $transport:literal)? ),* }
            )* }
            hidden { $( $(#[$hidden_doc:meta])* $hidden:ident, )* }
            also { $($also:tt)* }
        }
    )*) => {
        $( impl $Struct {
            fn add_to(&self, sum: &mut Summary) {
                $($( sum.$field += self.$field.get(); )*)*
                $($( add_each(&mut sum.$named, &self.$named); )*)*
                $( sum.$hidden += self.$hidden.get(); )*
            }
        } )*

        /// Everything that counts as lost.
        pub const LOSSES: &[Loss] = &[ $(
            $( $( Loss {
                key: stringify!($loss),
                label: $loss_label,
                help: $help,
                read: $loss_read,
            }, )? )*
            $( $( Loss {
                key: stringify!($named_loss),
                label: $named_loss_label,
                help: $named_help,
                read: $named_loss_read,
            }, )? )*
        )* ];

        /// The sum of the counters over all workers and both address families.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Summary {
            $(
                $($(
                    #[doc = concat!($help, $(": ", $value,)? ".")]
                    pub $field: u64,
                )*)*
                $($(
                    #[doc = concat!($named_help, "; in the order of [`", stringify!($names), "`].")]
                    pub $named: [u64; $names.len()],
                )*)*
                $( $(#[$hidden_doc])* pub $hidden: u64, )*
            )*
        }

        impl Default for Summary {
            fn default() -> Self {
                Self { $(
                    $($( $field: 0, )*)*
                    $($( $named: [0; $names.len()], )*)*
                    $( $hidden: 0, )*
                )* }
            }
        }
    };
}
pub(super) use declare_summary;
