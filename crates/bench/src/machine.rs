//! The host as the bench sees it: facts for the report, cores, and limits of socket buffers.

use std::fs;

use onrush_load::affinity::{self, AffinityError};
use onrush_load::environment::Environment;

/// Facts about this host for the report, in order.
pub fn facts() -> Vec<(String, String)> {
    Environment::read().facts().into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

/// The first vCPU of each core that this process may use. Its siblings (SMT) stay idle.
///
/// # Errors
/// When the affinity mask cannot be read.
pub fn cores() -> Result<Vec<usize>, AffinityError> {
    let cores = affinity::cores(&affinity::allowed()?);
    Ok(cores.iter().map(|core| core[0]).collect())
}

/// A limit of socket buffers in bytes (`rmem_max` or `wmem_max`), for processes without
/// CAP_NET_ADMIN; `None` where it is unknown.
pub fn buffer_limit(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_cores() {
        let cores = cores().unwrap();
        assert!(!cores.is_empty() && cores.is_sorted(), "{cores:?}");
    }
}
