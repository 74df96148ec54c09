//! Reloads, new keys and a kill under load; `--check-config`, and an interface with a small MTU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{Launch, eventually, leecher, meanwhile, random_hash, run, transaction};
use crate::link::{
    PORT, QUEUES, XDP, attached, client, frames, launch, load, of_queue, with_program_of_clients,
};
use crate::queues::received;
use crate::sandbox::Hosts;

/// Tables with a key file and these blocked sources.
fn tables(blocked: &str) -> String {
    format!("{XDP}[connection]\nkey_file = \"HOME/key\"\n[access]\nblocked = [{blocked}]\n")
}

/// A successor accepts ids of the former key until it is dropped, in the driver too.
#[test]
fn reloads_and_new_keys_lose_nothing_and_after_a_kill_the_queues_are_opened_again() {
    const KEYS: &str = "state_dir = \"HOME/state\"\n";
    let [first, second] = ["00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"];
    with_program_of_clients(|hosts| {
        let launch_keyed = |key: &str| -> Launch {
            let launch = launch(KEYS, &tables(""));
            set_key(&launch.config_path().with_file_name("key"), key);
            launch
        };
        let mut daemon = launch_keyed(&format!("current {first}\n")).serve();
        let key_file = daemon.home().join("key");
        let old = client(hosts, 0).connected();
        meanwhile([client(hosts, 0), client(hosts, 1)].map(load), || {
            for blocked in ["\"192.0.2.0/24\"", ""] {
                daemon.configure(&format!("listen = [\":{PORT}\"]\n{KEYS}{}", tables(blocked)));
                daemon.local_output(&["reload"]);
            }
            set_key(&key_file, &format!("current {second}\nprevious {first}\n"));
            daemon.upgrade();
            old.check_swarm();
            set_key(&key_file, &format!("current {second}\n"));
            daemon.upgrade();
        });
        let refused = frames(&daemon, "refused");
        let announce = leecher(random_hash(), 4_001);
        old.send(&announce.bytes(old.id, transaction()));
        eventually("the program refuses the old id", || frames(&daemon, "refused") > refused);

        let client_of_both = client(hosts, 0).connected();
        let request = announce.bytes(client_of_both.id, transaction());
        let flood = || {
            let _ = client_of_both.try_send(&request);
        };
        meanwhile([flood], || {
            daemon.kill();
            let daemon = launch_keyed(&format!("current {second}\n")).serve();
            eventually("a queue receives", || (0..2).any(|queue| received(&daemon, queue) > 0));
            assert_eq!([0, 1].map(|queue| of_queue(&daemon, "open", queue)), [1, 1]);
            client(hosts, 1).connect_and_check();
            daemon.stop();
        });
    });
}

fn set_key(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Nothing is attached.
#[test]
fn check_config_says_what_would_happen_on_this_host() {
    Hosts::with(|_| {
        let check = |tables: &str| launch("", tables).flags(&["--check-config"]).run();
        let connects = "write `connects = \"driver\"`";
        check(QUEUES).prints(&["2 AF_XDP queues of 2 workers with 4 MiB", connects]);
        assert_eq!(attached(), None);
        let other = QUEUES.replace("tracker", "eth9");
        check(&other).prints(&["xdp.interfaces.0", "there is no interface eth9"]);
        check(&format!("{other}required = true\n")).exits(2, &["onrush.toml:3:15", "eth9"]);
    });
}

/// IPv6 does not permit it.
#[test]
fn with_an_mtu_below_1280_sockets_serve_unless_the_program_is_required() {
    Hosts::with(|hosts| {
        run("ip -6 address flush dev tracker");
        run("ip link set tracker mtu 1279");
        let part = "the MTU of tracker is 1279";
        launch("", &format!("{QUEUES}required = true\n")).run().exits(2, &[part, "mtu 1500"]);
        let mut daemon = launch("", QUEUES).serve();
        daemon.wait_for_line(part);
        client(hosts, 0).connect_and_check();
        daemon.stop();
    });
}
