//! Whether a bench can be resumed: results of other programs, or of another machine, do not belong
//! in one table.

use anyhow::bail;

use crate::contender::Listed;
use crate::machine::LOAD_AVERAGE;
use crate::plan::Plan;

/// Checks that programs and machine are those of `plan`.
///
/// # Errors
/// With the difference.
pub fn same(
    plan: &Plan,
    contenders: &[Listed],
    testers: &[Listed],
    machine: &[(String, String)],
) -> anyhow::Result<()> {
    let planned = |listed: &Listed| plan.cases.iter().any(|c| c.variant.tracker == listed.name);
    let measured = plan.listed.iter().filter(|listed| planned(listed));
    for before in measured.chain(&plan.testers) {
        let now = contenders.iter().chain(testers).find(|listed| listed.name == before.name);
        let Some(now) = now.filter(|listed| listed.version.is_some()) else {
            bail!(
                "--resume: {} was installed when this bench started and is absent now",
                before.name
            );
        };
        if now.version != before.version {
            bail!(
                "--resume: {} was {} when this bench was begun and is {} now: begin another",
                before.name,
                before.version.as_deref().unwrap_or("absent"),
                now.version.as_deref().unwrap_or("absent")
            );
        }
        if now.program != before.program {
            bail!(
                "--resume: the program of {} is another than when this bench was begun (built \
                 again?), though it says the same version: begin another",
                before.name
            );
        }
    }
    same_machine(&plan.machine, machine)
}

fn same_machine(before: &[(String, String)], now: &[(String, String)]) -> anyhow::Result<()> {
    let value = |facts: &[(String, String)], name: &str| -> String {
        let fact = facts.iter().find(|fact| fact.0 == name);
        fact.map_or("not told", |fact| fact.1.as_str()).to_owned()
    };
    let names = before.iter().chain(now).map(|fact| fact.0.as_str());
    for name in names.filter(|name| *name != LOAD_AVERAGE) {
        let (before, now) = (value(before, name), value(now, name));
        if before != now {
            bail!(
                "--resume: {name} of this machine was {before:?} when this bench was begun and is \
                 {now:?} now: begin another"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Fingerprint;
    use crate::plan::tests::example;

    fn listed(name: &str, version: Option<&str>, hash: &str) -> Listed {
        Listed {
            name: name.into(),
            version: version.map(Into::into),
            text: String::new(),
            program: version.map(|_| Fingerprint { bytes: 7, hash: hash.into() }),
        }
    }

    fn begun() -> Plan {
        let mut plan = example(1);
        plan.listed = vec![
            listed("onrush", Some("1"), "a"),
            listed("chihaya", None, ""),
            listed("torrust-tracker", Some("3"), "c"),
        ];
        plan.testers = vec![listed("onrush-load", Some("1"), "b")];
        plan.machine = vec![("kernel".into(), "6.18".into()), (LOAD_AVERAGE.into(), "0".into())];
        plan
    }

    #[test]
    fn the_same_programs_on_the_same_machine_are_accepted() {
        let plan = begun();
        let mut machine = plan.machine.clone();
        machine[1].1 = "2.5".into();
        // Trackers that are not measured may change.
        let now = [listed("onrush", Some("1"), "a"), listed("chihaya", Some("2"), "d")];
        same(&plan, &now, &plan.testers, &machine).unwrap();
    }

    #[test]
    fn differences_are_named() {
        let plan = begun();
        let (onrush, load) = (&plan.listed[..1], &plan.testers[..]);
        let differs =
            |onrush: &[Listed], load: &[Listed], machine: &[(String, String)], parts: [&str; 2]| {
                let text = same(&plan, onrush, load, machine).unwrap_err().to_string();
                assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
            };
        let is = |version, hash| [listed("onrush", version, hash)];
        differs(&is(Some("2"), "a"), load, &plan.machine, ["onrush was 1", "is 2 now"]);
        differs(&is(Some("1"), "z"), load, &plan.machine, ["program of onrush", "same version"]);
        differs(&is(None, ""), load, &plan.machine, ["onrush", "absent"]);
        let rebuilt = [listed("onrush-load", Some("1"), "z")];
        differs(onrush, &rebuilt, &plan.machine, ["program of onrush-load", "same version"]);
        differs(onrush, load, &[("kernel".into(), "6.19".into())], ["kernel", "6.19"]);
        differs(onrush, load, &[], ["kernel", "not told"]);
    }
}
