//! The model as a page: tables in Markdown and a picture in SVG.

#![allow(dead_code, unreachable_pub, reason = "the program and the test each use their part")]

use std::fmt::Write as _;

use onrush_load::chart::{self, Axis, Line, Lines};

use super::model::{
    self, Assumed, CLASSIC, Host, PUBLISHED, REAL, best_split, colocated, colocated_relieved, split,
};

/// The program replaces the text between this line and [`END`].
pub const BEGIN: &str =
    "<!-- written by: cargo run --release -p onrush-lab --bin scaling -- --write -->\n";
/// See [`BEGIN`].
pub const END: &str = "<!-- end of what is written -->\n";

/// The page with these tables; `None` when it lacks the marks.
pub fn with_tables(page: &str, tables: &str) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}{tables}{END}{tail}"))
}

/// All tables.
pub fn tables() -> String {
    let mut out = String::new();
    beside_published(&mut out);
    whole_hosts(&mut out);
    splits_of_48(&mut out);
    sensitivity(&mut out);
    out
}

/// Writes a line to a string, which cannot fail.
macro_rules! line {
    ($out:expr, $($arguments:tt)*) => {
        writeln!($out, $($arguments)*).expect("a string takes everything")
    };
}

fn beside_published(out: &mut String) {
    line!(out, "\n### Beside published figures: one vCPU of each core, classic mix\n");
    line!(out, "Costs multiplied by {:.2}. Thousands of replies per second.\n", model::factor());
    line!(
        out,
        "| vCPUs | aquatic_udp, published (vCPUs in use) | aquatic_udp, model, all in use | onrush \
         colocated | best split (socket + swarm) | extra cost per reply over one vCPU |"
    );
    line!(out, "|---|---|---|---|---|---|");
    for (vcpus, replies, busy) in PUBLISHED.map(|entry| (entry.0, entry.1, entry.2)) {
        let host = Host::one_a_core(vcpus);
        line!(
            out,
            "| {vcpus} | {:.0} ({busy:.1}) | {:.0} | {:.0} | {} | {:.1} % |",
            replies / 1e3,
            model::aquatic(host) / 1e3,
            colocated(host, &CLASSIC) / 1e3,
            shown_split(host, &CLASSIC),
            (model::crowding(vcpus) - 1.0) * 100.0,
        );
    }
}

fn whole_hosts(out: &mut String) {
    line!(out, "\n### Whole hosts, two vCPUs to a core, real mix\n");
    line!(
        out,
        "Thousands of replies per second without loss. `hot`: the most popular info hash has {} \
         % of the announces;\n\
         `back-off`: steering to its worker is withdrawn.\n",
        REAL.hot * 100.0
    );
    line!(
        out,
        "| vCPUs | colocated, none hot | colocated, hot | hot, back-off | best split, hot | ahead |"
    );
    line!(out, "|---|---|---|---|---|---|");
    for vcpus in [2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48] {
        let host = Host::whole(vcpus);
        let alone = colocated(host, &REAL);
        let most = best_split(host, &REAL).map_or(0.0, |(_, most)| most);
        line!(
            out,
            "| {vcpus} | {:.0} | {:.0} | {:.0} | {} | {} |",
            colocated(host, &Assumed { hot: 0.0, ..REAL }) / 1e3,
            alone / 1e3,
            colocated_relieved(host, &REAL) / 1e3,
            shown_split(host, &REAL),
            if most > alone { "split" } else { "colocated" },
        );
    }
}

fn splits_of_48(out: &mut String) {
    let host = Host::whole(48);
    line!(out, "\n### Splits of 48 vCPUs, real mix, hot\n");
    line!(
        out,
        "| socket + swarm workers | requests per message | ns per reply, socket side | ns per \
         reply, swarm \
         side | thousands per second | load of the busiest swarm worker |"
    );
    line!(out, "|---|---|---|---|---|---|");
    for workers in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24] {
        let costs = model::split_costs(host, &REAL, workers);
        line!(
            out,
            "| {} + {workers} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} % |",
            48 - workers,
            costs.requests,
            costs.socket_side,
            costs.swarm_side,
            split(host, &REAL, workers) / 1e3,
            model::swarm_load(host, &REAL, workers) * 100.0,
        );
    }
}

fn sensitivity(out: &mut String) {
    line!(out, "\n### Sensitivity: 48 vCPUs, real mix, one assumption changed\n");
    line!(out, "| assumption | colocated | back-off | best split | split is ahead from |");
    line!(out, "|---|---|---|---|---|");
    let host = Host::whole(48);
    for (what, assumed) in variations() {
        let from =
            model::crossover(&assumed, 48).map_or("never".to_owned(), |n| format!("{n} vCPUs"));
        line!(
            out,
            "| {what} | {:.0} | {:.0} | {} | {from} |",
            colocated(host, &assumed) / 1e3,
            colocated_relieved(host, &assumed) / 1e3,
            shown_split(host, &assumed),
        );
    }
}

fn variations() -> Vec<(&'static str, Assumed)> {
    vec![
        ("as above", REAL),
        ("no hot info hash", Assumed { hot: 0.0, ..REAL }),
        ("hot: 0.1 %", Assumed { hot: 0.001, ..REAL }),
        ("hot: 5 %", Assumed { hot: 0.05, ..REAL }),
        ("64 datagrams per receive call", Assumed { batch: 64.0, ..REAL }),
        ("16 datagrams per receive call", Assumed { batch: 16.0, ..REAL }),
        ("half of the announces are steered right", Assumed { steered: 0.5, ..REAL }),
        ("two threads of a core do 1.1 times the work of one", Assumed { smt: 1.1, ..REAL }),
        ("two threads of a core do 1.5 times the work of one", Assumed { smt: 1.5, ..REAL }),
        ("two sockets", Assumed { sockets: 2.0, ..REAL }),
        ("swarm workers full", Assumed { swarm_load: 1.0, ..REAL }),
    ]
}

fn shown_split(host: Host, assumed: &Assumed) -> String {
    best_split(host, assumed).map_or("-".to_owned(), |(workers, most)| {
        format!("{:.0} ({} + {workers})", most / 1e3, host.vcpus - workers)
    })
}

/// A picture of the replies per second over the vCPUs of whole hosts.
pub fn picture() -> String {
    let over = |replies: &dyn Fn(Host) -> f64| {
        (2..=48).step_by(2).map(|n| (n as f64, replies(Host::whole(n)))).collect::<Vec<_>>()
    };
    let even = Assumed { hot: 0.0, ..REAL };
    let split = |host| best_split(host, &REAL).map_or(0.0, |(_, most)| most);
    chart::lines(&Lines {
        title: "Predicted replies per second by vCPUs, whole hosts, real mix".into(),
        x: Axis::linear("vCPUs").marks((0..=48).step_by(8).map(f64::from)),
        y: Axis::linear("replies per second"),
        lines: vec![
            Line::new("colocated, none hot", over(&|host| colocated(host, &even))),
            Line::new("best split, 1 % hot", over(&split)),
            Line::new("colocated, 1 % hot", over(&|host| colocated(host, &REAL))),
        ],
        spans: Vec::new(),
    })
}
