//! The certificates of HTTPS in force: when their files are looked at, and what is reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_control::api::stats::CertificateStats;

use crate::certificate_files::{LoadedCertificates, Look};
use crate::effect::{Effect, Effects};
use crate::host_check::refusals;
use crate::time::Time;

/// The time between looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Seconds between reports of validity.
const DAY: u64 = 24 * 60 * 60;

/// The certificates in force, and when their files are looked at.
#[derive(Debug, Default)]
pub struct CertificateControl {
    loaded: Option<LoadedCertificates>,
    /// When the last look at the files began.
    looked: Option<Instant>,
    /// Whether it has not ended: on a file system that blocks there is one at a time.
    is_looking: bool,
    /// The day of the last report of validity.
    day: u64,
    /// Why the files as they are now are not used.
    refusal: Option<String>,
}

impl CertificateControl {
    /// With the certificates that a start has read and reported.
    pub fn new(loaded: Option<LoadedCertificates>, time: Time) -> Self {
        Self { loaded, looked: Some(time.now), day: time.unix / DAY, ..Self::default() }
    }

    /// The certificates in force, for the API and the metrics.
    pub fn shown(&self) -> Arc<[CertificateStats]> {
        let list = self.loaded.iter().flat_map(|loaded| loaded.certificates.list());
        let shown = list.map(|certificate| CertificateStats {
            file: certificate.file.display().to_string(),
            names: certificate.names.clone(),
            expires: certificate.expiry,
        });
        shown.collect()
    }

    /// Call every second.
    pub fn tick(&mut self, time: Time, effects: &mut Effects) {
        let Some(loaded) = &self.loaded else { return };
        let is_due = |looked| time.now.saturating_duration_since(looked) >= LOOK_INTERVAL;
        if !self.is_looking && self.looked.is_none_or(is_due) {
            self.is_looking = true;
            self.looked = Some(time.now);
            effects.push(Effect::LookAtCertificates(loaded.state.clone()));
        }
        if time.unix / DAY > self.day {
            self.day = time.unix / DAY;
            let warnings = loaded.certificates.validity_warnings(time.unix);
            warnings.into_iter().for_each(|warning| effects.warn(warning.text));
            self.refusal.iter().for_each(|refusal| effects.warn(refusal.as_str()));
        }
    }

    /// A look at the files has ended, with this result if it was possible.
    pub fn looked(&mut self, look: Option<Look>, time: Time, effects: &mut Effects) {
        self.is_looking = false;
        let (Some(loaded), Some(look)) = (&mut self.loaded, look) else { return };
        // A reload may have read other files meanwhile, or later states of these.
        if loaded.state != look.known {
            return;
        }
        let Some(read) = look.read else { return };
        match read {
            Ok(read) => {
                effects.info("certificates or keys have changed: new connections use them");
                let warnings = read.certificates.warnings(time.unix);
                warnings.into_iter().for_each(|warning| effects.warn(warning.text));
                self.reconfigure(Some(read), effects);
                effects.push(Effect::Show);
            }
            Err(error) => {
                // Once for each change of a file, and once a day.
                loaded.state = look.state;
                let refused = refusals::certificate(&error);
                let refusal = format!("changed certificates are not used: {refused}");
                effects.warn(refusal.as_str());
                self.refusal = Some(refusal);
            }
        }
    }

    /// Puts certificates that were read into force.
    pub fn reconfigure(&mut self, loaded: Option<LoadedCertificates>, effects: &mut Effects) {
        // They are needed for an address, which stays until a restart.
        let Some(loaded) = loaded.filter(|_| self.loaded.is_some()) else { return };
        effects.push(Effect::ReplaceCertificates(loaded.certificates.clone()));
        self.loaded = Some(loaded);
        self.refusal = None;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::RangeInclusive;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use crossbeam_channel::unbounded;
    use onrush_testing::tls::{Issued, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

    use super::*;
    use crate::certificate_files::{FileStates, load_files, look};
    use onrush_web::tls::certificates::Files;

    const START: u64 = 1_900_000_000;

    fn at(start: Instant, seconds: u64) -> Time {
        Time { now: start + Duration::from_secs(seconds), unix: START + seconds }
    }

    fn files(directory: &Path) -> Vec<Files> {
        vec![(directory.join("a.crt"), directory.join("a.key"))]
    }

    /// The result of a look at these files.
    fn seen(known: FileStates) -> Option<Look> {
        let (to, result) = unbounded();
        look(known, to);
        result.recv().unwrap()
    }

    /// The looks of the control at this second, and what follows from their results.
    fn tick(control: &mut CertificateControl, time: Time) -> (usize, Effects) {
        let (mut first, mut then) = (Effects::default(), Effects::default());
        control.tick(time, &mut first);
        let mut looks = 0;
        for effect in first.0 {
            match effect {
                Effect::LookAtCertificates(known) => {
                    looks += 1;
                    control.looked(seen(known), time, &mut then);
                }
                other => then.push(other),
            }
        }
        (looks, then)
    }

    fn replaced(effects: &Effects) -> Vec<String> {
        let names = |effect: &Effect| match effect {
            Effect::ReplaceCertificates(new) => Some(new.list()[0].names.join(",")),
            _ => None,
        };
        effects.0.iter().filter_map(names).collect()
    }

    #[test]
    fn changed_files_are_read_within_a_minute_and_bad_ones_are_reported_once() {
        let (directory, start) = (tempfile::tempdir().unwrap(), Instant::now());
        let archive = directory.path().join("archive");
        fs::create_dir(&archive).unwrap();
        // As certbot does it: new files, and symbolic links that change one after the other.
        let link = |name: &str, ending: &str| {
            let link = directory.path().join(format!("a.{ending}"));
            let _ = fs::remove_file(&link);
            symlink(format!("archive/{name}.{ending}"), link).unwrap();
        };
        let renew = |ending: &str| link("second", ending);
        Issued::of(&["first"]).write(&archive, "first").unwrap();
        ["crt", "key"].iter().for_each(|ending| link("first", ending));
        let loaded = load_files(&files(directory.path())).unwrap();
        let mut control = CertificateControl::new(Some(loaded), at(start, 0));
        let looks: usize = (1..=180).map(|second| tick(&mut control, at(start, second)).0).sum();
        assert_eq!(looks, 3);
        Issued::of(&["second"]).write(&archive, "second").unwrap();
        renew("crt");
        let (_, effects) = tick(&mut control, at(start, 240));
        effects.assert_logged(&["not used", "http.keys.0", "a.key: "]);
        assert!(replaced(&effects).is_empty() && control.shown()[0].names == ["first"]);
        let (looks, effects) = tick(&mut control, at(start, 300));
        assert_eq!((looks, effects.0.len()), (1, 0), "reported once");
        renew("key");
        let (_, effects) = tick(&mut control, at(start, 360));
        assert_eq!(replaced(&effects), ["second"]);
        assert_eq!(control.shown()[0].names, ["second"]);
        assert!(matches!(effects.0.last(), Some(Effect::Show)));
        fs::remove_file(directory.path().join("a.crt")).unwrap();
        tick(&mut control, at(start, 420))
            .1
            .assert_logged(&["http.certificates.0", "cannot be read"]);
    }

    /// As certbot writes a key that the tracker's user may not read; root may read each file, so
    /// here it is the wrong key.
    #[test]
    fn a_refusal_is_repeated_once_a_day_until_the_files_can_be_used() {
        let (directory, start) = (tempfile::tempdir().unwrap(), Instant::now());
        let issued = Issued::of(&["a"]);
        issued.write(directory.path(), "a").unwrap();
        let loaded = load_files(&files(directory.path())).unwrap();
        let mut control = CertificateControl::new(Some(loaded), at(start, 0));
        let key = directory.path().join("a.key");
        // It differs in size: a file system may give both keys the same time.
        let other = Issued::with(&["b"], &PKCS_ECDSA_P256_SHA256, 2100);
        assert_ne!(other.key.len(), issued.key.len());
        fs::write(&key, other.key).unwrap();
        let refused = |control: &mut CertificateControl, hours: RangeInclusive<u64>| {
            let refused = hours.filter(|hour| {
                let notices = tick(control, at(start, hour * 3_600)).1.notices();
                notices.iter().any(|notice| notice.text.contains("http.keys.0"))
            });
            refused.count()
        };
        assert_eq!(refused(&mut control, 1..=72), 1 + 3);
        fs::write(&key, issued.key).unwrap();
        assert_eq!(refused(&mut control, 73..=144), 0);
    }

    #[test]
    fn there_is_one_look_at_a_time_and_a_reload_meanwhile_prevails() {
        let (directory, start) = (tempfile::tempdir().unwrap(), Instant::now());
        // The names differ in length, so that the files differ in size: a file system may give both
        // versions the same time.
        let written = |name: &str| {
            Issued::of(&[name]).write(directory.path(), "a").unwrap();
            load_files(&files(directory.path())).unwrap()
        };
        let looks = |control: &mut CertificateControl, seconds: RangeInclusive<u64>| {
            let mut effects = Effects::default();
            seconds.for_each(|second| control.tick(at(start, second), &mut effects));
            let known = |effect| match effect {
                Effect::LookAtCertificates(known) => Some(known),
                _ => None,
            };
            effects.0.into_iter().filter_map(known).collect::<Vec<_>>()
        };
        let mut control = CertificateControl::new(Some(written("a")), at(start, 0));
        let mut known = looks(&mut control, 1..=600);
        assert_eq!(known.len(), 1);
        written("second.example");
        let seen = seen(known.remove(0));
        let mut effects = Effects::default();
        control.reconfigure(Some(written("third.with.a.longer.name")), &mut effects);
        control.looked(seen, at(start, 600), &mut effects);
        assert_eq!(replaced(&effects), ["third.with.a.longer.name"]);
        assert_eq!(looks(&mut control, 601..=700).len(), 1);
        // Also one that was not possible has ended.
        control.looked(None, at(start, 700), &mut effects);
        assert_eq!(looks(&mut control, 701..=701).len(), 1);
    }

    #[test]
    fn an_expiry_is_reported_once_a_day() {
        let (directory, start) = (tempfile::tempdir().unwrap(), Instant::now());
        // The second at which 2031 begins is 13 days after the beginning.
        Issued::with(&["a"], &PKCS_ED25519, 2031).write(directory.path(), "a").unwrap();
        let loaded = load_files(&files(directory.path())).unwrap();
        let begin = 1_924_992_000 - 13 * DAY;
        let time = |hour: u64| Time {
            now: start + Duration::from_secs(hour * 3_600),
            unix: begin + hour * 3_600,
        };
        let mut control = CertificateControl::new(Some(loaded), time(1));
        let warned = (2..72).filter(|hour| {
            let notices = tick(&mut control, time(*hour)).1.notices();
            notices.iter().any(|notice| notice.text.contains("2031-01-01"))
        });
        assert_eq!(warned.collect::<Vec<_>>(), [24, 48]);
    }

    #[test]
    fn without_https_nothing_is_looked_at() {
        let (directory, start) = (tempfile::tempdir().unwrap(), Instant::now());
        Issued::of(&["a"]).write(directory.path(), "a").unwrap();
        let mut control = CertificateControl::new(None, at(start, 0));
        let mut effects = Effects::default();
        control.reconfigure(load_files(&files(directory.path())).ok(), &mut effects);
        assert!(effects.0.is_empty() && control.shown().is_empty());
        assert_eq!(tick(&mut control, at(start, 600)).0, 0);
    }
}
