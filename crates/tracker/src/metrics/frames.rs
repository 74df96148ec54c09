//! The frames of an interface by what the program has done, as series of `/metrics`. Requests,
//! replies and refusals among them are also in the series of all members.

use crate::declare_counters;

/// Calls the macro `$then` with the table; `counter_table` describes its form.
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
             as no host has its source address, which the kernel would do silently; passed: to the \
             sockets, which count it again; no_route: a connect, passed as there is no next hop \
             for the reply; stale: passed, as the rules are older than 30 s, or the blocked \
             sources do not fit"
            {
                answered = "answered",
                refused = "refused",
                checksum = "checksum",
                martian = "martian",
                passed = "passed",
                no_route = "no_route",
                stale = "stale"
            }
    }
    named {}
    hidden {}
    also {}
}

        }
    };
}
frame_table!(declare_counters);
