//! `/metrics` in the text formats of Prometheus: OpenMetrics 1.0 where the client asks for it, else
//! the text format 0.0.4. The series come from the tables of counters (`tables`) and of computed
//! series (`COMPUTED`).

use super::computed::COMPUTED;
use super::snapshot::StatsSnapshot;
use super::tables;
use super::text::{Format, Samples};

/// The page of a snapshot.
pub fn write(all: &StatsSnapshot, format: Format) -> String {
    let mut page = String::with_capacity(64 << 10);
    for series in COMPUTED {
        let kind = (series.kind, series.name);
        let mut to = Samples::begin(&mut page, format, kind, series.labels, series.help);
        (series.write)(all, &mut to);
    }
    tables::write(&mut page, format, all);
    if format == Format::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}
