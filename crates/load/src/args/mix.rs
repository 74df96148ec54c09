//! What is sent.

use clap::Args;

use super::number;
use crate::plan::Profile;
use crate::plan::profile::{BUILT_IN, Swarms, read};

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is sent")]
pub struct MixArgs {
    /// What is sent: the name of a profile, or a file.
    #[arg(
        long, short, value_name = "NAME|FILE.toml", default_value = "real",
        long_help = profiles(), help = "What is sent: real, classic, seeding-heavy, ipv6, scrape-heavy, abuse, or a file"
    )]
    pub profile: String,

    /// Prints the profile with a comment on every number, and ends.
    #[arg(long)]
    pub print_profile: bool,

    /// Sets any key of the profile, like mix.scrape=5 or clients.0.num_want=30 (--print-profile
    /// shows them all). Can be given several times; what is set last counts.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Swarms in the population [default: the profile's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500_000_000))]
    pub swarms: Option<u32>,

    /// Peers per swarm on average, at least 1 [default: the profile's].
    #[arg(long, value_name = "X", value_parser = mean)]
    pub peers_per_swarm: Option<f64>,

    /// Swarm sizes fall with the rank to this power; 1 is Zipf's law [default: the profile's tail].
    #[arg(long, value_name = "X", value_parser = zipf)]
    pub zipf: Option<f64>,

    /// Percent of announces by seeders [default: the profile's].
    #[arg(long, value_name = "%", value_parser = percent)]
    pub seeders: Option<f64>,

    /// Percent of traffic over IPv6 where there are targets of both families [default: the
    /// profile's].
    #[arg(long, value_name = "%", value_parser = percent)]
    pub ipv6: Option<f64>,

    /// Decides population and mix; shown in the report [default: chosen at random].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl MixArgs {
    /// The profile, with what was changed of it.
    ///
    /// # Errors
    /// Everything that is wrong with it: file or flag, line, key, and what would be right.
    pub fn profile(&self) -> Result<Profile, String> {
        let (name, text) = self.text()?;
        let mut profile = read::file(&name, &text)?;
        // The short flags first, so that --set has the last word.
        let swarms = &mut profile.swarms;
        swarms.count = self.swarms.unwrap_or(swarms.count);
        swarms.mean = self.peers_per_swarm.unwrap_or(swarms.mean);
        if let Some(exponent) = self.zipf {
            *swarms = Swarms::zipf(swarms.count, swarms.mean, exponent);
        }
        if let Some(seeders) = self.seeders {
            profile.set_seeders(seeders);
        }
        profile.v6 = self.ipv6.unwrap_or(profile.v6);
        read::change(&profile, &self.set)
    }

    /// What `--print-profile` prints: the profile as it is written, with its comments.
    ///
    /// # Errors
    /// When there is no such profile, or something is wrong with it.
    pub fn printed(&self) -> Result<String, String> {
        self.profile()?;
        let (_, mut text) = self.text()?;
        for set in &self.set {
            text.push_str(&format!("\n# --set {set}"));
        }
        Ok(text)
    }

    /// The profile's file name, or a name to call it by, and its text.
    fn text(&self) -> Result<(String, String), String> {
        if let Some((name, _, text)) = BUILT_IN.iter().find(|(name, ..)| *name == self.profile) {
            return Ok((format!("profile {name}"), (*text).to_owned()));
        }
        let is_file = self.profile.ends_with(".toml") || self.profile.contains('/');
        if !is_file {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, ..)| *name).collect();
            return Err(format!(
                "--profile {}: there is no such profile; the profiles are {}, or name a file that ends in .toml",
                self.profile,
                names.join(", ")
            ));
        }
        let text = std::fs::read_to_string(&self.profile)
            .map_err(|error| format!("--profile {}: {error}", self.profile))?;
        Ok((self.profile.clone(), text))
    }
}

/// The profiles in words, for `--help`.
fn profiles() -> String {
    let mut help = String::from(
        "What is sent: a profile that comes along, or a file (FILE.toml) that says what it does otherwise than one of them:\n",
    );
    for (name, what, _) in BUILT_IN {
        help.push_str(&format!("\n- {name}: {what}"));
    }
    help
}

fn mean(text: &str) -> Result<f64, String> {
    number(text, "between 1 and 10000", |mean| (1.0..=10_000.0).contains(&mean))
}

fn zipf(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 3", |exponent| (0.1..=3.0).contains(&exponent))
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, "between 0 and 100", |percent| (0.0..=100.0).contains(&percent)).map(|p| p / 100.0)
}
