//! Arguments about the traffic: the profile and changes to it.

use clap::Args;

use crate::options::{SOMETIMES, count, number};
use crate::plan::Profile;
use crate::plan::profile::{BUILT_IN, read};

/// Arguments about the traffic.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct MixArgs {
    /// The profile: a name, or a file.
    #[arg(
        long, short, value_name = "NAME|FILE.toml", default_value = "real",
        long_help = profiles(),
        help = format!("The profile: {}, or a file", names()),
        help_heading = None
    )]
    pub profile: String,

    /// Print the profile with a comment on every number, and exit.
    #[arg(long)]
    pub print_profile: bool,

    /// Set a key of the profile, like mix.scrape=5 or clients.0.num_want=30 (--print-profile lists
    /// the keys). Repeatable; the last value of a key counts.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Swarms in the population [default: the profile's].
    #[arg(long, value_name = "N", value_parser = count(1..=500_000_000))]
    pub swarms: Option<u32>,

    /// Percent of announces by seeders [default: the profile's].
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""))]
    pub seeders: Option<f64>,

    /// Seed of the population and the mix; part of the report [default: random].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl MixArgs {
    /// The profile with the changes of the arguments.
    ///
    /// # Errors
    /// All problems of the profile: file or flag, line, key, and the expected form.
    pub fn profile(&self) -> Result<Profile, String> {
        let (name, text) = self.text()?;
        let mut profile = read::file(&name, &text)?;
        // --set comes last, so that it overrides the other arguments.
        profile.swarms.count = self.swarms.unwrap_or(profile.swarms.count);
        if let Some(seeders) = self.seeders {
            profile.set_seeders(seeders / 100.0);
        }
        read::change(&profile, &self.set)
    }

    /// Whether arguments or the file of the profile set the number of swarms.
    pub fn sets_swarms(&self) -> bool {
        let is_set = |set: &String| set.trim_start().starts_with("swarms.count");
        let is_built_in = BUILT_IN.iter().any(|(name, ..)| *name == self.profile);
        let by_file = || {
            let (_, text) = self.text().unwrap_or_default();
            let file: toml::Table = toml::from_str(&text).unwrap_or_default();
            file.get("swarms").is_some_and(|swarms| swarms.get("count").is_some())
        };
        self.swarms.is_some() || self.set.iter().any(is_set) || (!is_built_in && by_file())
    }

    /// The output of `--print-profile`: the text of the profile with its comments.
    ///
    /// # Errors
    /// When there is no such profile, or it has problems.
    pub fn printed(&self) -> Result<String, String> {
        self.profile()?;
        let (_, mut text) = self.text()?;
        for set in &self.set {
            text.push_str(&format!("\n# --set {set}"));
        }
        Ok(text)
    }

    /// The profile's name for messages, and its text.
    fn text(&self) -> Result<(String, String), String> {
        if let Some((name, _, text)) = BUILT_IN.iter().find(|(name, ..)| *name == self.profile) {
            return Ok((format!("profile {name}"), (*text).to_owned()));
        }
        let is_file = self.profile.ends_with(".toml") || self.profile.contains('/');
        if !is_file {
            return Err(format!(
                "--profile {}: there is no such profile; the profiles are {}, or name a file that \
                 ends in .toml",
                self.profile,
                names()
            ));
        }
        let text = std::fs::read_to_string(&self.profile)
            .map_err(|error| format!("--profile {}: {error}", self.profile))?;
        Ok((self.profile.clone(), text))
    }
}

/// The names of the profiles.
fn names() -> String {
    BUILT_IN.map(|(name, ..)| name).join(", ")
}

/// Describes the profiles for `--help`.
fn profiles() -> String {
    let mut help = String::from(
        "The profile: a built-in one, or a file (FILE.toml) with changes to one of them:\n",
    );
    for (name, what, _) in BUILT_IN {
        help.push_str(&format!("\n- {name}: {what}"));
    }
    help
}
