//! File descriptors: a socket takes one, and a process starts with leave for about a thousand.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What the process has open besides sockets: standard streams, the report, an epoll or two.
const OTHERS: u64 = 64;

/// Makes room for `sockets` sockets: raises the soft limit, and the hard one as well where the process may
/// (CAP_SYS_RESOURCE, up to the sysctl fs.nr_open: getrlimit(2)).
///
/// # Errors
/// A sentence with the number needed and what to do, when the hard limit is lower and stays so.
pub fn reserve(sockets: u64) -> Result<(), String> {
    let needed = sockets + OTHERS;
    // Where limits cannot be looked at, binding will say what is wrong.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| {
        format!(
            "{sockets} sockets need {needed} open files, and this process may have {hard}: run \
             `ulimit -n {needed}` as root before (above 1048576 also `sysctl -w \
             fs.nr_open={needed}`), or use fewer --sources or --workers"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said_with_its_number() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(reserve(1), Ok(()));
        // More than any system has.
        let error = reserve(1 << 40).unwrap_err();
        assert!(error.contains(&format!("ulimit -n {}", (1u64 << 40) + OTHERS)), "{error}");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), before, "no more than needed");
    }
}
