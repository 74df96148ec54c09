//! Rules for Cargo.toml: layers, one declaration of each dependency with its reason, none unused.

use std::collections::BTreeSet;

use onrush_tidy::{Source, demand, files, sources, text};
use toml::{Table, Value};

/// The data path: the crates of this repository that each may depend on, beside those of its tests.
/// Cargo rules out cycles, this rule any other crate of the repository.
const DATA_PATH: [(&str, &[&str]); 5] = [
    ("proto", &[]),
    ("net", &[]),
    ("swarm", &["proto"]),
    ("tracker", &["net", "proto", "swarm"]),
    ("web", &["net", "proto", "swarm", "tracker"]),
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

#[test]
fn the_data_path_depends_on_nothing_beside_it() {
    let (mut broken, mut seen) = (Vec::new(), 0);
    for (name, manifest) in manifests() {
        let Some((_, allowed)) = DATA_PATH.iter().find(|(known, _)| *known == name) else {
            continue;
        };
        seen += 1;
        for (dependency, _) in normal_dependencies(&manifest) {
            if let Some(ours) = ours(&dependency)
                && !allowed.contains(&ours)
            {
                broken.push(format!("crates/{name} depends on {ours}"));
            }
        }
    }
    assert_eq!(seen, DATA_PATH.len(), "each crate of DATA_PATH exists");
    demand("a crate of the data path depends only on those below it", broken);
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
    demand("a dependency is declared in the root, with its reason", broken);
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
        let (name, value) = line.split_once('=').expect("one dependency per line");
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

/// An unused dependency costs every build.
#[test]
fn every_dependency_of_a_manifest_is_used_by_its_crate() {
    let sources = sources();
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        let directory = format!("crates/{name}/");
        let own = || sources.iter().filter(|source| source.path.starts_with(&directory));
        // Files of other crates are named by #[path = "../../..."].
        let texts: Vec<String> = own().map(|source| text(&source.path)).collect();
        let lines = || texts.iter().flat_map(|text| text.lines());
        let named =
            lines().filter_map(|line| line.strip_prefix("#[path = \"../")?.strip_suffix("\"]"));
        let named: Vec<&str> = named.map(|path| path.trim_start_matches("../")).collect();
        let shared = |source: &&Source| named.iter().any(|path| source.path.ends_with(path));
        let sources: Vec<&Source> = own().chain(sources.iter().filter(shared)).collect();
        let uses = |dependency: &str, only_src: bool| {
            let identifier = dependency.replace('-', "_");
            let shipped = |source: &&&Source| {
                !only_src || ["/src/", "/programs/"].iter().any(|part| source.path.contains(part))
            };
            let mut tokens = sources.iter().filter(shipped).flat_map(|source| &source.tokens);
            tokens.any(|token| token.text == identifier)
        };
        let shipped = normal_dependencies(&manifest);
        for (dependency, value) in &shipped {
            // An optional dependency is for examples.
            let optional = value.get("optional").is_some();
            if !optional && !uses(dependency, true) {
                broken.push(format!("crates/{name}: {dependency}, by no file of src"));
            }
        }
        for (dependency, _) in dependencies(&manifest) {
            if !uses(&dependency, false) {
                broken.push(format!("crates/{name}: {dependency}, by no file"));
            }
        }
    }
    demand("a dependency is used by the crate that names it", broken);
}

/// The manifest of each crate, by the name of its directory.
fn manifests() -> Vec<(String, Table)> {
    // A manifest further below belongs to another workspace.
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

/// Every dependency of a manifest except those of its tests.
fn normal_dependencies(manifest: &Table) -> Vec<(String, Value)> {
    let mut manifest = manifest.clone();
    manifest.remove("dev-dependencies");
    dependencies(&manifest)
}

/// Every dependency of a manifest, of all sections and targets.
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
