//! One repository, reached through every backend: the same locks, told the same way.

use lock_exporter::cmd::demo::writer::{Fields, Repository, Version};
use lock_exporter::lock::LockEntry;
use lock_exporter::scan::Look;
use lock_exporter::source::{Context, LockSource};

use super::cloud::{self, Azurite, google};
use super::rest::rest_server;
use super::sftp::Ssh;
use super::*;
use crate::target::{context, reader_of, scan};

/// Everything of a look but what a backend's clock says.
pub fn told(look: &Look) -> Vec<String> {
    let mut told: Vec<String> = look
        .entries
        .iter()
        .map(|entry| match entry {
            LockEntry::Readable(lock) => {
                let id = &lock.stub.id;
                format!("{id:?} {} {:?} {:?}", lock.mode.as_str(), lock.holder, lock.tenure)
            }
            LockEntry::Sealed(stub, why) => format!("{:?} {} {}", stub.id, stub.size, why.as_str()),
            LockEntry::Empty(stub) => format!("{:?} empty", stub.id),
            LockEntry::Unreadable(stub, why) => format!("{:?} {}", stub.id, why.as_str()),
        })
        .collect();
    told.sort();
    told
}

pub fn files(root: &Path, folder: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(root.join(folder)).expect("reads").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.path().is_dir() {
            files(root, &path, found);
        } else {
            let content = std::fs::read(entry.path()).expect("reads");
            found.push((path, content));
        }
    }
}

pub fn make(root: &Path) {
    std::fs::create_dir_all(root.parent().expect("has one")).expect("makes");
    let made = Repository::init(root, Version::V2, b"p", Repository::CHEAP).expect("makes");
    for (pid, exclusive) in [(1, false), (2, false), (3, true)] {
        let fields = Fields {
            time: "2026-01-02T03:04:05Z".parse().expect("is a time"),
            exclusive,
            hostname: "höst".into(),
            username: "user".into(),
            pid,
            uid: 1000,
            gid: 1000,
        };
        made.lock(&fields).expect("writes");
    }
    made.unreadable().expect("writes");
    made.empty().expect("writes");
    made.raw("README", b"x").expect("writes");
}

struct Way {
    repository: String,
    variables: Vec<(String, String)>,
    options: Vec<(String, String)>,
}

impl Way {
    fn to(repository: impl Into<String>) -> Self {
        Self { repository: repository.into(), variables: vec![], options: vec![] }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn option(mut self, name: &str, value: impl Into<String>) -> Self {
        self.options.push((name.into(), value.into()));
        self
    }

    fn open(&self, password: Option<(&str, &str)>) -> Box<dyn LockSource> {
        self.open_counted(password, &context())
    }

    fn open_counted(
        &self,
        password: Option<(&str, &str)>,
        context: &Context,
    ) -> Box<dyn LockSource> {
        fn texts(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        }
        let mut variables = texts(&self.variables);
        variables.extend(password);
        let options = texts(&self.options);
        reader_of(&self.repository, PasswordSpec::Inherit, &variables, &options, context)
    }
}

/// Requests so far, by operation.
fn requests(context: &Context) -> BTreeMap<String, f64> {
    let families = context.telemetry.registry().gather();
    let family = families.iter().find(|f| f.name() == "lock_exporter_store_requests_total");
    let mut all = BTreeMap::<String, f64>::new();
    for series in family.expect("is registered").get_metric() {
        let operation = series.get_label().iter().find(|label| label.name() == "operation");
        let operation = operation.expect("has one").value().to_owned();
        *all.entry(operation).or_default() += series.get_counter().get_value();
    }
    all
}

#[tokio::test]
async fn the_same_locks_are_told_through_every_backend() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("data/bucket/repo");
    make(&root);
    let shown = root.display().to_string();
    let mut all = Vec::new();
    files(&root, "", &mut all);

    let ssh = Ssh::start("");
    let (_rest, port) = rest_server(&dir.path().join("data/bucket"), &["--no-auth"]);
    let (_google, address) = google(dir.path());
    let azurite = Azurite::start().await;
    azurite.put(all.iter().map(|(key, content)| (format!("repo/{key}"), content.clone()))).await;
    let moto = Moto::bucket("everywhere").await;
    for (key, content) in &all {
        let path = object_store::path::Path::parse(format!("repo/{key}")).expect("is a key");
        moto.writer.put(&path, content.clone().into()).await.expect("writes");
    }
    let mut azure = Way::to("azure:box:/repo");
    for (name, value) in azurite.variables(&[cloud::KEY]) {
        azure = azure.with(name, value);
    }
    let ways = [
        Way::to(&shown),
        Way::to(ssh.url(&shown)).option("sftp.args", ssh.arguments("user", "known_hosts")),
        Way::to(format!("rest:http://127.0.0.1:{port}/repo")),
        Way::to(moto.repository("repo")).with(KEY.0, KEY.1).with(SECRET.0, SECRET.1),
        azure,
        Way::to("gs:bucket:/repo").with("STORAGE_EMULATOR_HOST", address),
        Way::to(format!("rclone::local:{shown}")),
    ];
    let sealed = told(&ways[0].open(None).scan().await.expect("looks"));
    let opened = told(&scan(&*ways[0].open(Some(("RESTIC_PASSWORD", "p")))).await.expect("looks"));
    assert_eq!(sealed.len(), 5);
    assert!(opened.iter().any(|lock| lock.contains("exclusive") && lock.contains("höst")));
    for way in &ways {
        let look =
            way.open(None).scan().await.unwrap_or_else(|e| panic!("{}: {e}", way.repository));
        assert_eq!(told(&look), sealed, "{}", way.repository);
        assert_eq!(look.ignored.count, 1, "{}", way.repository);
        let context = context();
        let source = way.open_counted(Some(("RESTIC_PASSWORD", "p")), &context);
        let look = scan(&*source).await.expect("looks");
        assert_eq!(told(&look), opened, "{}", way.repository);
        let cold = requests(&context);
        let look = scan(&*source).await.expect("looks");
        assert_eq!(told(&look), opened, "{}", way.repository);
        let warm = requests(&context);
        let more: Vec<_> =
            warm.iter().filter(|(name, count)| cold.get(*name) != Some(count)).collect();
        let [(operation, count)] = more[..] else { panic!("{}: {more:?}", way.repository) };
        assert_eq!(operation, "list", "{}", way.repository);
        assert_eq!(*count - cold["list"], 1., "a warm scan is one listing: {}", way.repository);
        let wrong = way.open(Some(("RESTIC_PASSWORD", "wrong")));
        let error = scan(&*wrong).await.expect_err("does not open");
        assert_eq!(error.class, ErrorClass::WrongPassword, "{}: {error}", way.repository);
    }
}
