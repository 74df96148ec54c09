//! Reading profiles: a file over the built-in profile that it is based on, and `--set` over both.

use onrush_toml_keys::{Document, Schema, values_of};
use serde::Deserialize;

use super::{Profile, consistency};

static SCHEMA: Schema = Schema { keys: Profile::KEYS, hints: &[], head: "" };

/// Reads the text of the file called `name`. Keys that it does not have are those of its `base`,
/// or of the profile `real`.
///
/// # Errors
/// Everything that is wrong, with line, key and remedy.
pub fn file(name: &str, text: &str) -> Result<Profile, String> {
    #[derive(Default, Deserialize)]
    struct Base {
        base: Option<String>,
    }
    // The document reports errors in `text` and its base.
    let Base { base } = toml::from_str(text).unwrap_or_default();
    let base = base.and_then(|base| Profile::named(&base)).unwrap_or_else(Profile::real);
    finish(Document::parse(&SCHEMA, values_of(&base), name, text))
}

/// Changes a profile by each `KEY=VALUE` of `changes`.
///
/// # Errors
/// Everything that is wrong, with key and remedy.
pub fn change(profile: &Profile, changes: &[String]) -> Result<Profile, String> {
    let mut document = Document::parse(&SCHEMA, values_of(profile), &profile.name, "");
    for change in changes {
        let Some((path, value)) = change.split_once('=') else {
            return Err(format!("--set {change}: expected KEY=VALUE, like mix.scrape=5"));
        };
        document.set("--set", path.trim(), value.trim());
    }
    finish(document)
}

fn finish(mut document: Document) -> Result<Profile, String> {
    let profile: Profile = document.read();
    if !document.has_problems() {
        for (key, what) in consistency::contradictions(&profile) {
            document.problem(key, what, None);
        }
    }
    document.finish().map_err(|problems| problems.to_string())?;
    Ok(profile)
}

#[cfg(test)]
mod tests;
