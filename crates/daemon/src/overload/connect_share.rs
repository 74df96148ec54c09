//! The share of sources whose connects the kernel lets through while load is shed.
//!
//! With the capacity C, connects F and other requests A in a second, a full buffer lets C / (A + F)
//! of everything through. If only a share s of the connects arrives, with A + s F at most C, every
//! request with a connection id is served, and a connect with the probability s. That is never more
//! than C / (A + F): newcomers lose what others gain, which is little if the connects are a flood,
//! and much if they are few. Connects are therefore thinned only while they are the majority, and
//! only so far that a connect's chance falls by at most 2 points.
//!
//! Connects of many sources are thinned evenly. A flood of a few sources passes whole in one choice
//! of sources and in another not at all. Where the connects that arrive show that the share removes
//! too little, all connects pass again, and the next attempt is made a minute later.

use super::load::Load;

/// By how much the chance of a connect may be below what it were without shedding.
const PRICE: f64 = 0.02;
/// The part of the capacity that is planned with.
const HEADROOM: f64 = 0.98;
/// The least share: what is needed below it is not known well.
const LEAST: f64 = 1.0 / 32.0;
/// The share of datagrams whose loss causes a smaller share of connects.
const LOSS: f64 = 0.01;
/// Seconds after a change in which its effect is not complete.
const SETTLING: u32 = 2;
/// Seconds after a smaller share until a larger one is tried, and between two such trials.
const HOLD: u32 = 3;
const TRIAL: u32 = 2;
/// By how much the first trial enlarges the share; each further one does so twice as much.
const GROWTH: f64 = 0.1;
/// By how much more than [`PRICE`] a chance has to fall to show that the share removes too little,
/// and the seconds from then until the share may fall again.
const UNEVEN: f64 = 0.03;
const RETRY: u32 = 60;
/// The filter stays while it drops more than a tenth of what is received, and for so many seconds.
const QUIET: u32 = 30;

/// Whether load is shed, and the share of sources whose connects pass.
#[derive(Debug)]
pub struct ConnectShare {
    /// `None` while no load is shed.
    share: Option<f64>,
    growth: f64,
    /// Seconds until the share may fall, and until it may rise.
    settling: u32,
    hold: u32,
    quiet_for: u32,
    /// What the filter dropped in the last second in which all connects passed.
    junk: u64,
}

impl Default for ConnectShare {
    fn default() -> Self {
        Self { share: None, growth: GROWTH, settling: 0, hold: 0, quiet_for: 0, junk: 0 }
    }
}

impl ConnectShare {
    /// The share while load is shed.
    pub fn get(&self) -> Option<f64> {
        self.share
    }

    /// Sheds no load any more. Returns whether it did.
    pub fn stop(&mut self) -> bool {
        std::mem::take(self).share.is_some()
    }

    /// Call every second with its load, and whether the workers are under pressure. Returns whether
    /// the share has changed.
    pub fn tick(&mut self, load: &Load, pressed: bool) -> bool {
        let Some(share) = self.share else {
            if pressed {
                (self.share, self.settling) = (Some(1.0), SETTLING);
            }
            return pressed;
        };
        (self.settling, self.hold) = (self.settling.saturating_sub(1), self.hold.saturating_sub(1));
        let quiet = share >= 1.0 && !pressed && load.shed * 10 <= load.received;
        self.quiet_for = if quiet { self.quiet_for + 1 } else { 0 };
        if self.quiet_for > QUIET {
            return self.stop();
        }
        if share >= 1.0 {
            self.junk = load.shed;
        }
        let sent = Sent::of(load, share, load.shed.saturating_sub(self.junk));
        let lossy = load.lost_by_busy as f64 > LOSS * load.arrived() as f64;
        let mut settling = SETTLING;
        let new = match sent.target() {
            Some(_) if lossy && self.settling > 0 => return false,
            Some(_) if lossy && sent.is_uneven() => {
                settling = RETRY;
                1.0
            }
            Some(target) if lossy => {
                (self.growth, self.hold) = (GROWTH, HOLD);
                target.min(share)
            }
            // Connects are not what is too much.
            None if lossy => (share * 2.0).min(1.0),
            _ if self.hold > 0 => return false,
            _ => {
                let larger = (share * (1.0 + self.growth)).min(1.0);
                (self.growth, self.hold) = ((self.growth * 2.0).min(1.0), TRIAL);
                larger
            }
        };
        let changed = (new - share).abs() > f64::EPSILON;
        if changed {
            (self.share, self.settling) = (Some(new), settling);
        }
        changed
    }
}

/// Datagrams per second.
struct Sent {
    connects: f64,
    others: f64,
    /// What the tracker can receive, if datagrams were lost.
    capacity: f64,
    /// The chance that a connect had.
    thinned_chance: f64,
}

impl Sent {
    /// What was sent in a second in which `share` of all sources could connect, and the filter
    /// dropped `thinned` connects.
    fn of(load: &Load, share: f64, thinned: u64) -> Self {
        let capacity = load.received as f64;
        let arrived = load.arrived() as f64;
        // What is lost consists of the same as what is received.
        let passed = load.connects as f64 / capacity.max(1.0) * arrived;
        // Where the flood passes whole, nearly nothing was thinned.
        let connects = (passed / share).min(passed + thinned as f64);
        let thinned_chance = share * capacity / arrived.max(1.0);
        Self { connects, others: arrived - passed, capacity, thinned_chance }
    }

    /// The chance of every request without thinning.
    fn chance(&self) -> f64 {
        self.capacity / (self.connects + self.others).max(1.0)
    }

    /// Whether a connect's chance was well below what it were without thinning.
    fn is_uneven(&self) -> bool {
        self.thinned_chance < self.chance() - PRICE - UNEVEN
    }

    /// The share of connects with which the rest finds room. `None` if connects are not the
    /// majority.
    fn target(&self) -> Option<f64> {
        let Self { connects, others, capacity, .. } = *self;
        if connects <= others {
            return None;
        }
        let without_loss = (capacity * HEADROOM - others) / connects;
        let chance = self.chance() - PRICE;
        let share = if without_loss >= chance || chance <= 0.0 {
            without_loss
        } else {
            // Some loss stays: s C / (A + s F) is the chance.
            (chance * others / (capacity - chance * connects)).max(without_loss)
        };
        Some(share.clamp(LEAST, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// A tracker that can serve `capacity` datagrams in a second.
    struct Model {
        capacity: f64,
        shed: ConnectShare,
        /// Where the hash of each source of the flood stands among all, 0 to 1, in this slot.
        /// Empty: the flood has as many sources as datagrams.
        sources: Vec<f64>,
        /// Datagrams that the filter drops at any share.
        junk: u64,
    }

    /// Requests in a second.
    #[derive(Clone, Copy)]
    struct Arrivals {
        connects: f64,
        others: f64,
    }

    impl Model {
        fn new(capacity: f64) -> Self {
            Self { capacity, shed: ConnectShare::default(), sources: Vec::new(), junk: 0 }
        }

        /// The part of the flood that passes a filter with this share.
        fn passing(&self, share: f64) -> f64 {
            match self.sources.len() {
                0 => share,
                all => {
                    let passing = self.sources.iter().filter(|hash| **hash <= share).count();
                    passing as f64 / all as f64
                }
            }
        }

        /// The chances of a connect and of another request in the last of these seconds; the
        /// average of the second half.
        fn run(&mut self, seconds: u32, arrivals: Arrivals) -> (f64, f64) {
            let (mut connect, mut other) = (0.0, 0.0);
            for at in 0..seconds {
                let share = self.shed.get().unwrap_or(1.0);
                let connects = arrivals.connects * self.passing(share);
                let arrived = arrivals.others + connects;
                let queued = (self.capacity / arrived).min(1.0);
                let lost = (arrived * (1.0 - queued)) as u64;
                let load = Load {
                    received: (arrived * queued) as u64,
                    lost,
                    lost_by_busy: lost,
                    connects: (connects * queued) as u64,
                    shed: (arrivals.connects - connects) as u64 + self.junk,
                    ..Load::default()
                };
                self.shed.tick(&load, lost as f64 > 0.05 * arrived);
                if at >= seconds / 2 {
                    (connect, other) = (connect + share * queued, other + queued);
                }
            }
            let counted = f64::from(seconds - seconds / 2);
            (connect / counted, other / counted)
        }
    }

    /// Half, a third and a twentieth of what arrives can be served; connects are the flood, a half,
    /// a quarter, or few. Newcomers lose at most three points, and clients with an id gain.
    #[test]
    fn newcomers_lose_little_and_established_clients_gain() {
        for capacity in [60_000.0, 40_000.0, 6_000.0] {
            for connects in [117_000.0, 90_000.0, 62_000.0, 30_000.0, 2_200.0] {
                let arrivals = Arrivals { connects, others: 120_000.0 - connects };
                let random = capacity / 120_000.0;
                let (connect, other) = Model::new(capacity).run(120, arrivals);
                let said = format!("{capacity} of {connects}: {connect:.3}, {other:.3}");
                assert!(connect >= random - 0.03, "{said}");
                assert!(other >= random - 0.005, "{said}");
                if connects >= 117_000.0 && capacity > 10_000.0 {
                    assert!(other > 0.97, "{said}");
                }
                if connects <= 30_000.0 {
                    assert!((connect - random).abs() < 0.005, "not thinned: {said}");
                }
            }
        }
    }

    /// As on a host that others share: the share falls at once and rises slowly, so that it must
    /// not stay at what the worst second needed.
    #[test]
    fn newcomers_lose_little_at_a_changing_capacity() {
        let arrivals = Arrivals { connects: 110_000.0, others: 10_000.0 };
        for seconds in [3, 7, 15] {
            let mut model = Model::new(0.0);
            let (mut connect, mut other, mut random) = (0.0, 0.0, 0.0);
            for period in 0..40 {
                model.capacity = if period % 2 == 0 { 50_000.0 } else { 70_000.0 };
                for _ in 0..seconds {
                    let (c, o) = model.run(1, arrivals);
                    (connect, other) = (connect + c, other + o);
                    random += model.capacity / 120_000.0;
                }
            }
            let count = f64::from(40 * seconds);
            let (connect, other, random) = (connect / count, other / count, random / count);
            let said = format!("every {seconds} s: {connect:.3}, {other:.3}, {random:.3}");
            assert!(connect >= random - 0.04 && other > 0.7, "{said}");
        }
    }

    /// A flood of few sources, which passes whole or in large parts, with and without junk.
    #[test]
    fn newcomers_lose_little_in_a_flood_of_few_sources() {
        let arrivals = Arrivals { connects: 110_000.0, others: 10_000.0 };
        let number = |n| [20e3, 60e3, 90e3].map(|c| [0, 300_000].map(|junk| (n, c, junk)));
        let cases = [1, 2, 3, 4, 8, 16, 64].map(number);
        for (sources, capacity, junk) in cases.into_iter().flatten().flatten() {
            let mut rng = SmallRng::seed_from_u64(sources as u64);
            let mut model = Model { junk, ..Model::new(capacity) };
            let (mut connect, mut other) = (0.0, 0.0);
            const SLOTS: u32 = 120;
            for _ in 0..SLOTS {
                model.sources = (0..sources).map(|_| rng.random()).collect();
                for _ in 0..16 {
                    let (c, o) = model.run(1, arrivals);
                    (connect, other) = (connect + c, other + o);
                }
            }
            let seconds = f64::from(SLOTS * 16);
            let (connect, other) = (connect / seconds, other / seconds);
            let random = capacity / 120_000.0;
            let said =
                format!("{sources}, {capacity}, {junk}: {connect:.3}, {other:.3}, {random:.3}");
            assert!(connect >= random - 0.04 && other >= random - 0.005, "{said}");
        }
    }

    #[test]
    fn nothing_is_shed_without_pressure_and_soon_after_a_flood() {
        let mut model = Model::new(40_000.0);
        let calm = Arrivals { connects: 3_000.0, others: 9_000.0 };
        model.run(60, calm);
        assert_eq!(model.shed.get(), None);
        model.run(60, Arrivals { connects: 120_000.0, others: 9_000.0 });
        assert!(model.shed.get().is_some_and(|share| share < 0.6), "{:?}", model.shed);
        let mut seconds = 0;
        while model.shed.get().is_some_and(|share| share < 1.0) {
            model.run(1, calm);
            seconds += 1;
        }
        assert!(seconds <= 40, "{seconds} s until every connect is answered");
        model.run(2 * QUIET, calm);
        assert_eq!(model.shed.get(), None);
    }

    /// A flood of guessed ids after one of connects: newcomers are no longer thinned.
    #[test]
    fn another_flood_ends_the_thinning() {
        let mut model = Model::new(40_000.0);
        model.run(60, Arrivals { connects: 120_000.0, others: 9_000.0 });
        model.run(20, Arrivals { connects: 2_200.0, others: 120_000.0 });
        assert_eq!(model.shed.get(), Some(1.0));
    }

    /// The filter drops junk, so that the workers are not under pressure: it stays while it does.
    #[test]
    fn the_filter_stays_while_it_drops_much() {
        let mut shed = ConnectShare::default();
        assert!(shed.tick(&Load::default(), true));
        let load = |shed| Load { received: 10_000, shed, ..Load::default() };
        assert_eq!((0..600).filter(|_| shed.tick(&load(100_000), false)).count(), 0);
        assert_eq!(shed.get(), Some(1.0));
        assert_eq!((0..=QUIET).filter(|_| shed.tick(&load(500), false)).count(), 1);
        assert_eq!(shed.get(), None);
    }
}
