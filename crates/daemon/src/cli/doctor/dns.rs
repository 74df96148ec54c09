//! The tracker's name: its addresses against those that the tracker listens on.

use std::net::IpAddr;

use super::facts::{Record, Records};
use super::{Facts, Finding};

const NAME: &str = "dns";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(Records { name, found }) = &facts.records else { return Vec::new() };
    let records = match found {
        Ok(records) if !records.is_empty() => records,
        Ok(_) | Err(_) => {
            let why = found.as_ref().err().map_or("no address", String::as_str);
            let what = format!("{name} does not resolve: {why}");
            return vec![
                Finding::problem(NAME, what).fix(format!("dig A {name}; dig AAAA {name}")),
            ];
        }
    };
    records.iter().map(|record| of(name, record, facts)).collect()
}

fn of(name: &str, Record { address, is_local }: &Record, facts: &Facts) -> Finding {
    let (kind, family) = if address.is_ipv4() { ("A", "IPv4") } else { ("AAAA", "IPv6") };
    let record = format!("{name} has the {kind} record {address}");
    let mut listen = facts.settings.listen.iter().map(|listen| listen.address.ip());
    let serves =
        |ip: IpAddr| ip == *address || ip.is_unspecified() && ip.is_ipv4() == address.is_ipv4();
    if !listen.clone().any(|ip| ip.is_ipv4() == address.is_ipv4()) {
        let what = format!(
            "{record}, and the tracker does not listen over {family}: clients that try it get no \
             reply"
        );
        return Finding::problem(NAME, what)
            .fix(format!("add an {family} address to `listen`, or remove the {kind} record"));
    }
    if !is_local {
        let what = format!(
            "{record}, which is no address of this host: right only behind a router that \
             translates it"
        );
        return Finding::note(NAME, what).fix("ip addr; correct the record if it is wrong");
    }
    if !listen.any(serves) {
        let what = format!("{record}, and `listen` does not have it");
        return Finding::problem(NAME, what).fix(format!("add {address} to `listen`"));
    }
    Finding::ok(NAME, format!("{record}, which the tracker listens on"))
}
