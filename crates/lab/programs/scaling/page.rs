//! The model as a page: tables in Markdown and a picture in SVG.

#![allow(dead_code, unreachable_pub, reason = "the program and the test each use their part")]

use std::fmt::Write as _;

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

// The picture

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

type Curve = (&'static str, &'static str, Vec<(f64, f64)>);

/// Replies per second over the vCPUs of whole hosts.
pub fn picture() -> String {
    let curves = curves();
    let points = curves.iter().flat_map(|(_, _, points)| points);
    let most = (points.map(|point| point.1).fold(0.0, f64::max) / 1e6).ceil();
    let x = |vcpus: f64| LEFT + (WIDTH - LEFT - RIGHT) * vcpus / 48.0;
    let y = |replies: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * replies / (most * 1e6);
    let title = "Predicted replies a second by vCPUs, whole hosts, real mix";
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>text{{font:13px system-ui,sans-serif;fill:#222}}\
         .title{{font-size:17px;font-weight:600}}\
         polyline{{fill:none;stroke-width:2.5}}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"26\" class=\"title\">{title}</text>\n"
    );
    for million in 0..=most as u32 {
        let at = y(f64::from(million) * 1e6);
        line!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            x(48.0)
        );
        line!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{million} M</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for vcpus in (0..=48).step_by(8) {
        let at = x(f64::from(vcpus));
        line!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{vcpus}</text>",
            HEIGHT - 26.0
        );
    }
    line!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">vCPUs</text>",
        x(24.0),
        HEIGHT - 8.0
    );
    let mut last = f64::NEG_INFINITY;
    let mut ends: Vec<_> =
        curves.iter().map(|(_, _, points)| points.last().map_or(0.0, |p| p.1)).collect();
    ends.sort_by(|a, b| b.total_cmp(a));
    for end in ends {
        for (name, colour, points) in
            curves.iter().filter(|c| c.2.last().is_some_and(|p| p.1 == end))
        {
            let path: Vec<_> =
                points.iter().map(|(n, v)| format!("{:.1},{:.1}", x(*n), y(*v))).collect();
            line!(out, "<polyline points=\"{}\" stroke=\"{colour}\"/>", path.join(" "));
            // Labels keep a line's distance.
            last = (y(end) + 4.0).max(last + 16.0);
            line!(
                out,
                "<text x=\"{:.1}\" y=\"{last:.1}\" style=\"fill:{colour}\">{name}</text>",
                x(48.0) + 8.0
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

fn curves() -> Vec<Curve> {
    let over = |f: &dyn Fn(Host) -> f64| {
        (2..=48).step_by(2).map(|n| (n as f64, f(Host::whole(n)))).collect::<Vec<_>>()
    };
    let even = Assumed { hot: 0.0, ..REAL };
    vec![
        ("colocated, none hot", "#1f6f8b", over(&|host| colocated(host, &even))),
        (
            "best split, 1 % hot",
            "#c46a2b",
            over(&|host| best_split(host, &REAL).map_or(0.0, |b| b.1)),
        ),
        ("colocated, 1 % hot", "#6a4c93", over(&|host| colocated(host, &REAL))),
    ]
}
