//! `/metrics` in the text format of Prometheus. The series come from the tables of counters
//! (`tables`) and of computed series (`COMPUTED`).

use super::computed::COMPUTED;
use super::snapshot::StatsSnapshot;
use super::tables;
use super::text::Samples;

/// The page of a snapshot.
pub fn write(all: &StatsSnapshot) -> String {
    let mut page = String::with_capacity(64 << 10);
    for series in COMPUTED {
        let kind = (series.kind, series.name);
        let mut to = Samples::begin(&mut page, kind, series.labels, series.help);
        (series.write)(all, &mut to);
    }
    tables::write(&mut page, all);
    page
}
