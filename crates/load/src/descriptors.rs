//! File descriptors: a socket takes one, and a process starts with leave for about a thousand.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What the process has open besides sockets: standard streams, the report, an epoll or two.
const OTHERS: u64 = 64;

/// Makes room for `sockets` sockets: raises the soft limit as far as the hard one lets it.
///
/// # Errors
/// A sentence with the number needed and what to do, when the hard limit is lower.
pub fn reserve(sockets: u64) -> Result<(), String> {
    let needed = sockets + OTHERS;
    // Where limits cannot be looked at, binding will say what is wrong.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        return Err(format!(
            "{sockets} sockets need {needed} open files, and this process may have {hard}: run \
             `ulimit -n {needed}` as root before, or use fewer --sources or --workers"
        ));
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard)
        .map_err(|error| format!("cannot raise the limit of open files to {needed}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said_with_its_number() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(reserve(1), Ok(()));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, soft, "no more than needed");
        if hard < u64::MAX - 1000 {
            let error = reserve(hard).unwrap_err();
            assert!(error.contains(&format!("ulimit -n {}", hard + OTHERS)), "{error}");
        }
    }
}
