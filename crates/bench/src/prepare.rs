//! From the arguments and the host to a plan.

use std::time::SystemTime;

use anyhow::{Context as _, bail};

use crate::args::Selection;
use crate::contender::{ALL, Found, Listed, Search, hitch, unique};
use crate::cpus::sweep;
use crate::load::{Published, Tools};
use crate::machine::{self, buffer_limit};
use crate::mix::{Mix, Protocol};
use crate::plan::{BenchSettings, Plan, cases};
use crate::record::Case;

/// Why a load over veth devices cannot run.
const NO_DEVICES: &str = "loads over veth devices need two network namespaces and --namespace: run \
                          scripts/bench-xdp";

/// A plan, and the programs that it needs.
#[derive(Debug)]
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// The installed trackers.
    pub present: Vec<Found>,
    /// The load testers.
    pub tools: Tools,
}

/// The installed ones of the named trackers (if none is named: of all that need no name) that serve
/// one of these protocols, and a row for each.
///
/// # Errors
/// When a name is unknown, or a tracker that is named serves none of them.
pub fn contenders(
    names: &[String],
    protocols: &[Protocol],
    search: &Search,
) -> anyhow::Result<(Vec<Found>, Vec<Listed>)> {
    if let Some(wrong) = names.iter().find(|name| !ALL.iter().any(|c| c.is_called(name))) {
        let known = ALL.each_ref().map(|contender| contender.keyword).join(", ");
        bail!("--contenders: unknown tracker {wrong} (known: {known})");
    }
    let (mut present, mut listed) = (Vec::new(), Vec::new());
    for contender in &ALL {
        let named = names.iter().any(|name| contender.is_called(name));
        let fits = protocols.iter().any(|protocol| contender.serves(*protocol));
        if named && !fits {
            let known = protocols.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            bail!("--contenders: {} does not serve {known}: take another --mix", contender.name);
        }
        if fits && (named || (names.is_empty() && !contender.by_name)) {
            let found = search.find(contender);
            listed.push(Listed::new(contender, found.as_ref()));
            present.extend(found);
        }
    }
    Ok((present, listed))
}

/// The installed load testers.
///
/// # Errors
/// When onrush-load is not installed.
pub fn tools(search: &Search) -> anyhow::Result<Tools> {
    let ours = search.program("onrush-load").context(
        "onrush-load was not found beside this program nor on PATH: cargo build --release -p \
         onrush-load",
    )?;
    let installed = |name| Some(Published::new(name, search.program(name)?));
    let published =
        Published::PROGRAMS.into_iter().filter_map(installed).collect::<Result<_, _>>()?;
    Ok(Tools { ours, published })
}

/// Makes a plan.
///
/// # Errors
/// When this host has too few cores for a tracker and its load, or no tracker.
pub fn plan(
    what: &Selection,
    present: &[Found],
    listed: Vec<Listed>,
    tools: &Tools,
    cpus: &[usize],
    command: String,
) -> anyhow::Result<Plan> {
    let (seats, mut notices) = sweep(cpus, &what.cores, &what.load_workers);
    if seats.is_empty() {
        bail!(
            "{} cores (one vCPU of each is used) are too few for a tracker and its load: at least \
             one for each is needed, as each would otherwise measure the other. {}",
            cpus.len(),
            notices.join("; ")
        );
    }
    let mixes = mixes(what, tools, present, &mut notices)?;
    if mixes.iter().any(|mix| mix.protocol() == Protocol::Veth) {
        what.settings.dose.namespace.as_ref().context(NO_DEVICES)?;
    }
    if mixes.iter().any(|mix| mix.protocol().is_udp()) {
        notices.extend(present.iter().filter_map(|found| (found.contender.missing_variant)(found)));
        notices.extend(clamped(present, buffer_limit("rmem_max")));
    }
    notices.extend(without_hitch(present, &mixes));
    let cases = cases(present, &seats, &mixes);
    if cases.is_empty() {
        bail!("none of the trackers is installed (onrush-bench list)");
    }
    let mut settings = what.settings.clone();
    settings.shares.sort_unstable();
    settings.shares.dedup();
    if what.no_latency {
        settings.shares.clear();
    }
    settings.baseline = baseline(&settings.baseline, &cases, &mut notices)?;
    if let Some(minutes) = what.within {
        settings.rounds = fitting(&settings, &cases, f64::from(minutes) * 60.0, &mut notices);
    }
    let listed = listed.into_iter().chain(listed_hitch(present, &cases)).collect();
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Plan {
        version: onrush_text::version::version().into(),
        created: created.as_secs(),
        command,
        machine: machine::facts(),
        settings,
        listed,
        testers: tools.listed(&mixes),
        cases,
        notices,
    })
}

/// The name of the baseline in results. A tracker that is not measured gives no ratios, which
/// is a notice; an unknown name is an error.
fn baseline(asked: &str, cases: &[Case], notices: &mut Vec<String>) -> anyhow::Result<String> {
    let tracker = ALL.iter().find(|contender| contender.is_called(asked));
    let name = tracker.map_or(asked, |contender| contender.name);
    if !cases.iter().any(|case| case.variant.is_called(name)) {
        if tracker.is_none() {
            let names = |case: &Case| [case.variant.tracker.clone(), case.variant.name()];
            let known = unique(cases.iter().flat_map(names)).join(", ");
            bail!("--baseline: unknown tracker {asked:?} (known: {known})");
        }
        notices
            .push(format!("no ratios: the baseline, {name}, is not among those that are measured"));
    }
    Ok(name.to_owned())
}

/// The number of rounds that fit into this many seconds; one, with a notice, where none does.
fn fitting(
    settings: &BenchSettings,
    cases: &[Case],
    seconds: f64,
    notices: &mut Vec<String>,
) -> u32 {
    let one: f64 = cases.iter().map(|case| settings.seconds(case)).sum();
    if one > seconds {
        notices.push(format!(
            "one round of everything takes {one:.0} s, more than the {seconds:.0} s of --within: \
             name fewer --cores, --mix or --contenders"
        ));
    }
    ((seconds / one) as u32).max(1)
}

/// The mixes whose load testers are installed.
fn mixes(
    what: &Selection,
    tools: &Tools,
    present: &[Found],
    notices: &mut Vec<String>,
) -> anyhow::Result<Vec<Mix>> {
    let mut mixes = unique(what.mix.iter().copied());
    let asked = unique(mixes.iter().filter_map(|mix| mix.published_tool()));
    for tool in asked {
        if tools.published.iter().any(|published| published.name == tool) {
            let only_a_list = |found: &&Found| {
                let served = |mix: &Mix| found.contender.serves(mix.protocol());
                found.needs_whitelist()
                    && mixes.iter().any(|mix| mix.published_tool() == Some(tool) && served(mix))
            };
            notices.extend(present.iter().filter(only_a_list).map(|found| {
                format!(
                    "left out: {} {} under the load of {tool}, as this build serves only an allow \
                     list and that tool does not report its info hashes",
                    found.contender.name, found.version
                )
            }));
            continue;
        }
        let absent = format!(
            "left out: the load by {tool}, which is not installed; install it with: \
             scripts/bench-peers --only {tool}"
        );
        mixes.retain(|mix| mix.published_tool() != Some(tool));
        if mixes.is_empty() {
            bail!("{absent}");
        }
        notices.push(absent);
    }
    Ok(mixes)
}

/// A notice about trackers that need hitch for a load where it is not installed.
fn without_hitch(present: &[Found], mixes: &[Mix]) -> Option<String> {
    let needs = |found: &&Found| {
        let protocols = mixes.iter().map(|mix| mix.protocol());
        let mut by_tls = protocols.filter(|protocol| !found.contender.protocols.contains(protocol));
        found.hitch.is_none() && by_tls.any(|protocol| found.contender.serves(protocol))
    };
    let names: Vec<_> = present.iter().filter(needs).map(|found| found.contender.name).collect();
    (!names.is_empty()).then(|| {
        let (names, remedy) = (names.join(" and "), hitch::REMEDY);
        format!("left out: {names} by TLS, as hitch is not installed; install it with: {remedy}")
    })
}

/// hitch in the table of contenders, where a case needs it.
fn listed_hitch(present: &[Found], cases: &[Case]) -> Option<Listed> {
    cases.iter().find(|case| case.variant.count(hitch::WORKERS).is_some())?;
    let program = present.iter().find_map(|found| found.hitch.as_deref())?;
    let version = hitch::version(program).unwrap_or_else(|| "unknown".into());
    let (name, text) = (hitch::PROGRAM.into(), hitch::SETTINGS.into());
    Some(Listed { name, version: Some(version), text })
}

/// Notices about trackers that request a larger receive buffer than the kernel grants.
fn clamped(present: &[Found], limit: Option<u64>) -> Vec<String> {
    let notice = |found: &Found| {
        let (name, asked, limit) = (found.contender.name, found.contender.receive_buffer?, limit?);
        (asked > limit).then(|| {
            format!(
                "clamped: {name} asks for a receive buffer of {asked} bytes and gets {limit}: \
                 sysctl -w net.core.rmem_max={asked}"
            )
        })
    };
    present.iter().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Task};
    use crate::contender::tests::{found as present, script};
    use clap::Parser as _;

    fn what(line: &str) -> Selection {
        match Args::try_parse_from(format!("onrush-bench plan {line}").split_whitespace())
            .unwrap()
            .task
        {
            Task::Plan(what) => what,
            other => panic!("{other:?}"),
        }
    }

    fn planned(line: &str, cpus: &[usize]) -> anyhow::Result<Plan> {
        let tools = Tools { ours: "nowhere".into(), published: Vec::new() };
        plan(&what(line), &present(), Vec::new(), &tools, cpus, "test".into())
    }

    #[test]
    fn one_vcpu_is_not_enough() {
        let error = planned("", &[0]).unwrap_err().to_string();
        assert!(error.contains("at least one for each"), "{error}");
    }

    #[test]
    fn what_was_cut_is_said() {
        let two = [0, 1];
        let plan = planned("--cores 1,2 --mix spread,published", &two).unwrap();
        assert!(plan.cases.iter().all(|case| case.mix == Mix::Spread));
        for start in ["left out: 2 tracker cores", "left out: the load by aquatic_udp_load_test"] {
            assert!(
                plan.notices.iter().any(|n| n.starts_with(start)),
                "{start}: {:?}",
                plan.notices
            );
        }
        for (mix, named) in [("published", "scripts/bench-peers"), ("veth-flood", "bench-xdp")] {
            let error = planned(&format!("--mix {mix}"), &two).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn rounds_fit_into_the_time() {
        let two = [0, 1];
        let seconds = |plan: &Plan| -> f64 {
            plan.steps().iter().map(|(_, case)| plan.settings.seconds(case)).sum()
        };
        let plan = planned("--within 15", &two).unwrap();
        let rounds = plan.settings.rounds;
        let one = seconds(&plan) / f64::from(rounds);
        assert!(
            seconds(&plan) <= 900.0 && seconds(&plan) + one > 900.0,
            "{rounds} rounds of {one} s"
        );
        let plan = planned("--within 1 --seconds 100", &two).unwrap();
        assert_eq!(plan.settings.rounds, 1);
        assert!(
            plan.notices.iter().any(|notice| notice.contains("--within")),
            "{:?}",
            plan.notices
        );
        assert_eq!(planned("", &two).unwrap().settings.rounds, 5);
    }

    #[test]
    fn a_baseline_is_somebody_who_is_measured() {
        let two = [0, 1];
        for (asked, name) in
            [("aquatic", "aquatic_udp"), ("onrush", "onrush"), ("onrush (split)", "onrush (split)")]
        {
            let mut notices = Vec::new();
            let (seats, _) = sweep(&two, &[], &[]);
            let cases = cases(&present(), &seats, &[Mix::Spread]);
            assert_eq!(baseline(asked, &cases, &mut notices).unwrap(), name);
            assert!(notices.is_empty(), "{notices:?}");
        }
        let error = planned("--baseline onrsh", &two).unwrap_err().to_string();
        assert!(error.contains("\"onrsh\"") && error.contains("onrush (split)"), "{error}");
        // A known baseline that is not measured.
        let tools = Tools { ours: "nowhere".into(), published: Vec::new() };
        let mut others = present();
        others.retain(|found| found.contender.name != "onrush");
        let plan = plan(&what(""), &others, Vec::new(), &tools, &two, "test".into()).unwrap();
        assert!(plan.notices.iter().any(|notice| notice.starts_with("no ratios: ")));
    }

    #[test]
    fn who_is_left_out_of_the_published_load_is_somebody() {
        let program = tempfile::tempdir().unwrap();
        let name = Published::PROGRAMS[0];
        let tester = script(program.path(), name, "");
        let published = vec![Published::new(name, tester).unwrap()];
        let tools = Tools { ours: "nowhere".into(), published };
        let two = [0, 1];
        let notices = |present: &[Found]| {
            let what = what("--mix published");
            plan(&what, present, Vec::new(), &tools, &two, "test".into()).unwrap().notices
        };
        let left_out =
            |notices: &[String]| notices.iter().any(|n| n.contains("only an allow list"));
        assert!(left_out(&notices(&present())));
        let mut present = present();
        present.retain(|found| found.contender.name != "opentracker");
        assert!(!left_out(&notices(&present)), "it is not installed");
    }

    #[test]
    fn buffers_that_are_cut_are_named() {
        let cut = clamped(&present(), Some(5_000_000));
        assert_eq!(cut.len(), 1, "{cut:?}");
        assert!(cut[0].starts_with("clamped: aquatic_udp asks for a receive buffer of 8000000"));
        assert_eq!(clamped(&present(), Some(212_992)).len(), 2);
        assert!(clamped(&present(), None).is_empty());
    }

    #[test]
    fn a_name_that_nobody_has_is_refused() {
        let nowhere = Search::default();
        let of = |names: &[&str], protocols: &[Protocol]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let (present, listed) = contenders(&names, protocols, &nowhere)?;
            assert!(present.is_empty());
            Ok(listed.into_iter().map(|listed| listed.name).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&["aquatic", "chihaya"], &[Protocol::Udp]).unwrap(),
            ["aquatic_udp", "chihaya"]
        );
        let refused = |names: &[&str]| of(names, &[Protocol::Udp]).map_err(|e: anyhow::Error| e);
        for name in ["aquatik", "aquatic-http"] {
            let error = refused(&[name]).unwrap_err().to_string();
            assert!(error.contains(&name.replace('-', "_")), "{error}");
        }
        let webtorrent = ["onrush", "aquatic_ws", "bittorrent-tracker"];
        assert_eq!(of(&[], &[Protocol::Wss]).unwrap(), webtorrent);
        let https = ["onrush", "aquatic_http", "opentracker", "chihaya", "bittorrent-tracker"];
        let https: Vec<_> = https.into_iter().chain(["hefur"]).collect();
        assert_eq!(of(&[], &[Protocol::Https]).unwrap(), https);
    }

    #[test]
    fn hitch_is_listed_or_its_absence() {
        let two = [0, 1];
        let with = planned("--mix https,spread", &two).unwrap();
        assert_eq!(with.listed.last().unwrap().name, "hitch");
        assert!(with.notices.iter().all(|notice| !notice.contains("hitch")), "{with:?}");
        let without: Vec<_> =
            present().into_iter().map(|found| Found { hitch: None, ..found }).collect();
        let tools = Tools { ours: "nowhere".into(), published: Vec::new() };
        let made = |line| plan(&what(line), &without, vec![], &tools, &two, "test".into()).unwrap();
        let https = made("--mix https");
        let notice = "left out: opentracker and bittorrent-tracker by TLS";
        assert!(https.notices.iter().any(|it| it.starts_with(notice)), "{:?}", https.notices);
        assert!(https.listed.is_empty());
        assert!(made("--mix http").notices.is_empty());
    }
}
