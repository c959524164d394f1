//! Searches on real backends: repositories are made and removed, servers end and come back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_exporter::config::{self, Overrides};
use lock_exporter::discovery::opener;
use lock_exporter::roster::Roster;
use lock_exporter::scan::{Look, ScanError};
use lock_exporter::shard::Shard;
use lock_exporter::source::{Context, LockSource};
use lock_exporter::target::{TargetName, TargetSpec};

use super::cloud::{Azurite, google};
use super::sftp::Ssh;
use super::*;
use crate::target::context;

/// One search, called `fleet`, as the configuration has it.
struct Fleet {
    roster: Arc<Roster>,
    search: Box<dyn LockSource>,
    context: Context,
}

impl Fleet {
    /// `more` are further keys beside `discover`, as YAML.
    fn of(place: &str, variables: &[(&str, &str)], options: &[(&str, &str)], more: &str) -> Self {
        let map = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{k:?}: {v:?}")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        let (env, options) = (map(variables), map(options));
        let text = format!(
            "targets: [{{name: fleet, restic: {{discover: {place:?}, env: {env}, options: {options} \
             {more}}}}}]"
        );
        let parsed = config::parse(&text, &Overrides::default(), "here").expect("is right");
        let roster = Arc::new(Roster::new(parsed.targets, Shard::default()));
        let context = context();
        let entry = roster.targets().iter().next().expect("one").clone();
        let search = opener(&roster)(&entry, &context);
        Self { roster, search, context }
    }

    /// Searches until everybody agrees on what is gone.
    async fn search(&self) -> Result<Look, ScanError> {
        self.search.scan().await?;
        self.search.scan().await
    }

    /// Relative paths of what is watched now.
    fn found(&self) -> BTreeSet<String> {
        let set = self.roster.targets();
        let names = set.iter().filter_map(|spec| spec.name.as_str().strip_prefix("fleet/"));
        names.map(str::to_owned).collect()
    }

    fn find(&self, name: &str) -> Arc<TargetSpec> {
        let name = TargetName::new(&format!("fleet/{name}")).expect("is a name");
        self.roster.targets().get(&name).expect("was found").clone()
    }

    /// Looks at one find as the exporter would.
    async fn look_at(&self, name: &str) -> Look {
        let spec = self.find(name);
        let source = opener(&self.roster)(&spec, &self.context);
        source.scan().await.expect("can be read")
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What a repository with one lock consists of, as far as anybody here looks without its key.
const OBJECT: &[u8] = &[7; 200];

fn objects(at: &str) -> Vec<(String, Vec<u8>)> {
    let mut names: Vec<String> =
        ["config", "data/00/aa", "data/ff/bb", "snapshots/ee"].map(str::to_owned).to_vec();
    names.extend([format!("keys/{}", id(7)), format!("locks/{}", id(1))]);
    names.iter().map(|name| (format!("{at}/{name}"), OBJECT.to_vec())).collect()
}

fn make_repository(root: &Path) {
    for (name, content) in objects(root.to_str().expect("UTF-8")) {
        std::fs::create_dir_all(Path::new(&name).parent().expect("has one")).expect("makes");
        std::fs::write(name, content).expect("writes");
    }
}

#[tokio::test]
async fn a_bucket_is_searched_by_levels_and_never_walked() {
    let moto = Moto::bucket("discover").await;
    for at in ["backups/a", "backups/b", "backups/deep/er", "elsewhere/c"] {
        for (key, _) in objects(at) {
            moto.put(&key, OBJECT).await;
        }
    }
    moto.put("backups/readme.txt", b"x").await;
    moto.put_odd("backups/br%07oken/keys/x").await;
    let variables = [KEY, SECRET];
    let fleet = Fleet::of(&moto.repository("backups"), &variables, &[], ", depth: 1");
    let look = fleet.search().await.expect("searches");
    assert_eq!(look.ignored.count, 1, "what cannot be asked for is told: {look:?}");
    assert_eq!(fleet.found(), set(&["a", "b"]));
    assert_eq!(fleet.look_at("a").await.entries.len(), 1);
    for (key, _) in objects("backups/new") {
        moto.put(&key, OBJECT).await;
    }
    for (key, _) in objects("backups/b") {
        let path = object_store::path::Path::parse(key).expect("is a key");
        moto.writer.delete(&path).await.expect("removes");
    }
    fleet.search().await.expect("searches");
    assert_eq!(fleet.found(), set(&["a", "new"]));

    let lines = moto.lines();
    let lists: Vec<_> = lines.iter().filter(|line| line.contains("list-type=2")).collect();
    // Once each, and the start four times; a folder that was known is looked at again now and then.
    assert!((6..=12).contains(&lists.len()), "{lists:#?}");
    for line in &lists {
        assert!(line.contains("delimiter=/"), "{line}");
        assert!(!line.contains("data/"), "{line}");
    }
    let deeper = Fleet::of(&moto.repository(""), &variables, &[], ", depth: 2, exclude: else*");
    deeper.search().await.expect("searches");
    assert_eq!(deeper.found(), set(&["backups/a", "backups/new"]));
}

#[tokio::test]
async fn a_bucket_that_fails_keeps_what_was_found() {
    let keys = ["a", "b"].into_iter().flat_map(objects);
    let bucket = Bucket::of(keys);
    let broken = Arc::new(AtomicBool::new(false));
    let switch = broken.clone();
    let server = FaultServer::start(move |seen| match switch.load(Ordering::SeqCst) {
        true => Reply::refusal(403, "AccessDenied", "no"),
        false => bucket.reply(seen),
    })
    .await;
    let place = format!("s3:http://{}/bucket", server.host());
    let fleet = Fleet::of(&place, &[KEY, SECRET], &[], "");
    fleet.search().await.expect("searches");
    broken.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = fleet.search().await.expect_err("is refused");
        assert_eq!(error.class, ErrorClass::Permission, "{error}");
        assert_eq!(fleet.found(), set(&["a", "b"]));
    }
    broken.store(false, Ordering::SeqCst);
    fleet.search().await.expect("searches again");
    assert_eq!(fleet.found(), set(&["a", "b"]));
}

#[tokio::test]
async fn folders_behind_ssh_come_and_go_and_a_server_that_ends_takes_nothing_along() {
    let mut ssh = Ssh::start("");
    let root = ssh.path("repos");
    for name in ["a", "b", "ünï x"] {
        make_repository(&root.join(name));
    }
    let arguments = ssh.arguments("user", "known_hosts");
    let options = [("sftp.args", arguments.as_str())];
    let place = ssh.url(root.to_str().expect("UTF-8"));
    let fleet = Fleet::of(&place, &[], &options, "");
    fleet.search().await.expect("searches");
    assert_eq!(fleet.found(), set(&["a", "b", "ünï x"]));
    assert_eq!(fleet.look_at("ünï x").await.entries.len(), 1);
    std::fs::remove_dir_all(root.join("b")).expect("removes");
    make_repository(&root.join("c"));
    fleet.search().await.expect("searches");
    assert_eq!(fleet.found(), set(&["a", "c", "ünï x"]));
    ssh.end();
    let error = fleet.search().await.expect_err("nobody is there");
    assert_eq!(error.class, ErrorClass::Network, "{error}");
    assert_eq!(fleet.found(), set(&["a", "c", "ünï x"]));
    ssh.restart();
    fleet.search().await.expect("searches again");
}

#[tokio::test]
async fn containers_of_azure_and_google_are_searched() {
    let azurite = Azurite::start().await;
    azurite.put(["x/a", "x/b"].into_iter().flat_map(objects)).await;
    let variables = azurite.variables(&[super::cloud::KEY]);
    let fleet = Fleet::of("azure:box:/x", &variables, &[], "");
    fleet.search().await.expect("searches");
    assert_eq!(fleet.found(), set(&["a", "b"]));
    assert!(fleet.look_at("b").await.facts.sealed);

    let dir = tempfile::tempdir().expect("a folder");
    make_repository(&dir.path().join("data/bucket/x/a"));
    make_repository(&dir.path().join("data/bucket/x/c"));
    let (_server, address) = google(dir.path());
    let variables = [("STORAGE_EMULATOR_HOST", address.as_str())];
    let fleet = Fleet::of("gs:bucket:/x", &variables, &[], "");
    fleet.search().await.expect("searches");
    assert_eq!(fleet.found(), set(&["a", "c"]));
}

#[tokio::test]
async fn hostile_names_of_folders_are_bounded_and_hide_nothing() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().expect("a folder");
    let broken = std::ffi::OsStr::from_bytes(b"br\xffken");
    let long = "x".repeat(255);
    for name in ["a", "line\nbreak", "$(reboot)", &format!("{long}/{long}")] {
        make_repository(&dir.path().join(name));
    }
    std::fs::create_dir(dir.path().join(broken)).expect("makes");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).expect("links");
    let place = dir.path().to_str().expect("UTF-8");
    let fleet = Fleet::of(place, &[], &[], ", depth: 2");
    let look = fleet.search().await.expect("searches");
    assert_eq!(look.ignored.count, 1, "{look:?}");
    let found = fleet.found();
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.contains("a") && found.contains("$(reboot)"));
    assert!(found.iter().all(|name| name.len() < 256 && !name.contains(char::is_control)));
    let named = |start: &str| found.iter().find(|name| name.starts_with(start)).expect("is there");
    // Each can be looked at, whatever it is called.
    for name in [named("line?break~"), named("xxx"), named("$")] {
        assert_eq!(fleet.look_at(name).await.entries.len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_place_without_repositories_is_an_error_and_forgets_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("mnt");
    make_repository(&place.join("a"));
    let fleet = Fleet::of(place.to_str().expect("UTF-8"), &[], &[], "");
    fleet.search().await.expect("searches");
    // As when the disk is not mounted any more.
    std::fs::rename(&place, dir.path().join("away")).expect("moves");
    std::fs::create_dir(&place).expect("makes");
    let error = fleet.search().await.expect_err("finds nothing");
    assert_eq!(error.class, ErrorClass::NotFound, "{error}");
    assert!(error.advice.contains("mounted"), "{error}");
    assert_eq!(fleet.found(), set(&["a"]));
    let few = Fleet::of(dir.path().to_str().expect("UTF-8"), &[], &[], ", depth: 2, max: 1");
    make_repository(&place.join("b"));
    let error = few.search().await.expect_err("finds too many");
    assert_eq!(error.class, ErrorClass::Incomplete, "{error}");
    assert!(few.found().is_empty());
}

#[tokio::test]
async fn five_thousand_repositories_are_found_and_cost_little_when_they_are_known() {
    let dir = tempfile::tempdir().expect("a folder");
    for number in 0..5_000 {
        let root = dir.path().join(format!("group{}/repo{number}", number % 10));
        std::fs::create_dir_all(root.join("keys")).expect("makes");
        std::fs::create_dir(root.join("locks")).expect("makes");
    }
    let place = dir.path().to_str().expect("UTF-8");
    let fleet = Fleet::of(place, &[], &[], ", depth: 2");
    let lists = || {
        let families = fleet.context.telemetry.registry().gather();
        let requests = families.iter().find(|f| f.name() == "lock_exporter_store_requests_total");
        let all = requests.expect("is registered").get_metric().iter();
        all.map(|series| series.get_counter().get_value()).sum::<f64>()
    };
    // A busy machine may need more than one try, which goes on where the one before ended.
    while fleet.search.scan().await.is_err() {}
    assert_eq!(fleet.found().len(), 5_000);
    let cold = lists();
    assert!((5_011.0..5_100.0).contains(&cold), "{cold}");
    fleet.search.scan().await.expect("searches");
    let warm = lists() - cold;
    assert!(warm < 1_000.0, "{warm}: each once in ten searches");
    assert_eq!(fleet.found().len(), 5_000);
}
