//! Requests of the profiles arrive as declared, and their replies are judged correctly.

use super::*;

fn abuse() -> Profile {
    Profile::named("abuse").unwrap()
}

fn longer(profile: Profile, fault: Fault) -> Scene {
    let window = Window { start: 100 * MILLISECOND, end: 1_600 * MILLISECOND };
    Scene { profile, fault, window, ..Scene::default() }
}

fn found(outcome: &PlayOutcome, finding: Finding) -> u64 {
    outcome.tally.findings[finding as usize].count
}

#[test]
fn a_right_tracker_stands_abuse() {
    let outcome = play(longer(abuse(), Fault::Nothing));
    assert_eq!(outcome.tally.wrong(true), 0, "{:?}", outcome.tally.findings);
    for what in ["foreign", "unusable", "junk", "port zero", "scrape", "announce", "started"] {
        let count = outcome.requests.get(what).copied().unwrap_or(0);
        assert!(count > 100, "{count} of {what}");
    }
    for of_kind in [Kind::Connect, Kind::Announce, Kind::Scrape] {
        let counted = kind(&outcome, of_kind);
        assert_eq!((counted.lost, counted.wrong), (0, 0), "{}", of_kind.as_ref());
    }
}

#[test]
fn an_unusable_id_deserves_silence() {
    let outcome = play(longer(abuse(), Fault::ServesBadIds));
    let loud = found(&outcome, Finding::NotSilent);
    assert!(loud > 100, "{loud}");
    assert_eq!(outcome.tally.wrong(false), loud, "and nothing else is wrong");
}

#[test]
fn serving_port_zero_is_different_and_handing_it_out_is_wrong() {
    let outcome = play(longer(abuse(), Fault::AcceptsPortZero));
    assert!(found(&outcome, Finding::PortZero) > 100);
    assert!(found(&outcome, Finding::UnknownPeer) > 0);
}

#[test]
fn swarms_live() {
    let outcome = play(longer(Profile::real(), Fault::Nothing));
    let share = |what: &str| outcome.requests[what] as f64 / outcome.requests["announce"] as f64;
    let near = |what: &str, meant: f64| {
        let found = share(what);
        assert!((found - meant).abs() < meant / 4.0, "{found} of {what}");
    };
    near("started", 0.03);
    near("stopped", 0.02);
    near("completed", 0.01);
    assert_eq!(outcome.tally.wrong(true), 0);
}

#[test]
fn every_profile_gets_right_replies_from_a_right_tracker() {
    for (name, ..) in crate::plan::profile::BUILT_IN {
        let profile = Profile::named(name).unwrap();
        let outcome = play(Scene { profile, ..Scene::default() });
        assert_eq!(outcome.tally.wrong(true), 0, "{name}: {:?}", outcome.tally.findings);
        assert!(kind(&outcome, Kind::Announce).right > 100, "{name}");
    }
}

/// Mixes with nothing of what mixes usually have, and a swarm of a single peer.
#[test]
fn odd_profiles_run_and_are_answered_rightly() {
    use crate::plan::profile::read;
    const NOTHING: [&str; 5] =
        ["mix.connect=0", "mix.announce=0", "mix.scrape=0", "mix.unusable=0", "mix.junk=0"];
    for (only, swarms, of) in [
        ("mix.connect=1", 300, None),
        ("mix.announce=1", 1, Some("announce")),
        ("mix.scrape=1", 1, Some("scrape")),
        ("mix.unusable=1", 300, Some("unusable")),
        ("mix.junk=1", 300, Some("junk")),
        ("odd.port_zero=1", 300, Some("port zero")),
        ("events.vanished=0.4", 300, Some("started")),
    ] {
        let mut sets: Vec<String> = vec![];
        if only.starts_with("mix") {
            sets.extend(NOTHING.map(String::from));
        }
        sets.push(only.to_owned());
        let profile = read::change(&Profile::real(), &sets).unwrap();
        let window = Window { start: 0, end: 100 * MILLISECOND };
        let pace = Pace::rate(20_000.0);
        let outcome = play(Scene { profile, pace, window, swarms, ..Scene::default() });
        assert_eq!(outcome.tally.wrong(true), 0, "{only}: {:?}", outcome.tally.findings);
        let all: u64 = outcome.tally.kinds.iter().map(|kind| kind.requests).sum();
        assert_eq!((all, outcome.tally.unsent), (2_000, 0), "{only}");
        let count = of.map_or(100, |of| outcome.requests.get(of).copied().unwrap_or(0));
        assert!(count >= 50, "{only}: {count}");
    }
}
