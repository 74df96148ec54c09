//! Properties of arrivals: they follow the integral of the rate, for any number of workers.

use proptest::prelude::*;

use super::*;

impl Pace {
    /// An open loop of `rate` requests per second, at even distances.
    pub(crate) fn rate(rate: f64) -> Self {
        Self::Open(Schedule::constant(Arrivals::Even, rate, Duration::from_secs(1)))
    }
}

const SECOND: Nanos = 1_000_000_000;

/// A rate's integral by summing up trapezoids: requests due by `t` seconds.
fn integral(segments: &[Segment], warmup: f64, t: f64) -> f64 {
    let mut sum = segments[0].from * t.min(warmup);
    let mut left = (t - warmup).max(0.0);
    for segment in segments {
        let passed = left.min(segment.seconds);
        let end = segment.from + (segment.to - segment.from) * passed / segment.seconds;
        sum += (segment.from + end) / 2.0 * passed;
        left -= passed;
    }
    sum + left * segments[segments.len() - 1].to
}

fn total(segments: &[Segment]) -> f64 {
    segments.iter().map(|segment| segment.seconds).sum()
}

/// All arrivals before `end`, those of every worker, in order.
fn arrivals(
    schedule: &Schedule,
    begin: Nanos,
    end: Nanos,
    workers: usize,
    seed: u64,
) -> Vec<Nanos> {
    let mut all = Vec::new();
    for worker in 0..workers {
        let mut timetable = Timetable::new(schedule, begin, worker, workers, seed);
        let own = std::iter::from_fn(|| (timetable.next() < end).then(|| timetable.take()));
        let own: Vec<_> = own.collect();
        assert!(own.is_sorted(), "arrivals of a worker are in order");
        all.extend(own);
    }
    all.sort_unstable();
    all
}

fn schedule(arrivals: Arrivals, segments: Vec<Segment>) -> Schedule {
    Schedule { arrivals, segments }
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    // A rate may fall to nothing, also for a whole segment.
    let rate = prop_oneof![4 => 0.1..5000.0f64, 1 => Just(0.0)];
    let segment =
        (rate.clone(), rate, any::<bool>(), 0.01..3.0f64).prop_map(|(from, to, level, seconds)| {
            Segment { from, to: if level { from } else { to }, seconds }
        });
    proptest::collection::vec(segment, 1..6)
}

proptest! {
    #[test]
    fn even_arrivals_are_the_integral_over_any_time(
        segments in segments(),
        warmup in 0.0..2.0f64,
        workers in 1usize..5,
        from in 0.0..1.0f64,
        to in 0.0..1.0f64,
    ) {
        let whole = warmup + total(&segments);
        let (from, to) = (whole * from.min(to), whole * from.max(to));
        let schedule = schedule(Arrivals::Even, segments.clone());
        let end = (whole * 1e9) as Nanos;
        let all = arrivals(&schedule, (warmup * 1e9) as Nanos, end, workers, 1);
        let range = from * 1e9..to * 1e9;
        let within = all.iter().filter(|due| range.contains(&(**due as f64))).count();
        let due = integral(&segments, warmup, to) - integral(&segments, warmup, from);
        prop_assert!((within as f64 - due).abs() <= 1.001, "{within} for {due}");
    }

    #[test]
    fn what_is_left_is_what_would_have_come(
        segments in segments(),
        taken in 0usize..2000,
        worker in 0usize..3,
        cut in 0.0..1.0f64,
    ) {
        let end = (total(&segments) * cut * 1e9) as Nanos;
        let schedule = schedule(Arrivals::Even, segments);
        let mut timetable = Timetable::new(&schedule, 0, worker, 3, 1);
        for _ in 0..taken {
            timetable.ready(end / 2, 32);
            timetable.take();
        }
        let said = timetable.left(end);
        let mut came = 0;
        while timetable.next() < end {
            timetable.take();
            came += 1;
        }
        prop_assert!(said.abs_diff(came) <= 1, "{said} said, {came} came");
    }

    #[test]
    fn poisson_arrivals_are_decided_by_the_seed(segments in segments(), seed: u64) {
        let schedule = schedule(Arrivals::Poisson, segments);
        let seconds: f64 = schedule.segments.iter().map(|segment| segment.seconds).sum();
        let end = (seconds * 1e9) as Nanos;
        let first = arrivals(&schedule, 0, end, 2, seed);
        prop_assert_eq!(&first, &arrivals(&schedule, 0, end, 2, seed));
        if first.len() > 10 {
            prop_assert!(first != arrivals(&schedule, 0, end, 2, seed ^ 1));
        }
    }
}

/// Mean and variance of a Poisson process's counts are both the integral, in every piece of a
/// schedule and however many workers share it; within five standard errors of 2,000 counts.
#[test]
fn poisson_arrivals_have_the_counts_of_a_poisson_process() {
    let pieces = vec![
        Segment { from: 2000.0, to: 2000.0, seconds: 40.0 },
        Segment { from: 1000.0, to: 3000.0, seconds: 40.0 },
        Segment { from: 500.0, to: 500.0, seconds: 160.0 },
    ];
    let schedule = schedule(Arrivals::Poisson, pieces.clone());
    for workers in [1, 3] {
        let all = arrivals(&schedule, 0, 240 * SECOND, workers, 7);
        // Slots of 0.02 s, and of 0.08 s where the rate is a quarter.
        for (from, to, slot) in [(0.0, 40.0, 0.02), (40.0, 80.0, 0.02), (80.0, 240.0, 0.08)] {
            let slots = ((to - from) / slot) as usize;
            let mut counts = vec![0.0; slots];
            for due in all.iter().map(|due| *due as f64 / 1e9) {
                if (from..to).contains(&due) {
                    counts[(((due - from) / slot) as usize).min(slots - 1)] += 1.0;
                }
            }
            // The expected count of each slot.
            let expected: Vec<f64> = (0..slots)
                .map(|n| from + n as f64 * slot)
                .map(|at| integral(&pieces, 0.0, at + slot) - integral(&pieces, 0.0, at))
                .collect();
            let n = slots as f64;
            let scaled = |power: i32| {
                let pairs = counts.iter().zip(&expected);
                pairs.map(|(c, e)| ((c - e) / e.sqrt()).powi(power)).sum::<f64>() / n
            };
            let (mean, variance) = (scaled(1), scaled(2));
            assert!(mean.abs() < 5.0 / n.sqrt(), "{workers} workers, from {from} s: mean {mean}");
            let spread = 5.0 * (2.1 / n).sqrt();
            assert!((variance - 1.0).abs() < spread, "{workers}, {from} s: variance {variance}");
        }
    }
}

#[test]
fn the_first_rate_holds_before_the_schedule_and_the_last_one_after_it() {
    let ramp = vec![Segment { from: 100.0, to: 300.0, seconds: 1.0 }];
    let all = arrivals(&schedule(Arrivals::Even, ramp), SECOND, 4 * SECOND, 1, 1);
    let within = |from, to| all.iter().filter(|due| (from..to).contains(*due)).count();
    assert_eq!(within(0, SECOND), 100);
    assert_eq!(within(SECOND, 2 * SECOND), 200);
    assert_eq!(within(2 * SECOND, 3 * SECOND), 300);
    assert_eq!(within(3 * SECOND, 4 * SECOND), 300);
}

#[test]
fn workers_take_turns() {
    let Pace::Open(schedule) = Pace::rate(1000.0) else { panic!() };
    let mut two: Vec<_> = (0..2).map(|n| Timetable::new(&schedule, 0, n, 2, 1)).collect();
    let dues: Vec<_> = (0..6).map(|n| two[n % 2].take()).collect();
    assert_eq!(dues, [0, 1, 2, 3, 4, 5].map(|ms| ms * 1_000_000));
}

#[test]
fn what_is_ready_waits_in_order() {
    let Pace::Open(schedule) = Pace::rate(1000.0) else { panic!() };
    let mut timetable = Timetable::new(&schedule, 0, 0, 1, 1);
    assert_eq!(timetable.ready(2_500_000, 32), 3);
    assert_eq!((timetable.next(), timetable.take()), (0, 0));
    assert_eq!((timetable.ready(9_999_999, 4), timetable.next()), (4, 1_000_000));
    assert_eq!(timetable.left(10_000_000), 9);
    let rest: Vec<_> = (0..9).map(|_| timetable.take()).collect();
    assert_eq!(rest, [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|ms| ms * 1_000_000));
}

#[test]
fn paces_are_described() {
    let piece = |from, to, seconds| Segment { from, to, seconds };
    for (pace, text) in [
        (Pace::InFlight(7), "closed loop, 7 in flight per worker"),
        (Pace::rate(20_000.0), "open loop, 20,000 per second"),
        (
            Pace::Open(schedule(Arrivals::Poisson, vec![piece(0.5, 2000.0, 30.0)])),
            "open loop, 0.5 to 2,000 per second, Poisson arrivals",
        ),
        (
            Pace::Open(schedule(
                Arrivals::Even,
                vec![piece(10.0, 10.0, 5.0), piece(1.0, 9.0, 2.5)],
            )),
            "open loop, 10 for 5 s, 1 to 9 for 2.5 s per second",
        ),
    ] {
        assert_eq!(pace.describe(), text);
        let json = serde_json::to_string(&pace).unwrap();
        assert_eq!(serde_json::from_str::<Pace>(&json).unwrap(), pace, "{json}");
    }
}
