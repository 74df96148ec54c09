//! Admission: the checks and counters that every front shares, after the wire checks of its own.

use std::net::SocketAddr;

use onrush_proto::{Event, Family, InfoHash, PeerId, TransactionId, UNCONNECTABLE_PORT};
use onrush_swarm::Announce;

use super::source::{Source, SourceAddress};
use crate::clients;
use crate::metrics::Incoming;
use crate::refusal::Refusal;
use crate::rules::Rules;

/// The fields of an announce that admission needs, after a front has parsed them.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceFields {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The client's peer id, of which only the software is counted.
    pub peer_id: PeerId,
    /// The announced port.
    pub port: u16,
    /// Whether nothing is left to download.
    pub seeder: bool,
    /// The event.
    pub event: Event,
    /// Peers that the client asks for; negative is the default (BEP 15, `num_want`).
    pub num_want: i32,
    /// Echoed in the reply.
    pub transaction_id: TransactionId,
}

/// The admission rules, as one member uses them.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The rules in force; replaced as a whole.
    pub rules: Rules,
    /// The number of the member, by which its counters of refused requests are found.
    member: usize,
}

impl Admission {
    /// Admission by `rules` for member number `member`: workers come first.
    pub fn new(rules: &Rules, member: usize) -> Self {
        Self { rules: rules.clone(), member }
    }

    /// The text of the error for a refused request, if it gets one: that of the list which forbids
    /// its info hash, or the refusal's own.
    pub fn error_text(&self, refusal: Refusal, info_hash: Option<InfoHash>) -> Option<&str> {
        let of_list = || self.rules.access.refusing_part(&info_hash?);
        match (refusal, of_list()) {
            (Refusal::Forbidden, Some((_, part))) => Some(&part.error),
            _ => refusal.text(),
        }
    }

    /// The checks of one request from `source`, counted in `incoming`.
    #[inline]
    pub fn of<'a, A: SourceAddress>(
        &'a self,
        source: Source<A>,
        incoming: &'a Incoming,
    ) -> Admitting<'a, A> {
        Admitting { admission: self, source, incoming }
    }

    /// How many peers a reply may carry (BEP 15, `num_want`: negative is the default).
    #[inline]
    fn want(&self, num_want: i32, event: Event, family: Family) -> u16 {
        if event == Event::Stopped {
            return 0;
        }
        let cap = match family {
            Family::V4 => self.rules.announce.max_peers_v4,
            Family::V6 => self.rules.announce.max_peers_v6,
        };
        match u16::try_from(num_want) {
            Ok(wanted) => wanted.min(cap),
            Err(_) if num_want < 0 => self.rules.announce.default_peers.min(cap),
            Err(_) => cap,
        }
    }
}

/// The admission checks of one request. Each check counts its refusal.
#[derive(Clone, Copy)]
pub struct Admitting<'a, A> {
    admission: &'a Admission,
    source: Source<A>,
    incoming: &'a Incoming,
}

impl<A: SourceAddress> Admitting<'_, A> {
    /// Checks the source address: bogons and the block list.
    ///
    /// # Errors
    /// [`Refusal::Bogon`], [`Refusal::Blocked`].
    #[inline]
    pub fn source(self) -> Result<(), Refusal> {
        if self.admission.rules.refuse_bogons && self.source.ip.is_bogon() {
            return Err(self.refused(Refusal::Bogon));
        }
        if self.source.ip.is_blocked(&self.admission.rules.blocked) {
            self.count_blocked();
            return Err(self.refused(Refusal::Blocked));
        }
        Ok(())
    }

    /// Admits and counts an announce.
    ///
    /// # Errors
    /// [`Refusal::Port`], [`Refusal::Forbidden`].
    #[inline]
    pub fn announce(self, fields: AnnounceFields) -> Result<Announce, Refusal> {
        let announce = self.check_announce(fields)?;
        self.count_announce(fields);
        Ok(announce)
    }

    /// Admits an announce that is not counted yet, as it may have to wait.
    ///
    /// # Errors
    /// [`Refusal::Port`], [`Refusal::Forbidden`].
    #[inline]
    pub fn check_announce(self, fields: AnnounceFields) -> Result<Announce, Refusal> {
        if fields.port == 0 {
            return Err(self.refused(Refusal::Port));
        }
        if !self.admission.rules.access.permits(fields.info_hash) {
            self.count_forbidden(fields.info_hash);
            return Err(self.refused(Refusal::Forbidden));
        }
        Ok(Announce {
            info_hash: fields.info_hash,
            endpoint: self.source.ip.endpoint(fields.port),
            event: fields.event,
            seeder: fields.seeder,
            want: self.admission.want(fields.num_want, fields.event, A::FAMILY),
            transaction_id: fields.transaction_id,
        })
    }

    /// Counts an announce that was admitted.
    #[inline]
    pub fn count_announce(self, fields: AnnounceFields) {
        let announces = self.incoming.announces.get() + 1;
        self.incoming.announces.set(announces);
        self.incoming.events[fields.event.to_wire() as usize].add(1);
        if fields.port == UNCONNECTABLE_PORT {
            self.incoming.unconnectable.add(1);
        }
        if announces % clients::SAMPLE == 1 {
            self.sample(fields.peer_id);
        }
    }

    /// Admits and counts a scrape of `hashes` info hashes.
    ///
    /// # Errors
    /// [`Refusal::NoHash`].
    #[inline]
    pub fn scrape(self, hashes: usize) -> Result<(), Refusal> {
        if hashes == 0 {
            return Err(self.refused(Refusal::NoHash));
        }
        self.incoming.scrapes.add(1);
        Ok(())
    }

    /// Counts a refusal and returns it.
    #[inline]
    pub fn refused(self, refusal: Refusal) -> Refusal {
        self.incoming.refused[refusal as usize].add(1);
        if log::log_enabled!(log::Level::Debug) {
            self.log_refusal(refusal);
        }
        refusal
    }

    /// The client's address, or a placeholder when the rules keep addresses out of logs.
    #[cold]
    pub fn client(self) -> String {
        match self.admission.rules.log_addresses {
            true => SocketAddr::new(self.source.ip.into(), self.source.port).to_string(),
            false => "a client".to_owned(),
        }
    }

    /// Counts a request at the block that its source belongs to.
    #[cold]
    fn count_blocked(self) {
        self.admission.rules.blocks.count(self.admission.member, self.source.ip.into());
    }

    /// Counts an announce at the part of the list that forbids its info hash.
    #[cold]
    fn count_forbidden(self, info_hash: InfoHash) {
        let part =
            self.admission.rules.access.refusing_part(&info_hash).map_or(0, |(part, _)| part);
        self.admission.rules.forbidden.add(self.admission.member, part);
    }

    /// Counts the client software of one announce in [`clients::SAMPLE`].
    #[cold]
    fn sample(self, peer_id: PeerId) {
        self.incoming.clients[clients::index_of(&peer_id)].add(1);
    }

    #[cold]
    fn log_refusal(self, refusal: Refusal) {
        log::debug!("refused ({}): a request from {}", refusal.name(), self.client());
    }
}
