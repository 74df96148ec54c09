//! The part of a connection that begins TLS, and counts what that costs.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use onrush_net::stream::Stream;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::refusal::HttpRefusal;

use super::{Connection, Input, Step, closing};
use crate::service::{NO_TLS, Service};
use crate::tls::session::HandshakeEnd;

impl<S: Stream> Connection<S> {
    /// Begins TLS with the first bytes of the client; otherwise they are a request without it.
    pub(super) fn begin_tls(&mut self, service: &mut Service, input: &mut Input) -> Option<Step> {
        self.awaits_tls = false;
        let config = service.tls.as_ref().map(|tls| Arc::clone(&tls.config));
        let Some(config) = config.filter(|_| !input.unread()[0].is_ascii_uppercase()) else {
            service.counters().http_received_bytes.add(input.unread().len() as u64);
            return self.refuse(HttpRefusal::NoTls, NO_TLS, service);
        };
        let begun = self.transport.start_tls(&config, input.unread());
        input.start = input.end;
        self.count_tls(service);
        begun.err().and_then(|error| self.fail_reading(&error))
    }

    /// Notes that reading has failed. After an error of TLS, the client gets an alert.
    pub(super) fn fail_reading(&mut self, error: &io::Error) -> Option<Step> {
        if error.kind() != ErrorKind::InvalidData {
            return self.pause_reading(error).err().map(Step::Closed);
        }
        if self.is_in_flight() {
            return Some(Step::Closed(CloseCause::TlsError));
        }
        self.phase = closing(CloseCause::TlsError);
        None
    }

    /// Counts what TLS has done.
    pub(super) fn count_tls(&mut self, service: &mut Service) {
        service.handshake_cost += self.transport.take_cost();
        let counters = service.counters();
        match self.transport.take_handshake() {
            None => {}
            Some(HandshakeEnd::Full) => counters.full_handshakes.add(1),
            Some(HandshakeEnd::Resumed) => counters.resumed_handshakes.add(1),
            Some(HandshakeEnd::Failed) => counters.failed_handshakes.add(1),
        }
    }
}
