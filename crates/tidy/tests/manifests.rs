//! Rules for Cargo.toml: which crate may know which, and why each dependency is there.

use std::collections::BTreeSet;

use onrush_tidy::{demand, files, text};
use toml::{Table, Value};

/// Which of our crates each may depend on. Protocol and network meet in the tracker's intake and
/// in the load generator, nowhere else.
const MAY_KNOW: [(&str, &[&str]); 13] = [
    ("proto", &[]),
    ("net", &[]),
    ("swarm", &["proto"]),
    ("toml-keys", &[]),
    ("tracker", &["net", "proto", "swarm"]),
    ("config", &["net", "proto", "swarm", "toml-keys", "tracker"]),
    ("store", &["config", "proto", "swarm", "tracker"]),
    ("control", &["config", "proto", "swarm", "tracker"]),
    ("daemon", &["config", "control", "net", "proto", "store", "swarm", "tracker"]),
    ("load", &["net", "proto", "toml-keys"]),
    ("bench", &["load"]),
    ("testing", &["config", "net", "proto", "store", "swarm", "tracker"]),
    ("tidy", &[]),
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

#[test]
fn crates_know_only_whom_they_may() {
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(known, _)| *known == name) else {
            broken.push(format!("crates/{name} is not in MAY_KNOW"));
            continue;
        };
        for (dependency, _) in normal_dependencies(&manifest) {
            if let Some(ours) = ours(&dependency)
                && !allowed.contains(&ours)
            {
                broken.push(format!("crates/{name} depends on {ours}"));
            }
        }
    }
    demand("dependencies between crates go in the agreed directions", broken);
}

#[test]
fn crates_take_versions_and_lints_from_the_workspace() {
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        for (dependency, value) in dependencies(&manifest) {
            if value.get("workspace").and_then(Value::as_bool) != Some(true) {
                broken.push(format!("crates/{name}: {dependency}"));
            }
        }
        let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        if lints.and_then(Value::as_bool) != Some(true) {
            broken.push(format!("crates/{name}: [lints] workspace = true is missing"));
        }
    }
    demand("a dependency is declared in the root, where its reason stands", broken);
}

#[test]
fn every_dependency_has_a_reason_and_a_user() {
    let root = text("Cargo.toml");
    let used: BTreeSet<_> = manifests()
        .iter()
        .flat_map(|(_, manifest)| dependencies(manifest))
        .map(|(dependency, _)| dependency)
        .collect();
    let lines = root
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let (mut broken, mut seen) = (Vec::new(), 0);
    for line in lines {
        seen += 1;
        let (name, value) = line.split_once('=').expect("a dependency a line");
        let name = name.trim();
        let reason = value.rsplit_once(" # ").map_or("", |(_, reason)| reason.trim());
        if ours(name).is_none() && reason.split_whitespace().count() < 3 {
            broken.push(format!("{name} has no reason beside it"));
        }
        if !used.contains(name) {
            broken.push(format!("{name} is used by no crate"));
        }
    }
    assert!(seen > 10, "only {seen} dependencies found");
    demand("a dependency has a reason and a user", broken);
}

/// The manifest of each crate, by the name of its directory.
fn manifests() -> Vec<(String, Table)> {
    // A manifest further below is of a workspace of its own.
    let mut paths = files("crates", "Cargo.toml");
    paths.retain(|path| path.split('/').count() == 3);
    assert!(paths.len() >= 5, "only {} crates found", paths.len());
    paths
        .iter()
        .map(|path| {
            let name = onrush_tidy::crate_of(path).expect("it is below crates/").to_owned();
            (name, text(path).parse().unwrap_or_else(|error| panic!("{path}: {error}")))
        })
        .collect()
}

/// Every dependency of a manifest but those of its tests alone.
fn normal_dependencies(manifest: &Table) -> Vec<(String, Value)> {
    let mut manifest = manifest.clone();
    manifest.remove("dev-dependencies");
    dependencies(&manifest)
}

/// Every dependency of a manifest, in whatever section, for whatever target.
fn dependencies(manifest: &Table) -> Vec<(String, Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|table| table.values()).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(tables)
        .flat_map(|table| SECTIONS.iter().filter_map(move |section| table.get(*section)))
        .filter_map(Value::as_table)
        .flat_map(|section| section.iter().map(|(name, value)| (name.clone(), value.clone())))
        .collect()
}

/// The directory of one of our crates by its package's name.
fn ours(package: &str) -> Option<&str> {
    match package {
        "onrush" => Some("daemon"),
        _ => package.strip_prefix("onrush-"),
    }
}
