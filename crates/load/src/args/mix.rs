//! What is sent.

use clap::{Args, ValueEnum};

use super::number;
use crate::plan::Profile;

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is sent")]
pub struct MixArgs {
    /// What is sent.
    #[arg(long, short, value_name = "NAME", default_value = "real")]
    pub profile: ProfileName,

    /// Swarms in the population [default: the profile's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500_000_000))]
    pub swarms: Option<u32>,

    /// Peers per swarm on average, at least 1 [default: the profile's].
    #[arg(long, value_name = "X", value_parser = mean)]
    pub peers_per_swarm: Option<f64>,

    /// Exponent of the tail of swarm sizes; 1 is Zipf's law [default: the profile's].
    #[arg(long, value_name = "X", value_parser = zipf)]
    pub zipf: Option<f64>,

    /// Percent of peers that are seeders [default: the profile's].
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

/// A profile's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// As public trackers see it: connects, announces, scrapes, and what deserves silence.
    Real,
    /// As published comparisons use it: 50/50/1, 75 % seeders, no bad ids.
    Classic,
}

impl MixArgs {
    /// The profile, with what was changed of it.
    pub fn profile(&self) -> Profile {
        let mut profile = match self.profile {
            ProfileName::Real => Profile::real(),
            ProfileName::Classic => Profile::classic(),
        };
        let swarms = &mut profile.swarms;
        swarms.count = self.swarms.unwrap_or(swarms.count);
        swarms.mean = self.peers_per_swarm.unwrap_or(swarms.mean);
        swarms.zipf = self.zipf.unwrap_or(swarms.zipf);
        profile.seeders = self.seeders.unwrap_or(profile.seeders);
        profile.v6 = self.ipv6.unwrap_or(profile.v6);
        profile
    }
}

fn mean(text: &str) -> Result<f64, String> {
    number(text, "between 1 and 1000", |mean| (1.0..=1000.0).contains(&mean))
}

fn zipf(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 3", |exponent| (0.1..=3.0).contains(&exponent))
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, "between 0 and 100", |percent| (0.0..=100.0).contains(&percent)).map(|p| p / 100.0)
}
