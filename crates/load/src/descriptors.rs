//! The limit of open files: each socket needs a descriptor, and the usual soft limit is 1,024.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors besides the sockets: standard streams, report files, epoll.
const OTHERS: u64 = 64;

/// Raises the soft limit for `sockets` sockets, and the hard limit where the process may
/// (CAP_SYS_RESOURCE, up to the sysctl fs.nr_open: getrlimit(2)).
///
/// # Errors
/// A sentence with the number needed and the remedy, when the hard limit is too low.
pub fn reserve(sockets: u64) -> Result<(), String> {
    let needed = sockets + OTHERS;
    // Where limits cannot be read, binding reports the problem.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| {
        format!(
            "{sockets} sockets need {needed} open files, and this process may have {hard}: run \
             `ulimit -n {needed}` as root before (above 1048576 also `sysctl -w \
             fs.nr_open={needed}`), or use fewer --sources"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_reported_with_the_number() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(reserve(1), Ok(()));
        // More than any system allows.
        let error = reserve(1 << 40).unwrap_err();
        assert!(error.contains(&format!("ulimit -n {}", (1u64 << 40) + OTHERS)), "{error}");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), before, "the limits are unchanged");
    }
}
