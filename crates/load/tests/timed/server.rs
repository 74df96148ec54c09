//! A conforming tracker that answers at a chosen rate.

use std::time::{Duration, Instant};

use super::faulty::{Fault, Server};

/// The speed of the replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Pauses at the start of each second, then answers the requests that have arrived meanwhile.
    Stalls(Duration),
    /// Answers at most this many requests per second, in the order of their arrival.
    Serves(f64),
}

pub(crate) fn serve(behaviour: Behaviour) -> Server {
    let start = Instant::now();
    match behaviour {
        Behaviour::Stalls(pause) => Server::paced(Fault::Nothing, 128, move |_| {
            let of_second = Duration::from_nanos(start.elapsed().subsec_nanos().into());
            #[expect(
                clippy::disallowed_methods,
                reason = "slow replies are the subject of the test"
            )]
            std::thread::sleep(pause.saturating_sub(of_second));
        }),
        Behaviour::Serves(rate) => {
            // At most a millisecond of requests, so that the queue of the server is in the kernel.
            let limit = (rate / 1e3).ceil() as usize;
            // When the next request may be answered.
            let mut free = Duration::ZERO;
            Server::paced(Fault::Nothing, limit.clamp(1, 128), move |requests| {
                // A delay of this thread of up to 50 ms is caught up.
                let earliest = start.elapsed().saturating_sub(Duration::from_millis(50));
                free = free.max(earliest) + Duration::from_secs_f64(requests as f64 / rate);
                #[expect(
                    clippy::disallowed_methods,
                    reason = "slow replies are the subject of the test"
                )]
                std::thread::sleep(free.saturating_sub(start.elapsed()));
            })
        }
    }
}
