//! Correct profiles are read; problems have line, key and remedy.

use super::*;
use crate::plan::profile::{BUILT_IN, Tail};
use proptest::prelude::*;

fn sets(changes: &[&str]) -> Result<Profile, String> {
    let changes: Vec<_> = changes.iter().map(|change| (*change).to_owned()).collect();
    change(&Profile::real(), &changes)
}

#[test]
fn every_built_in_profile_is_complete_consistent_and_explained() {
    for (name, _, text) in BUILT_IN {
        let profile: Profile = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, name);
        assert_eq!(consistency::contradictions(&profile), [], "{name}");
        assert_eq!(file("x.toml", text), Ok(profile), "{name}");
        let lines: Vec<_> = text.lines().collect();
        for (nth, line) in lines.iter().enumerate() {
            let Some((key, _)) = line.split_once(" = ") else { continue };
            // Keys of a list of tables are explained above the list.
            let explained = line.contains('#')
                || (nth > 0 && lines[nth - 1].starts_with('#'))
                || text.contains(&format!("# {key}: "));
            assert!(explained, "{name}: `{key}` has no comment");
        }
    }
}

#[test]
fn a_file_is_read_over_its_base() {
    let profile =
        file("x.toml", "name = \"mine\"\nbase = \"classic\"\n[mix]\nscrape = 9\n").unwrap();
    let classic = Profile::named("classic").unwrap();
    assert_eq!((profile.name.as_str(), profile.mix.scrape), ("mine", 9.0));
    assert_eq!((profile.mix.connect, profile.swarms), (classic.mix.connect, classic.swarms));
    assert_eq!(file("x.toml", "").unwrap(), Profile::real());
    let one = "[[scrapes]]\nweight = 1\nhashes = 7\n";
    assert_eq!(file("x.toml", one).unwrap().scrapes.len(), 1);
}

#[test]
fn problems_of_a_file_have_line_key_and_remedy() {
    for (text, place, remedy) in [
        ("seeders = 35\n", "p.toml:1:11: `seeders`", "found 35, expected a number from 0 to 1"),
        ("[swarms]\ntail = \"zipff\"\n", "2:8: `swarms.tail`", "did you mean \"zipf\"?"),
        ("[swarms]\nexponent = 50\n", "2:12: `swarms.exponent`", "from 0.1 to 3 where tail"),
        ("[[scrapes]]\nweight = 1\n", "p.toml:1:1: `scrapes.0`", "`hashes` is missing"),
        ("[[scrapes]]\nweight = 1\nhashes = 101\n", "p.toml:3:10: `scrapes.0.hashes`", "to 100"),
        ("[events]\ncompleted = 0.2\n", "p.toml:2:13: `events.completed`", "expected at most"),
        ("base = \"rael\"\n", "p.toml:1:8: `base`: found \"rael\"", "did you mean \"real\"?"),
    ] {
        let error = file("p.toml", text).unwrap_err();
        assert!(error.contains(place) && error.contains(remedy), "{text}: {error}");
    }
}

#[test]
fn every_key_can_be_set() {
    let changed = sets(&[
        "mix.scrape=5",
        "swarms.count = 20000",
        "swarms.tail=exponential",
        "swarms.exponent=20",
        "clients.2.num_want=-7",
        "scrapes=[{weight = 1, hashes = 74}]",
    ]);
    let changed = changed.unwrap();
    assert_eq!((changed.mix.scrape, changed.swarms.count), (5.0, 20_000));
    assert_eq!((changed.swarms.tail, changed.clients[2].num_want), (Tail::Exponential, -7));
    assert_eq!((changed.scrapes.len(), changed.scrapes[0].hashes), (1, 74));
}

#[test]
fn problems_of_set_have_key_and_remedy() {
    for (set, part) in [
        ("mix.scrape", "expected KEY=VALUE, like mix.scrape=5"),
        ("mix.scrape=lots", "`mix.scrape`: found \"lots\", expected a number from 0 to 1000000"),
        ("clients.9.weight=1", "expected the number of an entry, from 0 to 5"),
        ("seeders=1.5", "expected a number from 0 to 1"),
        ("seeders=0.1", "`events.completed`"),
        ("clients.0.prefix=abc", "help: it has 3 characters"),
    ] {
        let error = sets(&[set]).unwrap_err();
        assert!(error.contains(part), "{set}: {error}");
    }
}

#[test]
fn json_keeps_every_number() {
    for (name, ..) in BUILT_IN {
        let profile = Profile::named(name).unwrap();
        let json = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile, "{name}");
    }
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[a-z\\[\\]=.\" \n0-9{}-]{0,60}", key in "[a-z.0-9]{0,12}") {
        let _ = file("p", &text);
        let _ = sets(&[&format!("{key}={text}")]);
    }
}
