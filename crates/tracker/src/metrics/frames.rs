//! The frames of an interface by what the program has done, and those of its queues, as series of
//! `/metrics`. Requests, replies and refusals among them are also in the series of all members.

use onrush_net::{QueueReport, Socket};

use crate::declare_counters;

/// Calls the macro `$then` with the tables; `counter_table` describes their form.
macro_rules! frame_table {
    ($then:ident) => {
        $then! {

/// Frames to the tracker's addresses at an interface.
XdpFrames (XdpStats) {
    counters {
        Counter Programs "onrush_xdp_frames" [verdict, interface]
            "Plain frames to the tracker by what the XDP program at the interface has done. \
             answered: a connect; refused: dropped, for a reason of onrush_refused_requests; \
             checksum: a connect that was dropped as its UDP checksum is wrong; martian: dropped \
             as no host has its source address, which the kernel would do silently; redirected: \
             to the AF_XDP socket of its queue; passed: to the UDP sockets; no_route: passed, as \
             there is no next hop for the reply; stale: passed, as the rules are older than 30 s, \
             or the blocked sources do not fit. Workers count again what they get"
            {
                answered = "answered",
                refused = "refused",
                checksum = "checksum",
                martian = "martian",
                redirected = "redirected",
                passed = "passed",
                no_route = "no_route",
                stale = "stale"
            }
    }
    named {}
    hidden {}
    also {}
}

/// A queue of an interface, as its worker counts it.
XdpQueue (XdpQueueStats) {
    counters {
        Counter Sockets "onrush_xdp_queue_received_datagrams" [queue, interface]
            "Datagrams that a worker has received by its AF_XDP socket of the queue"
            { received }
        Counter Sockets "onrush_xdp_queue_sent_datagrams" [queue, interface]
            "Replies that a worker has sent by that socket"
            { sent }
        Counter Sockets "onrush_xdp_queue_dropped" [cause, queue, interface]
            "Frames and replies dropped at the queue. full: the worker was late, and no frame was \
             free or the receive ring full: raise xdp.ring, or add workers and queues; checksum: a \
             wrong UDP checksum; filter: by the filter against overload; unserved: to an address \
             that is no longer served; invalid: of a form that the program does not redirect; \
             blocked: replies, as the transmit ring was full"
            {
                full = "full",
                checksum = "checksum",
                filter = "filter",
                unserved = "unserved",
                invalid = "invalid",
                blocked = "blocked"
            }
        Gauge Sockets "onrush_xdp_queue_free_frames" [queue, interface]
            "Frames that are neither received nor being sent, and wait for neither"
            { free }
        Gauge Sockets "onrush_xdp_queue_open" [queue, interface]
            "Whether the queue has an AF_XDP socket (1). Without one its requests reach the UDP \
             sockets, and the worker tries to open one every second"
            { open }
        Counter Sockets "onrush_xdp_queue_failures" [queue, interface]
            "Times that the AF_XDP socket has failed, as when the interface was removed"
            { failures }
    }
    named {}
    hidden {}
    also {
        /// The name of the interface.
        interface: String,
        /// The number of the queue.
        queue: String,
    }
}

        }
    };
}
frame_table!(declare_counters);

impl XdpQueue {
    /// Counters for each queue of a socket.
    pub(crate) fn of(socket: &mut impl Socket) -> Box<[Self]> {
        let mut queues = Vec::new();
        socket.report_queues(&mut |report| {
            let (interface, queue) = (report.interface.to_owned(), report.queue.to_string());
            queues.push(Self { interface, queue, ..Self::default() });
        });
        queues.into()
    }

    /// Sets the counters to this state of the queue.
    pub(super) fn set(&self, report: &QueueReport<'_>) {
        let counts = report.counts;
        debug_assert_eq!(report.missing, 0, "frames of queue {}", report.queue);
        self.received.set(counts.received);
        self.sent.set(counts.sent);
        self.full.set(counts.full);
        self.checksum.set(counts.checksum);
        self.filter.set(counts.filter);
        self.unserved.set(counts.unserved);
        self.invalid.set(counts.invalid);
        self.blocked.set(counts.blocked);
        self.free.set(report.free.into());
        self.open.set(report.is_open.into());
        self.failures.set(counts.failures);
    }
}
