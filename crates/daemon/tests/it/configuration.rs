//! The effect of the configuration on the process: exit codes and output. Keys and values have
//! tests in onrush-config.

use crate::harness::process::Launch;

#[test]
fn a_wrong_file_exits_with_2_before_the_start() {
    let launch = Launch::new(&[]).config("[announce]\n  intervall = 900\n");
    let path = launch.config_path();
    let ended = launch.start().end();
    assert_eq!(ended.code, Some(2), "{}", ended.text());
    let place = format!("{}:2:3: `announce.intervall`", path.display());
    assert!(ended.log[0].contains(&place), "{}", ended.text());
    assert!(ended.text().contains("`interval`"), "{}", ended.text());
    assert_eq!(ended.output, "");
}

#[test]
fn a_wrong_flag_exits_with_2() {
    for (flag, value) in [("--listen", "nowhere"), ("--workers", "0"), ("--config", "/nowhere")] {
        let ended = Launch::new(&[flag, value]).start().end();
        assert_eq!(ended.code, Some(2), "{}", ended.text());
        assert!(ended.text().contains(value), "{}", ended.text());
    }
}

#[test]
fn check_config_prints_a_summary_and_starts_nothing() {
    let config = "listen = [\"127.0.0.1:7001\"]\n[announce]\ninterval = 1200\n";
    let launch = Launch::new(&["--check-config"]).config(config);
    let path = launch.config_path();
    let ended = launch.start().end();
    assert_eq!((ended.code, ended.text()), (Some(0), String::new()));
    let path = path.display().to_string();
    for part in [&path, "127.0.0.1:7001", "1200 s"] {
        assert!(ended.output.contains(part), "{}", ended.output);
    }
}

#[test]
fn an_invalid_list_fails_check_config_and_the_start() {
    let list = tempfile::NamedTempFile::new().unwrap();
    let path = list.path().display().to_string();
    let config = format!("[access]\nmode = \"allow\"\nfile = {path:?}\n");
    let launch = |flags: &[&str]| Launch::new(flags).config(&config).start().end();
    std::fs::write(&list, "ab".repeat(20)).unwrap();
    let checked = launch(&["--check-config"]);
    let listed = |line: &str| line.contains("list ") && line.contains(" 1 ");
    assert!(checked.output.lines().any(listed), "{}", checked.output);
    std::fs::write(&list, "ab\n").unwrap();
    let (checked, started) = (launch(&["--check-config"]), launch(&["--listen", "127.0.0.1:0"]));
    assert_eq!((checked.code, started.code), (Some(2), Some(2)), "{}", started.text());
    for ended in [checked, started] {
        assert!(ended.text().contains(&format!("{path}:1: \"ab\"")), "{}", ended.text());
    }
}

#[test]
fn check_config_exits_with_2_on_a_wrong_file() {
    let launch = Launch::new(&["--check-config"]).config("[log]\nlevel = \"loud\"\n");
    let ended = launch.start().end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.text().contains(":2:9: `log.level`"), "{}", ended.text());
}

#[test]
fn the_output_of_print_config_is_valid() {
    let printed = Launch::new(&["--print-config"]).start().end();
    assert_eq!((printed.code, printed.text()), (Some(0), String::new()));
    let ended = Launch::new(&["--check-config"]).config(&printed.output).start().end();
    assert_eq!((ended.code, ended.text()), (Some(0), String::new()));
}
