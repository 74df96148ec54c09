//! Routes and the ids on them: many, seldom used, lost.

use super::*;

/// A worker without a tracker, whose requests are only looked at.
fn session<'p>(plan: &'p Plan, routes: Vec<Route>, in_flight: usize) -> Session<'p> {
    let pace = Pace::InFlight(in_flight);
    let settings = LoadSettings { pace, burst: 1, ..LoadSettings::default() };
    Session::new(plan, routes, settings, 0, Window { start: 0, end: Nanos::MAX / 2 })
}

/// The classic mix of so many source addresses.
fn plan_of(sources: u32) -> Plan {
    let sources: Vec<IpAddr> =
        (0..sources).map(|n| std::net::Ipv4Addr::from_bits(0x0A00_0000 + n).into()).collect();
    let profile = Profile::named("classic").unwrap();
    let swarms = Swarms { count: 1000, ..profile.swarms };
    let population = Population::new(&swarms, 0.0, Addresses::new(&sources), 5, false);
    Plan::new(profile, population, 5)
}

fn routes_of(plan: &Plan, targets: &[SocketAddr]) -> Vec<Route> {
    let addresses = &plan.population.addresses;
    let to_all = |n| crate::sources::routes(addresses, targets, Family::V4, n, n as u16);
    (0..addresses.count(Family::V4)).flat_map(to_all).collect()
}

/// 40,000 addresses and two targets: more ways than 16 bits can number.
#[test]
fn every_one_of_80_000_routes_is_taken() {
    let plan = plan_of(40_000);
    let targets = ["10.9.0.1:6969", "10.9.0.2:6969"].map(|target| target.parse().unwrap());
    let mut session = session(&plan, routes_of(&plan, &targets), 1 << 17);
    let mut taken = std::collections::HashSet::new();
    for _ in 0..80_000 {
        assert!(session.fill(1));
        let (transaction, _) = session.due[0];
        let ReplyMatch::Open(pending) = session.flight.close(transaction) else { panic!() };
        assert_eq!(pending.route as usize, session.route);
        taken.insert(pending.route);
    }
    assert_eq!(taken.len(), 80_000);
}

/// A lost request's route has no id any more: others have their turns, and it gets one.
#[test]
fn a_repeat_without_an_id_holds_up_nobody() {
    let plan = plan_of(8);
    let target = "10.9.0.1:6969".parse().unwrap();
    let mut session = session(&plan, routes_of(&plan, &[target]), 64);
    let now = EXPIRED + SECOND / 2;
    let lost =
        PlannedRequest::Announce { peer: 0, event: onrush_proto::Event::None, seeder: false };
    session.repeats.push_back(Pending { request: lost, sent: 0, deadline: 0, route: 0, tries: 0 });
    session.ids[0] = Id { number: 7, since: 0, requested: Some(EXPIRED) };
    let taken: std::collections::BTreeSet<_> =
        (0..7).map(|_| session.fill(now).then_some(session.route)).collect();
    assert_eq!(taken, (1..8).map(Some).collect(), "the seven others");
    assert!(!session.fill(now), "all have asked for an id");
    let known = Id { number: 8, since: now, requested: None };
    session.ids[0] = known;
    assert!(session.fill(now) && session.route == 0 && session.repeats.is_empty());
}

/// 80 s pass between an address's turns, and no id may be used for longer than 60 s.
#[test]
fn addresses_that_seldom_ask_do_not_only_connect() {
    let window = Window { start: 0, end: 240 * SECOND };
    let conditions = Conditions::default();
    let profile = Profile::named("classic").unwrap();
    let pace = Pace::rate(0.1);
    let outcome = play(Scene { profile, pace, window, conditions, v6: false, ..Scene::default() });
    let all: u64 = outcome.tally.kinds.iter().map(|kind| kind.requests).sum();
    let connects = kind(&outcome, Kind::Connect).requests;
    assert_eq!(all, 24);
    assert!(
        (12..24).contains(&connects),
        "{connects} connects, one per other request and those of the mix"
    );
}
