//! What pages, tables and JSON say, whatever the situation: one clock, no dead links, whole commands.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lock_exporter::exposition::json::{Answer, LocksAsk, TargetsAsk};
use lock_exporter::exposition::overview::Overview;
use lock_exporter::exposition::page::{self, Ask, Frame};
use lock_exporter::exposition::table;
use lock_exporter::lock::LockMode;
use lock_exporter::source;
use lock_exporter::status::Status;
use lock_exporter::target::TargetSet;
use lock_exporter::tracker::Tracker;
use regex::Regex;

use crate::scene;

const HOLD: Duration = Duration::from_secs(15 * 60);

/// Everything that people read of a status at one moment, by name.
fn said(status: &Status, now: Timestamp) -> Vec<(String, String)> {
    let mut overview = Overview::default();
    overview.follow(status, now, HOLD);
    let frame = Frame { now, hold: HOLD, root: "./", telemetry_path: "/metrics", refused: None };
    let answer = Answer { status, now, hold: HOLD };
    let mut all = vec![
        ("list".to_owned(), page::list(&frame, status, &overview, &Ask::default())),
        ("table".to_owned(), table::table(status, now, HOLD, false)),
        ("nagios".to_owned(), table::nagios(status, now, HOLD)),
        ("locks".to_owned(), answer.locks(&LocksAsk::default()).unwrap()),
        ("targets".to_owned(), answer.targets(&overview, &TargetsAsk::default()).unwrap()),
    ];
    for target in status.targets.values() {
        let text = page::target(&frame, &overview, status, target);
        all.push((target.spec.name.to_string(), text));
    }
    all
}

/// Texts without what is no age: limits, rhythms, what a clock is off by, what was true at an
/// event, and the figures of a perfdata line.
fn ages(text: &str) -> Vec<(String, i64)> {
    let no_age = Regex::new(
        "(?x) <text.*?</text> | <dt>(Held\\ over|Stuck|Scanned|It\\ took|A\\ holder's).*?</dd>
        | (the\\ limit\\ is|jumped|had\\ been\\ for|again\\ after|over|under)\\ [0-9][^,;<.]*
        | is\\ [0-9][^,;<.]*(behind|ahead)\\ (of\\ )?(what|the) | every\\ [0-9][^<]* | \"text\":.*",
    )
    .unwrap();
    let text = no_age.replace_all(text, "");
    // Everything that is said as a duration, with the words before it.
    let age = Regex::new("([^<>\"]{0,40}?)\\b([0-9]+) (s|min|h|days)\\b(?: ([0-9]+) (min|h)\\b)?")
        .unwrap();
    let seconds = |number: &str, unit: &str| {
        let each = match unit {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            _ => 86_400,
        };
        number.parse::<i64>().unwrap() * each
    };
    age.captures_iter(&text)
        .map(|found| {
            let small = found.get(4).map_or(0, |number| seconds(number.as_str(), &found[5]));
            (found[0].to_owned(), seconds(&found[2], &found[3]) + small)
        })
        .collect()
}

/// All ages on a page are as of one moment. Were one of them as of the last scan, it would stand
/// still while the others go on, and two ages of one thing would differ.
#[test]
fn no_age_stands_still_while_the_clock_goes_on() {
    let mut moved = 0;
    for (scene, status) in scene::all() {
        // Less than an hour, so that it shows in every unit but days.
        for minutes in [3, 13] {
            // What fails since just now is said in other words a second later.
            let first = scene::now() + SignedDuration::from_mins(1);
            let later = first + SignedDuration::from_mins(minutes);
            if shown(&status, later) != shown(&status, first) {
                continue;
            }
            let (before, after) = (said(&status, first), said(&status, later));
            for ((name, before), (_, after)) in before.iter().zip(&after) {
                let (before, after) = (ages(before), ages(after));
                assert_eq!(before.len(), after.len(), "{scene}/{name}: {before:?} {after:?}");
                for ((words, then), (later, now)) in before.iter().zip(&after) {
                    let coarse = then.max(now);
                    let unit = match *coarse {
                        864_000.. => 86_400,
                        172_800.. => 3_600,
                        _ => 60,
                    };
                    let by = now - then;
                    let counts_down = words.contains(&format!(" in {}", then / 60));
                    let wanted = if counts_down { -minutes * 60 } else { minutes * 60 };
                    assert!((by - wanted).abs() <= unit, "{scene}/{name}: {words} -> {later}");
                    moved += 1;
                }
            }
        }
    }
    assert!(moved > 100, "only {moved} ages were seen");
}

/// Which targets show what was seen.
fn shown(status: &Status, now: Timestamp) -> Vec<bool> {
    status.targets.values().map(|target| target.seen_at(now, HOLD).is_some()).collect()
}

#[test]
fn events_of_what_is_not_watched_any_more_lead_nowhere() {
    let mut tracker = Tracker::new(source::policy, HOLD);
    let renamed = scene::spec("old name", "/srv/restic/a");
    let lock = scene::lock(1, LockMode::Shared, "db01", "root", 7, scene::ago(1));
    tracker.retarget(&TargetSet::new([renamed.clone(), scene::spec("b", "/srv/restic/b")]));
    for spec in [renamed, scene::spec("b", "/srv/restic/b")] {
        tracker.apply(scene::scan(&spec, 0, Ok(scene::look(vec![lock.clone()]))));
    }
    tracker.retarget(&TargetSet::new([scene::spec("b", "/srv/restic/b")]));
    let error = "2 errors\n  line 3: unknown key nam\n  line 7: name is missing";
    tracker.reloaded(scene::now(), Err(error.into()));
    let status = tracker.status();
    let list = &said(&status, scene::now())[0].1;
    let links = Regex::new("href=\"./targets/([^\"]+)\"").unwrap();
    let linked: Vec<_> = links.captures_iter(list).map(|link| link[1].to_owned()).collect();
    assert!(!linked.is_empty() && linked.iter().all(|name| name == "b"), "{linked:?}");
    assert!(list.contains("old name</bdi> (not watched any more): "), "{list}");
    assert!(list.contains("2 errors; line 3: unknown key nam; line 7: name is missing<"), "{list}");
}

/// The one line of a plugin names what is refused and what to do; a command in it is whole.
#[test]
fn a_plugins_line_is_enough_to_act_on() {
    for (name, status) in scene::all() {
        let line = table::nagios(&status, scene::now(), HOLD);
        assert_eq!(line.lines().count(), 1, "{line}");
        let json = Answer { status: &status, now: scene::now(), hold: HOLD };
        let mut overview = Overview::default();
        overview.follow(&status, scene::now(), HOLD);
        let json = json.targets(&overview, &TargetsAsk::default()).unwrap();
        let text = line.split(" | ").next().unwrap();
        for command in text.split("; run: ").skip(1) {
            let whole = json.lines().filter_map(|line| {
                let step = line.trim().strip_prefix("\"next_step\": ")?;
                serde_json::from_str::<String>(step.trim_end_matches(',')).ok()
            });
            let mut known = whole.filter(|step| command.starts_with(step.as_str()));
            assert!(known.next().is_some(), "{name}: {command}");
        }
        if name == "stuck" {
            for word in ["refuses everything, backups included", "run: restic -r s3:", "web03"] {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
    }
    // Of many the first are whole, and the rest is counted.
    let many = (0..50).map(|n| {
        let lock = scene::lock(1, LockMode::Exclusive, "db01", "root", 7, scene::ago(60));
        let spec = scene::spec(&format!("t{n:02}"), &format!("/srv/restic/t{n:02}"));
        (spec, vec![(0, Ok(scene::look(vec![lock])))])
    });
    let line = table::nagios(&scene::status(many.collect()), scene::now(), HOLD);
    let shown = line.matches("; run: restic -r /srv/restic/t").count();
    assert!(shown > 2 && line.contains(&format!("; and {} more |", 50 - shown)), "{line}");
    assert!(line.len() < 1_300, "{}", line.len());
}
