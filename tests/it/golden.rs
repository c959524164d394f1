//! The whole `/metrics` text of known situations, compared with committed files.
//!
//! `LOCK_EXPORTER_GOLDEN=write cargo test golden` writes the files anew; read the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use lock_exporter::exposition::json::{Answer, EventsAsk, LocksAsk, TargetsAsk};
use lock_exporter::exposition::metrics::{Exporter, FAMILIES, MOVING, Rules, StatusCollector};
use lock_exporter::exposition::overview::Overview;
use lock_exporter::exposition::page::{self, Ask, Frame};
use lock_exporter::exposition::{json, openmetrics, table};
use lock_exporter::label::LabelRules;
use lock_exporter::status::Status;
use lock_exporter::telemetry::Telemetry;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};

use crate::reference::compare_block;
use crate::scene;

fn gather(status: Status, labels: LabelRules) -> Vec<MetricFamily> {
    let hold = Duration::from_secs(15 * 60);
    let rules = Arc::new(Rules { hold, labels, sources: vec!["restic", "file"] });
    let registry = Registry::new();
    registry.register(Box::new(StatusCollector::new(status, scene::now(), rules))).unwrap();
    registry.gather()
}

fn render(status: Status, labels: LabelRules) -> String {
    TextEncoder::new().encode_to_string(&gather(status, labels)).unwrap()
}

fn render_open(status: Status, labels: LabelRules) -> String {
    let mut out = String::new();
    openmetrics::encode(&gather(status, labels), &mut out);
    out + openmetrics::END
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn compare(folder: &str, file: &str, text: &str) {
    let path = root().join("tests/golden").join(folder).join(file);
    if std::env::var_os("LOCK_EXPORTER_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, committed, "{} differs", path.display());
}

const HOLD: Duration = Duration::from_secs(15 * 60);

fn frame(root: &str) -> Frame<'_> {
    let (now, telemetry_path) = (scene::now(), "/metrics");
    Frame { now, hold: HOLD, root, telemetry_path, refused: None }
}

/// The list, and the page of each target of the scene.
fn pages(scene: &str, status: &Status) {
    let mut overview = Overview::default();
    overview.follow(status, scene::now(), HOLD);
    let list = page::list(&frame("./"), status, &overview, &Ask::default());
    compare("page", &format!("{scene}.html"), &list);
    for (index, target) in status.targets.values().enumerate() {
        let page = page::target(&frame("../"), &overview, status, target);
        compare("page", &format!("{scene}.{index}.html"), &page);
    }
}

#[test]
fn the_api_answers_as_committed_and_as_documented() {
    let scenes: BTreeMap<_, _> = scene::all().into_iter().collect();
    let compare = |name: &str, text: String| {
        compare("api", &format!("{name}.json"), &text);
        compare_block("docs/api.md", name, &format!("```json\n{text}```\n"));
    };
    let of = |scene: &str| Answer { status: &scenes[scene], now: scene::now(), hold: HOLD };
    let mut overview = Overview::default();
    overview.follow(&scenes["stuck"], scene::now(), HOLD);
    let ask = TargetsAsk::parse("q=db01&state=stuck&limit=1").unwrap();
    compare("targets", of("stuck").targets(&overview, &ask).unwrap());
    let target = scenes["shared"].targets.values().next().unwrap();
    compare("target", of("shared").target(target).unwrap());
    let ask = LocksAsk::parse("verdict=stale&mode=shared").unwrap();
    compare("locks", of("stuck").locks(&ask).unwrap());
    let ask = EventsAsk::parse("limit=3").unwrap();
    compare("events", of("failing").events(&ask).unwrap());
}

/// The server keeps the text of all families but one for as long as this says.
#[test]
fn while_the_status_stays_only_one_family_moves_with_the_clock() {
    let second = SignedDuration::from_secs(1);
    let hold = Duration::from_secs(15 * 60);
    let mut dropped = 0_usize;
    for (name, status) in scene::all() {
        let labels = LabelRules::default();
        let rules = Arc::new(Rules { hold, labels, sources: vec!["restic", "file"] });
        let at = |now| StatusCollector::new(status.clone(), now, rules.clone());
        let text = |now| {
            let mut text = String::new();
            let add = |family| TextEncoder::new().encode_utf8(&[family], &mut text);
            at(now).each(|name| name != MOVING, add).unwrap();
            text
        };
        let first = text(scene::now());
        let until = at(scene::now()).true_until();
        let last = until.unwrap_or(scene::now() + SignedDuration::from_hours(24));
        for now in [scene::now() + second, last] {
            assert_eq!(text(now), first, "{name} at {now}");
        }
        dropped += usize::from(until.is_some_and(|until| text(until + second) != first));
        let all = render_families(at(scene::now()).collect());
        let (mut most, moving) = (Vec::new(), at(scene::now()).moving());
        at(scene::now())
            .each(
                |name| name != MOVING,
                |family| {
                    most.push(family);
                    Ok::<(), std::convert::Infallible>(())
                },
            )
            .unwrap();
        most.extend(moving);
        most.sort_by(|a, b| a.name().cmp(b.name()));
        assert_eq!(render_families(most), all, "{name}");
    }
    assert!(dropped > 5, "only {dropped} scenes show less after that time");
}

fn render_families(families: Vec<MetricFamily>) -> String {
    TextEncoder::new().encode_to_string(&families).unwrap()
}

#[test]
fn every_scene_is_rendered_as_committed() {
    let hold = Duration::from_secs(15 * 60);
    for (name, status) in scene::all() {
        let now = scene::now();
        let mut table = table::table(&status, now, hold, false);
        table.push_str(&table::nagios(&status, now, hold));
        compare("table", &format!("{name}.txt"), &table);
        compare("json", &format!("{name}.json"), &json::document(&status, now, hold).unwrap());
        pages(name, &status);
        let rules = LabelRules::default();
        compare("openmetrics", &format!("{name}.om"), &render_open(status.clone(), rules.clone()));
        compare("metrics", &format!("{name}.prom"), &render(status, rules));
    }
}

/// The exporter's own metrics at its start, which rules and dashboards ask for too.
#[test]
fn the_exporters_own_metrics_are_there_from_the_start_as_committed() {
    let exporter = Exporter {
        build: vec![("version", "1.2.3"), ("revision", "0123456789ab")],
        reload_successful: true,
        reload_success_at: scene::ago(60),
        shard: 0,
        total_shards: 1,
    };
    let registry = Registry::new();
    registry.register(Box::new(exporter)).unwrap();
    let machine = Registry::new();
    machine.register(Box::new(scene::machine())).unwrap();
    let telemetry = Telemetry::new(&["restic", "file"], &["local", "s3"]);
    let mut out = Vec::new();
    for registry in [&registry, &machine, telemetry.registry()] {
        TextEncoder::new().encode(&registry.gather(), &mut out).unwrap();
    }
    compare("metrics", "exporter.prom", &String::from_utf8(out).unwrap());
}

#[test]
fn no_series_stands_twice_whatever_names_there_are() {
    for (name, status) in scene::all() {
        let text = render(status, LabelRules::default());
        let mut known = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let series = line.rsplit_once(' ').unwrap().0;
            assert!(known.insert(series), "{name}: {series}");
        }
    }
}

#[test]
fn every_family_is_shown_by_some_scene() {
    let text: String =
        scene::all().into_iter().map(|(_, status)| render(status, LabelRules::default())).collect();
    for family in FAMILIES {
        let sample = format!("\n{}{{", family.name);
        assert!(text.contains(&sample), "{} is in no scene", family.name);
    }
}

#[test]
fn a_target_has_a_bounded_number_of_series() {
    let status = |wanted: &str| {
        scene::all().into_iter().find(|(name, _)| *name == wanted).map(|(_, status)| status)
    };
    let series = |text: &str| text.lines().filter(|line| line.contains("target=\"")).count();
    let idle = series(&render(status("free").unwrap(), LabelRules::default()));
    assert!(idle <= 40, "{idle} series of a target at rest");
    let locked = series(&render(status("exclusive").unwrap(), LabelRules::default()));
    assert!(locked <= idle + 8 + 4, "{locked} series of a locked target, {idle} at rest");
    let many = series(&render(status("many").unwrap(), LabelRules::default()));
    assert!(many <= idle + 8 + 20 * 4, "{many} series of a target with many holds");
}

#[test]
fn the_worst_hold_is_never_hidden() {
    let mut entries: Vec<_> = (0..30)
        .map(|n| {
            let mode = lock_exporter::lock::LockMode::Shared;
            scene::lock(n, mode, &format!("host{n}"), "u", 1, scene::ago(2))
        })
        .collect();
    let exclusive = lock_exporter::lock::LockMode::Exclusive;
    entries.push(scene::lock(99, exclusive, "zzz", "u", 1, scene::ago(1)));
    let spec = scene::spec("a", "/srv/a");
    let text = render(
        scene::status(vec![(spec, vec![(0, Ok(scene::look(entries)))])]),
        LabelRules::default(),
    );
    assert!(text.contains("hostname=\"zzz\""), "{text}");
    assert!(text.contains("lock_target_hidden_holds{target=\"a\",host=\"web01\"} 11"), "{text}");
}

#[test]
fn dropped_and_rewritten_labels_merge_their_holds() {
    let rules = LabelRules {
        hostname_rewrite: vec![(regex::Regex::new("^pod-.*$").unwrap(), "pod".into())],
        drop: vec![],
    };
    let entries = (0..200)
        .map(|n| {
            let mode = lock_exporter::lock::LockMode::Shared;
            scene::lock(n, mode, &format!("pod-{n}"), "u", n.into(), scene::ago(2))
        })
        .collect();
    let spec = scene::spec("a", "/srv/a");
    let text = render(scene::status(vec![(spec, vec![(0, Ok(scene::look(entries)))])]), rules);
    let series: Vec<_> = text.lines().filter(|l| l.starts_with("lock_hold_info{")).collect();
    assert_eq!(series.len(), 1, "{series:?}");
    assert!(series[0].contains("hostname=\"pod\"") && series[0].contains("pid=\"0\""));
    assert!(text.contains("lock_target_holds{target=\"a\",host=\"web01\",mode=\"shared\"} 200"));
    assert!(text.contains("lock_target_hidden_holds{target=\"a\",host=\"web01\"} 0"));
}
