//! The web workers of a start and their listeners: bound, passed by a service manager, or received
//! from a predecessor.

use std::iter;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use onrush_config::Settings;
use onrush_config::settings::Listen;
use onrush_net::bind::BindError;
use onrush_net::notice::Notice;
use onrush_net::stream::Streams;
use onrush_net::stream::listen::{self, AddressListeners, Listeners, PendingListeners};
use onrush_net::stream::mio::Backend;
use onrush_tracker::assemble::Secrets;
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Waker;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::{Addresses, Scheme};

use super::StartError;
use crate::certificate_files::{self, LoadedCertificates};
use crate::upgrade::successor::{HandedListeners, SuccessorSide};
use onrush_web::tls::Tls;
use onrush_web::webtorrent::exchange::{Exchange, PARCELS};

/// Open files beside connections: sockets, log, state, lists, and the admin side.
const OTHER_FILES: u64 = 1024;

pub(super) type WebWorker = onrush_web::WebWorker<Backend>;

/// The listeners of an address, with what is accepted there.
pub(super) type Group = (Scheme, AddressListeners);

/// The listeners of each web worker, before there are workers; none where HTTP is off.
#[derive(Default)]
pub(super) struct Web {
    /// For each worker what its listeners accept, by their numbers, and the backend with them.
    backends: Vec<(Vec<Scheme>, Backend)>,
    /// The same listeners by address, for the next upgrade.
    pub(super) groups: Vec<Group>,
    /// TLS and its certificates, where HTTPS is on.
    pub(super) tls: Option<Tls>,
    pub(super) certificates: Option<LoadedCertificates>,
    notices: Vec<Notice>,
}

impl Web {
    /// Uses the passed listeners, and binds those at the configured addresses of a scheme of which
    /// none were passed.
    pub(super) fn open(settings: &Settings, passed: Vec<Group>) -> Result<Self, StartError> {
        let listen = settings.http.listeners().into_iter();
        let own = listen.filter(|(scheme, _)| !settings.sockets_passed.listeners(*scheme));
        Self::with(settings, passed, own.collect())
    }

    /// Uses the listeners of the predecessor, and binds those at added addresses. The pending ones,
    /// for further workers, listen when the predecessor has released the others. Workers share
    /// those that a service manager has opened.
    pub(super) fn take(
        settings: &Settings,
        side: &mut SuccessorSide,
    ) -> Result<(Self, PendingListeners), StartError> {
        let mut pending = PendingListeners::default();
        let HandedListeners { mut kept, added } = mem::take(&mut side.web);
        for (scheme, group) in &mut kept {
            if !settings.sockets_passed.listeners(*scheme) {
                let added = group.add_up_to(settings.http.workers, &mut pending);
                added.map_err(|error| StartError::Http(*scheme, error))?;
            }
        }
        Ok((Self::with(settings, kept, added)?, pending))
    }

    /// Binds listeners at `added` addresses, and distributes them and others over the workers.
    fn with(
        settings: &Settings,
        mut groups: Vec<Group>,
        added: Vec<(Scheme, Listen)>,
    ) -> Result<Self, StartError> {
        let (workers, mut notices) = (settings.http.workers, Vec::new());
        let (tls, certificates) = tls(settings)?.unzip();
        for scheme in [Scheme::Http, Scheme::Https] {
            // Together, as one address may include another.
            let of = added.iter().filter(|(of, _)| *of == scheme).map(|(_, listen)| *listen);
            let bound = listen::bind(&of.collect::<Vec<_>>(), workers, true);
            let bound = bound.map_err(|error| StartError::Http(scheme, error))?;
            let Listeners { groups: bound, notices: more } = bound;
            groups.extend(iter::repeat(scheme).zip(bound));
            notices.extend(more);
        }
        if groups.is_empty() {
            return match settings.http.listeners().first() {
                None => Ok(Self::default()),
                Some((scheme, _)) => Err(StartError::Http(*scheme, BindError::Nothing)),
            };
        }
        notices.extend(raise_open_files(workers * settings.http.limits.connections));
        let backend = |worker| {
            let (mut schemes, mut listeners) = (Vec::new(), Vec::new());
            for (scheme, group) in &groups {
                listeners.extend(group.of_worker(worker, workers)?);
                schemes.resize(listeners.len(), *scheme);
            }
            // Without it, connections are accepted earlier than their requests arrive.
            listeners.iter().for_each(|listener| _ = listen::defer_accept(listener));
            Ok((schemes, Backend::new(listeners)?))
        };
        let backends = (0..workers).map(backend).collect::<Result<_, _>>();
        let backends = backends.map_err(StartError::Poll)?;
        Ok(Self { backends, groups, tls, certificates, notices })
    }

    pub(super) fn notices(&self) -> impl Iterator<Item = String> {
        self.notices.iter().map(Notice::to_string)
    }

    /// The bound addresses of a scheme, with the ports that they got.
    pub(super) fn addresses(&self, scheme: Scheme) -> Vec<SocketAddr> {
        let of = self.groups.iter().filter(|(of, _)| *of == scheme);
        of.map(|(_, group)| group.address).collect()
    }

    /// The waker of each worker.
    pub(super) fn wakers(&self) -> Vec<Arc<dyn Waker>> {
        self.backends.iter().map(|(_, it)| Arc::new(it.waker()) as Arc<dyn Waker>).collect()
    }

    /// The workers of a tracker with these addresses, each with a front of the data path. Once.
    pub(super) fn take_workers(
        &mut self,
        fronts: Vec<Front>,
        (rules, secrets): (&Rules, &Secrets),
        limits: WebLimits,
        addresses: &Addresses,
    ) -> Vec<WebWorker> {
        let mut exchanges = match limits.webtorrent {
            Some(_) => Exchange::connect(&fronts, secrets, PARCELS).into_iter(),
            None => Vec::new().into_iter(),
        };
        let fronts = mem::take(&mut self.backends).into_iter().zip(fronts);
        let worker = |((listeners, streams), front)| {
            let mut worker = WebWorker::new(front, rules, (streams, listeners), limits, addresses);
            if let Some(tls) = &self.tls {
                worker = worker.with_tls(tls.clone());
            }
            match exchanges.next() {
                Some(exchange) => worker.with_exchange(exchange),
                None => worker,
            }
        };
        fronts.map(worker).collect()
    }
}

/// TLS and its certificates, where HTTPS is on.
fn tls(settings: &Settings) -> Result<Option<(Tls, LoadedCertificates)>, StartError> {
    let Some(loaded) = certificate_files::load(&settings.http)? else { return Ok(None) };
    let tls = Tls::new(loaded.certificates.clone()).map_err(StartError::Tls)?;
    Ok(Some((tls, loaded)))
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
