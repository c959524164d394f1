use std::time::Duration;

use super::*;
use crate::location::Location;
use crate::secret::{EnvSpec, PasswordSpec};
use crate::target::{
    FileFormat, FileSpec, Files, PerMode, Repositories, ResticSpec, Role, SearchSpec, Sought,
};

fn spec(name: &str, source: SourceSpec) -> TargetSpec {
    TargetSpec {
        name: TargetName::new(name).unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode::default(),
        stuck_limit: PerMode::default(),
        host: "".into(),
        source,
    }
}

fn restic(place: &str) -> ResticSpec {
    ResticSpec {
        repository: Location::parse(place).unwrap(),
        password: PasswordSpec::Inherit,
        env: EnvSpec::default(),
        options: BTreeMap::new(),
        key_hint: None,
        cacert: Vec::new(),
        insecure_tls: false,
    }
}

fn target(name: &str, place: &str) -> TargetSpec {
    spec(name, SourceSpec::Restic(restic(place)))
}

fn search(name: &str, place: &str) -> TargetSpec {
    let (exclude, include) = (Vec::new(), Vec::new());
    let sought = Repositories { each: restic(place), depth: 1, exclude, include };
    let sought = Sought::Repositories(sought);
    spec(name, SourceSpec::Search(SearchSpec { sought, max: 99, is_shown: true }))
}

fn sight(found: &[&str]) -> Sight {
    Sight { found: found.iter().map(PathBuf::from).collect(), kept: BTreeSet::new() }
}

fn watched(roster: &Roster) -> Vec<String> {
    roster.targets().iter().map(|spec| spec.name.to_string()).collect()
}

/// Tells the roster what the search of this name saw.
fn saw(roster: &Roster, name: &str, sight: &Sight) -> Change {
    let entry = roster.targets().get(&TargetName::new(name).unwrap()).unwrap().clone();
    roster.saw(&entry, sight)
}

#[test]
fn finds_come_and_go_beside_what_is_configured() {
    let configured = [target("db", "/srv/db"), search("fleet", "/srv/fleet")];
    let roster = Roster::new(configured, Shard::default());
    assert_eq!(watched(&roster), ["db", "fleet"]);
    assert_eq!(saw(&roster, "fleet", &sight(&["a", "b", ""])), Change { new: 3, gone: 0 });
    assert_eq!(watched(&roster), ["db", "fleet", "fleet/.", "fleet/a", "fleet/b"]);
    let before = roster.targets();
    let follow = roster.follow();
    // Missed once may be made anew; missed twice is gone.
    assert_eq!(saw(&roster, "fleet", &sight(&["a", ""])), Change::default());
    assert!(!follow.has_changed().unwrap());
    assert_eq!(saw(&roster, "fleet", &sight(&["a", "c", ""])), Change { new: 1, gone: 1 });
    assert_eq!(watched(&roster), ["db", "fleet", "fleet/.", "fleet/a", "fleet/c"]);
    for name in ["db", "fleet", "fleet/a"] {
        let name = TargetName::new(name).unwrap();
        let (old, new) = (before.get(&name).unwrap(), roster.targets());
        assert!(Arc::ptr_eq(old, new.get(&name).unwrap()), "{name} is the same value");
    }
}

#[test]
fn one_search_missed_between_two_that_see_it_forgets_nothing() {
    let roster = Roster::new([search("fleet", "/srv")], Shard::default());
    for found in [&["a", "b"][..], &["a"], &["a", "b"], &["a"], &["a", "b"]] {
        saw(&roster, "fleet", &sight(found));
    }
    assert_eq!(watched(&roster), ["fleet", "fleet/a", "fleet/b"]);
}

#[test]
fn what_lies_behind_a_closed_folder_stays() {
    let roster = Roster::new([search("fleet", "/srv")], Shard::default());
    saw(&roster, "fleet", &sight(&["a/x", "ab/x", "b"]));
    let closed = Sight { kept: [PathBuf::from("a")].into(), ..sight(&["new"]) };
    for _ in 0..5 {
        saw(&roster, "fleet", &closed);
    }
    assert_eq!(watched(&roster), ["fleet", "fleet/a/x", "fleet/new"]);
}

#[test]
fn configured_targets_win_by_name_and_by_place() {
    let configured =
        [target("fleet/a", "/elsewhere"), target("mine", "/srv/b"), search("fleet", "/srv")];
    let roster = Roster::new(configured, Shard::default());
    saw(&roster, "fleet", &sight(&["a", "b", "c"]));
    let names = watched(&roster);
    let [fleet, elsewhere, marked, c, mine] = &names[..] else { panic!("{names:?}") };
    assert_eq!([fleet, elsewhere, c, mine], ["fleet", "fleet/a", "fleet/c", "mine"]);
    assert!(marked.starts_with("fleet/a~"), "{marked}");
    let marked = roster.targets().get(&TargetName::new(marked).unwrap()).unwrap().location();
    assert_eq!(marked, "/srv/a");
}

#[test]
fn a_place_is_the_same_however_it_is_written() {
    for (start, found, configured) in [
        ("/srv", "b", &["/srv/b/", "/srv/./b", "//srv//b", "local:/srv/b"][..]),
        ("/srv//x/./", "b", &["/srv/x/b"]),
        (
            "s3:https://s3.example.com/bucket",
            "b",
            &["s3:s3.example.com/bucket/b/", "s3:https://S3.Example.com:443/bucket/./b"],
        ),
        ("s3:http://h/bucket/x", "b", &["s3:http://h:80/bucket/x/./b"]),
        ("sftp:ann@h:/srv", "b", &["sftp:ann@h:/srv//b/", "sftp:bob@h:/srv/b"]),
        ("azure:box:/", "b", &["azure:box:b", "azure:box:/b/"]),
    ] {
        for own in configured {
            let roster =
                Roster::new([target("own", own), search("fleet", start)], Shard::default());
            saw(&roster, "fleet", &sight(&[found, "c"]));
            assert_eq!(watched(&roster), ["fleet", "fleet/c", "own"], "{start} {own}");
        }
    }
    // Through a link this may be elsewhere, and this is another server.
    for own in ["/srv/x/../b", "s3:http://h:8080/bucket/b"] {
        let roster = Roster::new([target("own", own), search("fleet", "/srv")], Shard::default());
        saw(&roster, "fleet", &sight(&["b"]));
        assert_eq!(watched(&roster), ["fleet", "fleet/b", "own"], "{own}");
    }
}

#[test]
fn a_reload_keeps_the_finds_of_searches_that_stay_where_they_were() {
    let roster = Roster::new([search("one", "/srv/1"), search("two", "/srv/2")], Shard::default());
    saw(&roster, "one", &sight(&["a"]));
    saw(&roster, "two", &sight(&["b"]));
    roster.searched(&TargetName::new("one").unwrap());
    assert_eq!(roster.unsearched(), 1);
    let old = roster.targets().get(&TargetName::new("one").unwrap()).unwrap().clone();
    let mut slower = search("one", "/srv/1");
    slower.interval = Duration::from_secs(120);
    roster.configure([slower, search("two", "/srv/elsewhere")]);
    assert_eq!(watched(&roster), ["one", "one/a", "two"]);
    let found = roster.targets().get(&TargetName::new("one/a").unwrap()).unwrap().clone();
    assert_eq!(found.interval, Duration::from_secs(120), "as the search says now");
    // A search that was under way knows nothing of the new configuration.
    assert_eq!(roster.saw(&old, &sight(&["late"])), Change::default());
    assert_eq!(watched(&roster), ["one", "one/a", "two"]);
}

#[test]
fn shards_share_the_finds_and_each_searches() {
    let configured = || [search("fleet", "/srv"), target("db", "/srv/db")];
    let paths: Vec<String> = (0..500).map(|n| format!("repo{n}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let (mut all, mut shown) = (Vec::new(), 0);
    for ordinal in 0..3 {
        let roster = Roster::new(configured(), Shard::new(ordinal, 3).unwrap());
        saw(&roster, "fleet", &sight(&paths));
        let set = roster.targets();
        let search = set.get(&TargetName::new("fleet").unwrap()).expect("every shard searches");
        shown += usize::from(search.is_shown());
        let own = watched(&roster).into_iter().filter(|name| name != "fleet");
        let before = all.len();
        all.extend(own);
        assert!((100..=240).contains(&(all.len() - before)), "a fair part");
    }
    assert_eq!(shown, 1, "one shard shows it");
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!((count, all.len()), (501, 501), "each target once");
}

#[test]
fn names_are_safe_bounded_and_unique() {
    let entry = TargetName::new("fleet").unwrap();
    let long = "x".repeat(300);
    let broken = <std::ffi::OsStr as OsStrExt>::from_bytes(b"br\xffken");
    let longer = format!("{long}y");
    let mut found: Vec<PathBuf> =
        ["", "db01", "a\nb", "a?b", &long, &longer].map(PathBuf::from).to_vec();
    found.push(broken.into());
    let taken = TargetName::new("fleet/db01").unwrap();
    let named = names(&entry, &found, |name| *name == taken);
    let paths: BTreeSet<_> = named.values().collect();
    assert_eq!(paths.len(), found.len(), "each has a name: {named:?}");
    let shown: Vec<_> = named.keys().map(TargetName::as_str).collect();
    assert!(shown.contains(&"fleet/.") && shown.contains(&"fleet/a?b"));
    for start in ["fleet/db01~", "fleet/a?b~", "fleet/br?ken~"] {
        let name = shown.iter().find(|name| name.starts_with(start)).expect(start);
        assert_eq!(name.len(), start.len() + 8);
    }
    assert!(shown.iter().all(|name| name.len() <= TargetName::BYTES_MAX));
    assert_eq!(shown.iter().filter(|name| name.len() == 256).count(), 2, "cut ones fill it");
    assert_eq!(names(&entry, &found, |name| *name == taken), named, "and keeps it");
}

#[test]
fn nobody_can_take_the_name_of_another_path() {
    let entry = TargetName::new("fleet").unwrap();
    let name_of = |paths: &[PathBuf], path: &PathBuf| {
        let named = names(&entry, paths, |_| false);
        named.into_iter().find(|(_, known)| known == path).map(|(name, _)| name)
    };
    for path in ["a\nb", &"x".repeat(300)] {
        let path = PathBuf::from(path);
        let alone = name_of(std::slice::from_ref(&path), &path).unwrap();
        let thief = PathBuf::from(alone.as_str().strip_prefix("fleet/").unwrap());
        for order in [[path.clone(), thief.clone()], [thief, path.clone()]] {
            assert_eq!(name_of(&order, &path), Some(alone.clone()));
        }
    }
}

#[test]
fn files_are_found_by_their_paths_whatever_bytes_those_are() {
    let each = FileSpec { path: "/run/*/lock".into(), role: Role::Job, format: FileFormat::Kernel };
    let glob = crate::pattern::Glob::new("/run/*/lock").unwrap();
    let search = SearchSpec { sought: Sought::Files(Files { each, glob }), max: 9, is_shown: true };
    let roster = Roster::new([spec("jobs", SourceSpec::Search(search))], Shard::default());
    let odd = PathBuf::from(<std::ffi::OsStr as OsStrExt>::from_bytes(b"\xff\n/lock"));
    let both = [odd.clone(), PathBuf::from("a/lock")];
    saw(&roster, "jobs", &Sight { found: both.into(), kept: BTreeSet::new() });
    let found: BTreeMap<String, PathBuf> = roster
        .targets()
        .iter()
        .filter_map(|spec| match &spec.source {
            SourceSpec::File(file) => Some((spec.name.to_string(), file.path.clone())),
            SourceSpec::Restic(_) | SourceSpec::Search(_) => None,
        })
        .collect();
    assert_eq!(found["jobs/a/lock"], Path::new("/run/a/lock"));
    let (marked, path) = found.iter().find(|(name, _)| name.contains('~')).unwrap();
    assert!(marked.starts_with("jobs/??/lock~"), "{marked}");
    assert_eq!(*path, Path::new("/run").join(odd));
}

proptest::proptest! {
    /// Whatever searches see, names are unique and configured targets stay.
    #[test]
    fn any_paths_have_names_of_their_own(
        paths in proptest::collection::btree_set("[a-b~/.\\PC]{0,5}", 0..20),
        taken in proptest::collection::btree_set("[a-b~]{1,3}", 0..5),
    ) {
        let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
        let is_taken = |name: &TargetName| {
            taken.iter().any(|taken| name.as_str() == format!("e/{taken}"))
        };
        let named = names(&TargetName::new("e").unwrap(), &paths, is_taken);
        proptest::prop_assert!(named.keys().all(|name| !is_taken(name)));
        let distinct: BTreeSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
        proptest::prop_assert!(named.len() >= distinct.len());
    }
}
