//! Requests as bytes. Each leaves in one write, so that no part of it waits for an acknowledgement.

use onrush_proto::Family;
use onrush_proto::http::client::{write_announce_query, write_scrape_query};
use onrush_verify::tcp::Url;

use crate::plan::{Plan, PlannedRequest};

/// The parts of a request that are the same for all requests to a URL.
#[derive(Debug)]
pub(super) struct Template {
    announce: String,
    scrape: String,
    end: String,
}

impl Template {
    pub(super) fn new(url: &Url, keep_alive: bool) -> Self {
        let start = |path: &str| {
            let separator = if path.contains('?') { '&' } else { '?' };
            format!("GET {path}{separator}")
        };
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let version = env!("CARGO_PKG_VERSION");
        Self {
            announce: start(&url.announce),
            scrape: start(url.scrape.as_deref().unwrap_or(&url.announce)),
            end: format!(
                " HTTP/1.1\r\nHost: {}\r\nUser-Agent: onrush-load/{version}\r\n{connection}\r\n",
                url.authority
            ),
        }
    }

    /// Appends a request. Kinds that exist over UDP only become a scrape without info hashes.
    pub(super) fn write(
        &self,
        plan: &Plan,
        request: &PlannedRequest,
        (family, compact): (Family, bool),
        out: &mut Vec<u8>,
    ) {
        match *request {
            PlannedRequest::Announce { peer, event, seeder } => {
                out.extend_from_slice(self.announce.as_bytes());
                let announce = plan.announced(family, peer, event, seeder);
                write_announce_query(&announce, compact, out);
            }
            PlannedRequest::PortZero { peer } => {
                out.extend_from_slice(self.announce.as_bytes());
                let mut announce = plan.announced(family, peer, Default::default(), false);
                announce.port = 0;
                write_announce_query(&announce, compact, out);
            }
            PlannedRequest::Scrape { draw, hashes } => {
                out.extend_from_slice(self.scrape.as_bytes());
                let hashes = plan.scraped(draw, hashes);
                let hashes = hashes.map(|member| plan.population.info_hash(member.swarm));
                write_scrape_query(hashes, out);
            }
            _ => out.extend_from_slice(self.scrape.as_bytes()),
        }
        out.extend_from_slice(self.end.as_bytes());
    }
}
