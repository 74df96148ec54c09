//! The pictures of a report: throughput by cores, CPU time per reply.

use crate::summary::Summary;

/// Name and text of each picture.
pub(super) fn pictures(_summary: &Summary) -> Vec<(String, String)> {
    Vec::new()
}
