//! A tracker as one client sees it: a connect, an announce and a scrape, with their times.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;
use strum::AsRefStr;

use crate::exchange::{Client, ExchangeError};
use crate::message::{AnnounceRequest, fresh_hash};
use crate::target::{Target, unspecified};

/// A request is repeated for this many timeouts of [`Target`].
const TIMEOUTS: u32 = 8;
/// The port that is announced. Trackers count a peer at port 1, and list it in no reply.
const PORT: u16 = 1;

/// The requests of a probe, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsRefStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// A connection id is requested.
    Connect,
    /// A leecher starts; it stops at the end of the probe.
    Announce,
    /// The counts of that swarm.
    Scrape,
}

/// A request that was answered as BEP 15 says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// The request.
    pub step: Step,
    /// From the first datagram to the reply.
    pub time: Duration,
    /// Datagrams that were sent again, as no reply came in time.
    pub repeated: u64,
}

/// Results of a probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The address that was probed.
    pub address: SocketAddr,
    /// The requests that were answered.
    pub answered: Vec<Answered>,
    /// The request that was not, and why. The requests after it were not sent.
    pub failed: Option<(Step, ExchangeError)>,
}

/// Probes a tracker from a port of its own; each request is repeated until it is answered, for
/// `timeout`, or until the port turns out to be closed. Without an info hash, a random one is
/// announced.
pub fn probe(address: SocketAddr, hash: Option<InfoHash>, timeout: Duration) -> Probe {
    let any = unspecified(address);
    let target = Target::new(address, &[any], any, timeout / TIMEOUTS);
    let mut answered = Vec::new();
    let failed = request_all(&target, hash.unwrap_or_else(fresh_hash), &mut answered).err();
    Probe { address, answered, failed }
}

fn request_all(
    target: &Target,
    hash: InfoHash,
    answered: &mut Vec<Answered>,
) -> Result<(), (Step, ExchangeError)> {
    let at = |step| move |error| (step, error);
    let client = Client::new(target, target.address, (target.sources[0], 0));
    let client = client.map_err(at(Step::Connect))?;
    client.report_refusals().map_err(|error| (Step::Connect, error.into()))?;
    for step in [Step::Connect, Step::Announce, Step::Scrape] {
        let (sent, start) = (target.sent(), Instant::now());
        request(&client, step, hash).map_err(at(step))?;
        let repeated = (target.sent() - sent).saturating_sub(1);
        answered.push(Answered { step, time: start.elapsed(), repeated });
    }
    Ok(())
}

fn request(client: &Client<'_>, step: Step, hash: InfoHash) -> Result<(), ExchangeError> {
    match step {
        Step::Connect => client.connect().map(drop),
        Step::Announce => client.announce(&AnnounceRequest::leecher(hash, PORT).want(0)).map(drop),
        Step::Scrape => match client.scrape(&[hash])?.len() {
            1 => Ok(()),
            entries => Err(ExchangeError::Entries(entries)),
        },
    }
}
