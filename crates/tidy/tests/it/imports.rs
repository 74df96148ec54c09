//! Imports between the top-level modules of a crate have no cycle, so that each module can be read,
//! moved and tested with those below it alone.

use std::collections::{BTreeMap, BTreeSet};

use onrush_tidy::{Source, crate_of, demand, sources};

/// The imports of a crate: module, imported module, and a place of each.
type Imports = BTreeMap<(String, String), String>;

#[test]
fn top_level_modules_have_no_import_cycle() {
    let mut crates: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in sources() {
        if let Some(name) = crate_of(&source.path)
            && source.path.starts_with(&format!("crates/{name}/src/"))
        {
            crates.entry(name.to_owned()).or_default().push(source);
        }
    }
    assert!(crates.len() > 5, "only {} crates found", crates.len());
    let mut broken = Vec::new();
    for (name, sources) in &crates {
        let cycles = in_cycles(&imports(sources)).into_iter();
        broken.extend(cycles.map(|((from, to), at)| format!("{at}: {name}: {from} imports {to}")));
    }
    demand("imports between the top-level modules of a crate have no cycle", broken);
}

/// The imports between top-level modules of a crate, outside of tests.
fn imports(sources: &[&Source]) -> Imports {
    let roots = sources.iter().filter(|source| module(&source.path).is_none());
    let reexports: BTreeMap<String, String> = roots.flat_map(|root| reexports(root)).collect();
    let modules: BTreeSet<String> = sources.iter().filter_map(|it| module(&it.path)).collect();
    let mut imports = Imports::new();
    for source in sources {
        let Some(from) = module(&source.path) else { continue };
        for (at, names) in paths(source) {
            if source.is_test(at) {
                continue;
            }
            for name in names {
                let to = reexports.get(&name).unwrap_or(&name);
                if *to != from && modules.contains(to) {
                    let place = format!("{}:{}", source.path, source.tokens[at].line);
                    imports.entry((from.clone(), to.clone())).or_insert(place);
                }
            }
        }
    }
    imports
}

/// The top-level module of a file; none for the root of the crate.
fn module(path: &str) -> Option<String> {
    let (_, inside) = path.split_once("/src/")?;
    let first = inside.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main", "bin"].contains(&name)).then(|| name.to_owned())
}

/// How many `super` lead from a file to the root of its crate.
fn depth(path: &str) -> usize {
    let inside = path.split_once("/src/").map_or("", |(_, inside)| inside);
    let parts = inside.split('/').count();
    if inside.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// The names behind `crate::` or as many `super::` as lead there, with the place of the path.
fn paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let start = at;
        let mut behind = match source.tokens[at].text.as_str() {
            "crate" if source.has(at + 1, &[":", ":"]) => at + 3,
            "super" => {
                let mut supers = 0;
                while source.has(at, &["super", ":", ":"]) {
                    (supers, at) = (supers + 1, at + 3);
                }
                if supers != depth(&source.path) {
                    at = at.max(start + 1);
                    continue;
                }
                at
            }
            _ => {
                at += 1;
                continue;
            }
        };
        let mut names = Vec::new();
        if source.has(behind, &["{"]) {
            let close = source.close_of(behind);
            behind += 1;
            while behind < close {
                names.push(source.tokens[behind].text.clone());
                behind = next_of_group(source, behind, close);
            }
        } else if let Some(token) = source.tokens.get(behind) {
            names.push(token.text.clone());
        }
        paths.push((start, names));
        at = behind.max(start + 1);
    }
    paths
}

/// The token behind the next comma of a group, past groups inside of it.
fn next_of_group(source: &Source, mut at: usize, close: usize) -> usize {
    while at < close {
        match source.tokens[at].text.as_str() {
            "," => return at + 1,
            "{" => at = source.close_of(at) + 1,
            _ => at += 1,
        }
    }
    close
}

/// Names that the root of a crate re-exports, each with its module: `pub use start::{Tracker};`.
fn reexports(root: &Source) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for at in 0..root.tokens.len() {
        if !root.has(at, &["pub", "use"]) {
            continue;
        }
        let path = if root.has(at + 2, &["crate", ":", ":"]) { at + 5 } else { at + 2 };
        let Some(module) = root.tokens.get(path) else { break };
        let names = root.tokens[path + 1..].iter().take_while(|token| token.text != ";");
        found.extend(names.map(|token| (token.text.clone(), module.text.clone())));
    }
    found
}

/// The imports whose modules can reach each other.
fn in_cycles(imports: &Imports) -> Vec<((String, String), String)> {
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            if module == to {
                return true;
            }
            if seen.insert(module) {
                let next = imports.keys().filter(|(importer, _)| importer == module);
                open.extend(next.map(|(_, imported)| imported.as_str()));
            }
        }
        false
    };
    let cyclic = imports.iter().filter(|((from, to), _)| reaches(to, from));
    cyclic.map(|(pair, place)| (pair.clone(), place.clone())).collect()
}

#[test]
fn a_cycle_is_found_and_a_test_is_no_import() {
    let source = |path: &str, text: &str| Source::new(path, text.to_owned());
    let of = |sources: &[Source]| {
        let sources: Vec<&Source> = sources.iter().collect();
        let found =
            in_cycles(&imports(&sources)).into_iter().map(|((from, to), _)| from + ">" + &to);
        found.collect::<Vec<_>>()
    };
    let root = source("crates/x/src/lib.rs", "mod a; mod b; mod c; pub use b::{Thing, Other};");
    let a = source("crates/x/src/a.rs", "use crate::{c::{d, e}, Thing};");
    let b = source("crates/x/src/b/mod.rs", "fn f() { super::a::g(); }");
    let inner = source("crates/x/src/b/inner.rs", "use super::a; use super::super::c::d;");
    let c = "#[cfg(test)]\nmod tests { use crate::a; }";
    let sources = [root, a, b, inner, source("crates/x/src/c.rs", c)];
    assert_eq!(of(&sources), ["a>b", "b>a"]);
    assert_eq!(of(&sources[1..2]), [""; 0]);
}
