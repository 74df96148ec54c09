//! bittorrent-tracker, the reference of WebTorrent: one thread of Node.js.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Contender, Launch, USUAL};
use crate::mix::Protocol;

/// bittorrent-tracker from npm.
pub const BITTORRENT_TRACKER: Contender = Contender {
    name: "bittorrent-tracker",
    keyword: "bittorrent-tracker",
    remedy: "scripts/bench-peers --only bittorrent-tracker (needs Node.js)",
    settings: "HTTP or WebSocket only, errors only on its output, no statistics; it has one \
               thread, however many cores there are",
    protocols: &[Protocol::Http, Protocol::Ws],
    behind_hitch: true,
    version,
    launch: |found, _, setup| {
        let server = if setup.protocol.is_webtorrent() { "--ws" } else { "--http" };
        let (ip, port) = (setup.address.ip(), setup.address.port());
        let line = format!("{server} --http-hostname {ip} --port {port} --quiet --no-stats");
        let arguments = line.split(' ').map(Into::into).collect();
        Ok(Launch { program: found.program.clone(), arguments, ..Launch::default() })
    },
    ..USUAL
};

/// The version of the package that the program starts: `--version` of 11.2.3 fails.
fn version(program: &Path) -> Option<String> {
    let text = fs::read_to_string(program).ok()?;
    let main = text.split('"').find(|word| word.ends_with("/bin/cmd.js"))?;
    let package = Path::new(main).parent()?.parent()?.join("package.json");
    let package: Value = serde_json::from_str(&fs::read_to_string(package).ok()?).ok()?;
    package.get("version")?.as_str().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::{installed, script, setup};
    use crate::cpus::Assignment;
    use crate::mix::Mix;

    #[test]
    fn it_serves_what_the_load_speaks() {
        let found = installed(&BITTORRENT_TRACKER);
        let seats = Assignment::new(&[0, 1], 1, 1).unwrap();
        for (mix, server) in [(Mix::Http, "--http"), (Mix::Ws, "--ws")] {
            let variant = &found.variants(&seats, mix.protocol())[0];
            let launches = found.launch(variant, &setup(Path::new("/tmp"), mix)).unwrap();
            let line = launches[0].0.arguments.join(" ");
            let expected = format!("{server} --http-hostname 127.0.0.1 --port 7000");
            assert!(line.starts_with(&expected), "{line}");
        }
        assert!(found.variants(&seats, Mix::Spread.protocol()).is_empty());
    }

    #[test]
    fn its_version_is_that_of_the_package() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("package.json"), r#"{"version": "11.2.3"}"#).unwrap();
        fs::create_dir(root.path().join("bin")).unwrap();
        let line = format!("exec node \"{}/bin/cmd.js\" \"$@\"", root.path().display());
        let program = script(root.path(), "bittorrent-tracker", &line);
        assert_eq!(version(&program).as_deref(), Some("11.2.3"));
        assert_eq!(version(Path::new("/nowhere")), None);
    }
}
