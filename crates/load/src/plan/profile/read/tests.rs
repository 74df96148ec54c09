//! What is right is read, what is wrong is named.

use super::*;
use proptest::prelude::*;

fn sets(changes: &[&str]) -> Result<Profile, String> {
    let changes: Vec<_> = changes.iter().map(|change| (*change).to_owned()).collect();
    change(&Profile::real(), &changes)
}

#[test]
fn every_profile_that_comes_along_is_right_and_has_every_key() {
    for (name, _, text) in BUILT_IN {
        let profile = complete(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(profile.name, name);
        assert_eq!(limits::together(&profile), [], "{name}");
        assert_eq!(file("x.toml", text), Ok(profile), "{name}");
    }
}

#[test]
fn every_key_has_a_rule_and_a_comment() {
    fn walk(value: &Value, path: &str) {
        match value {
            Value::Table(table) => {
                for (key, value) in table {
                    walk(value, &join(path, key));
                }
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(n, v)| walk(v, &format!("{path}.{n}")));
            }
            value => {
                let fits = limits::of(path).unwrap_or_else(|| panic!("`{path}` has no rule"));
                assert!(leaf(value.clone(), fits).is_ok(), "{path}");
            }
        }
    }
    for (name, _, text) in BUILT_IN {
        walk(&as_value(&Profile::named(name).unwrap()), "");
        for (nth, written) in text.lines().enumerate() {
            let Some((key, _)) = written.split_once(" = ") else { continue };
            let lines: Vec<_> = text.lines().collect();
            // Entries of a list are explained above the first one.
            let explained = written.contains('#')
                || (nth > 0 && lines[nth - 1].starts_with('#'))
                || text.contains(&format!("# {key}: "));
            assert!(explained, "{name}: `{key}` has no comment");
        }
    }
}

#[test]
fn a_file_says_what_it_does_otherwise() {
    let profile =
        file("x.toml", "name = \"mine\"\nbase = \"classic\"\n[mix]\nscrape = 9\n").unwrap();
    let classic = Profile::classic();
    assert_eq!((profile.name.as_str(), profile.mix.scrape), ("mine", 9.0));
    assert_eq!((profile.mix.connect, profile.swarms), (classic.mix.connect, classic.swarms));
    assert_eq!(file("x.toml", "").unwrap(), Profile::real());
    let one = "[[scrapes]]\nweight = 1\nhashes = 7\n";
    assert_eq!(file("x.toml", one).unwrap().scrapes.len(), 1);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_line_and_key() {
    for (text, named) in [
        ("\n[mix]\nscrpe = 2\n", "p.toml:3: `mix.scrpe`: unknown key; did you mean `scrape`?"),
        ("mixx = 2\n", "p.toml:1: `mixx`: unknown key; did you mean `mix`?"),
        ("[qqqqq]\n", "p.toml:1: `qqqqq`: unknown key; the keys here are"),
        ("seeders = 35\n", "p.toml:1: `seeders`: found 35, expected a number from 0 to 1"),
        ("[swarms]\ncount = 1.5\n", "p.toml:2: `swarms.count`: found 1.5, expected a whole number"),
        (
            "[swarms]\ntail = \"pareta\"\n",
            "p.toml:2: `swarms.tail`: found \"pareta\": did you mean `pareto`?",
        ),
        (
            "[swarms]\nexponent = 50\n",
            "p.toml:2: `swarms.exponent`: found 50, expected a number from 0.1 to 3 where tail = \"zipf\"",
        ),
        ("mix = 3\n", "p.toml:1: `mix`: found 3, expected a table"),
        ("[scrapes]\nweight = 1\n", "`scrapes`: found a table, expected a list of tables"),
        (
            "[[scrapes]]\nweight = 1\nhashes = 5\n[[scrapes]]\nweight = 1\n",
            "p.toml:4: `scrapes.1`: `hashes` is missing",
        ),
        ("[[scrapes]]\nweight = 1\nhashes = 101\n", "p.toml:3: `scrapes.0.hashes`: found 101"),
        (
            "[events]\ncompleted = 0.2\n",
            "p.toml:2: `events.completed`: found 0.2, expected at most",
        ),
        ("base = \"rael\"\n", "p.toml:1: `base`: there is no profile `rael`; did you mean `real`?"),
        ("[mix]\nscrape = \n", "p.toml:2: syntax: "),
        ("seeders = nan\n", "p.toml:1: `seeders`: found nan"),
    ] {
        let error = file("p.toml", text).unwrap_err();
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn all_that_is_wrong_is_told_in_the_order_of_the_file() {
    let error = file("p", "seeders = 2\n[odd]\nhott = 1\n[mix]\njunk = -1\n").unwrap_err();
    let lines: Vec<_> = error.lines().map(|line| &line[..4]).collect();
    assert_eq!(lines, ["p:1:", "p:3:", "p:5:"], "{error}");
}

#[test]
fn every_number_can_be_set() {
    let changed = sets(&[
        "mix.scrape=5",
        "swarms.count = 20000",
        "swarms.tail=pareto",
        "clients.2.num_want=-7",
        "scrapes=[{weight = 1, hashes = 74}]",
    ]);
    let changed = changed.unwrap();
    assert_eq!((changed.mix.scrape, changed.swarms.count), (5.0, 20_000));
    assert_eq!(
        (changed.swarms.tail, changed.clients[2].num_want),
        (super::super::Tail::Pareto, -7)
    );
    assert_eq!((changed.scrapes.len(), changed.scrapes[0].hashes), (1, 74));
}

#[test]
fn what_cannot_be_set_is_named() {
    for (set, named) in [
        ("mix.scrape", "expected KEY=VALUE, like mix.scrape=5"),
        ("mix.scarpe=5", "--set: `mix.scarpe`: unknown key; did you mean `scrape`?"),
        ("mix.scrape.x=5", "there is nothing below this key"),
        (
            "mix.scrape=lots",
            "--set: `mix.scrape`: found \"lots\", expected a number from 0 to 1000000",
        ),
        ("clients.9.weight=1", "found 9, expected an entry's number, 0 to 5"),
        ("seeders=1.5", "expected a number from 0 to 1"),
        ("seeders=0.1", "--set: `events.completed`"),
        ("clients.0.prefix=abc", "expected text of 8 characters"),
    ] {
        let error = sets(&[set]).unwrap_err();
        assert!(error.contains(named), "{set}: {error}");
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
