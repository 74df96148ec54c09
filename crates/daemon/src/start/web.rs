//! The web workers of a start and their listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use onrush_config::Settings;
use onrush_net::notice::Notice;
use onrush_net::stream::Streams;
use onrush_net::stream::listen::{self, Listeners};
use onrush_net::stream::mio::Backend;
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Waker;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::{Addresses, Scheme};

use super::StartError;

/// Open files beside connections: sockets, log, state, lists, and the admin side.
const OTHER_FILES: u64 = 1024;

pub(super) type WebWorker = onrush_web::WebWorker<Backend>;

/// The listeners of each web worker, before there are workers; none where HTTP is off.
pub(super) struct Web {
    backends: Vec<Backend>,
    /// The bound addresses, with the ports that they got.
    pub(super) addresses: Vec<SocketAddr>,
    notices: Vec<Notice>,
}

impl Web {
    /// Listens at the configured addresses. `probe` is whether to check first that no other process
    /// has an address: a predecessor has it, until it exits.
    pub(super) fn bind(settings: &Settings, probe: bool) -> Result<Self, StartError> {
        let http = &settings.http;
        if http.listen.is_empty() {
            return Ok(Self { backends: Vec::new(), addresses: Vec::new(), notices: Vec::new() });
        }
        let Listeners { workers, addresses, mut notices } =
            listen::bind(&http.listen, http.workers, probe).map_err(StartError::Http)?;
        notices.extend(raise_open_files(http.workers * http.limits.connections));
        // Without it, connections are accepted earlier than their requests arrive.
        workers.iter().flatten().for_each(|listener| _ = listen::defer_accept(listener));
        let backends = workers.into_iter().map(Backend::new).collect::<Result<_, _>>();
        Ok(Self { backends: backends.map_err(StartError::Poll)?, addresses, notices })
    }

    pub(super) fn notices(&self) -> impl Iterator<Item = String> {
        self.notices.iter().map(Notice::to_string)
    }

    /// The waker of each worker.
    pub(super) fn wakers(&self) -> Vec<Arc<dyn Waker>> {
        self.backends.iter().map(|it| Arc::new(it.waker()) as Arc<dyn Waker>).collect()
    }

    /// The workers of a tracker with these addresses, each with a front of the data path.
    pub(super) fn into_workers(
        self,
        fronts: Vec<Front>,
        rules: &Rules,
        limits: WebLimits,
        addresses: &Addresses,
    ) -> Vec<WebWorker> {
        let fronts = self.backends.into_iter().zip(fronts);
        let worker = |(streams, front)| {
            let listeners = vec![Scheme::Http; addresses.http.len()];
            WebWorker::new(front, rules, (streams, listeners), limits, addresses)
        };
        fronts.map(worker).collect()
    }
}

/// Raises the soft limit of open files for this many connections, as far as the hard limit permits.
/// Returns a warning if that is too low.
fn raise_open_files(connections: usize) -> Option<Notice> {
    let needed = connections as u64 + OTHER_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft >= needed
        || setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).is_ok() && hard >= needed;
    (!raised).then(|| {
        format!(
            "http.connections need about {needed} open files, and this process may have {hard}: \
             beyond that, idle connections are closed for new ones. Set LimitNOFILE={needed} in \
             the unit, or lower http.connections"
        )
    })
}
