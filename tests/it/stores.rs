//! The stores against real folders, a real S3 server and one that misbehaves.
//!
//! `S3_ENDPOINT` is the address of a moto server (`http://127.0.0.1:5555`), `S3_LOG` the file that its
//! standard error goes to.

#![allow(clippy::disallowed_methods, reason = "the tests write what the stores read")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lock_exporter::location::Location;
use lock_exporter::scan::ErrorClass;
use lock_exporter::secret::{EnvSpec, Environment, PasswordSpec, Secret};
use lock_exporter::store::{self, BACKENDS, Entry, EntryKind, Listing, ReadStore, StoreErrorKind};
use lock_exporter::target::ResticSpec;
use lock_exporter::telemetry::Telemetry;
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::fault_server::{Bucket, FaultServer, Reply, Seen};

mod cloud;
mod credentials;
mod discovery;
mod every_request;
mod everywhere;
mod faults;
mod hangs;
mod rclone;
mod rest;
mod server;
mod sftp;
mod signed;

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// For servers that never answer: the tests wait for it.
const SHORT: Duration = Duration::from_millis(800);

const KEY: (&str, &str) = ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "pl4nted+secret/key");
const TOKEN: (&str, &str) = ("AWS_SESSION_TOKEN", "pl4nted-token==");

/// A page of S3's that lists nothing and is the whole.
const EMPTY: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";

struct Opened {
    store: Arc<dyn ReadStore>,
    telemetry: Arc<Telemetry>,
}

impl Opened {
    /// Requests of one operation and how many of them failed, as on /metrics.
    fn requests(&self, backend: &str, operation: &str) -> (f64, f64) {
        let value = |metric: &str| {
            let families = self.telemetry.registry().gather();
            let family = families.iter().find(|f| f.name() == metric).expect("is registered");
            let labels = [("backend", backend), ("operation", operation)];
            let series = family.get_metric().iter().find(|series| {
                labels.iter().all(|(name, value)| {
                    series.get_label().iter().any(|l| l.name() == *name && l.value() == *value)
                })
            });
            series.map_or(0., |series| series.get_counter().get_value())
        };
        (
            value("lock_exporter_store_requests_total"),
            value("lock_exporter_store_request_failures_total"),
        )
    }
}

struct Case<'a> {
    repository: &'a str,
    variables: &'a [(&'a str, &'a str)],
    options: &'a [(&'a str, &'a str)],
    timeout: Duration,
    cacert: Option<&'a str>,
    insecure_tls: bool,
}

impl<'a> Case<'a> {
    fn of(repository: &'a str) -> Self {
        Self {
            repository,
            variables: &[KEY, SECRET],
            options: &[],
            timeout: LIMIT,
            cacert: None,
            insecure_tls: false,
        }
    }

    fn open(&self) -> Result<Opened, store::StoreError> {
        let environment = Environment::only(
            self.variables.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))),
        );
        let spec = ResticSpec {
            repository: Location::parse(self.repository).expect("is a location"),
            password: PasswordSpec::Inherit,
            env: EnvSpec::default(),
            options: self.options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            key_hint: None,
            cacert: self.cacert.iter().map(Into::into).collect(),
            insecure_tls: self.insecure_tls,
        };
        let backends: Vec<_> = BACKENDS.iter().map(|backend| backend.name).collect();
        let telemetry = Arc::new(Telemetry::new(&["restic"], &backends));
        let store = store::open(&spec, &environment, self.timeout, &telemetry)?;
        Ok(Opened { store, telemetry })
    }
}

fn names(listing: &Listing) -> BTreeMap<&str, (EntryKind, u64)> {
    let all = listing.entries.iter();
    all.map(|entry| (entry.name.as_str(), (entry.kind, entry.size))).collect()
}

fn id(number: usize) -> String {
    format!("{number:064x}")
}

/// What a backend can tell.
#[derive(Clone, Copy)]
struct Can {
    /// When a file was written.
    times: bool,
    /// What folders there are.
    folders: bool,
    /// Which names in a folder are folders.
    kinds: bool,
    /// Read files whose names are no ids.
    odd_names: bool,
    /// Find files below a folder by the last part of their names, and as what.
    below: Option<EntryKind>,
}

const EVERYTHING: Can =
    Can { times: true, folders: true, kinds: true, odd_names: true, below: None };

/// What every store must do with `config`, `keys/` and `locks/` as [`fixture`] has them.
async fn behaves(store: &dyn ReadStore, can: Can) {
    let locks = store.list("locks").await.expect("lists");
    let (file, folder) = (EntryKind::File, EntryKind::Folder);
    let (full, empty, temporary) = (id(1), id(2), format!("{}-tmp-123", id(3)));
    let mut found = names(&locks);
    if can.kinds {
        assert_eq!(found.remove("sub").map(|(kind, _)| kind), Some(folder));
    } else {
        found.remove("sub");
    }
    if !can.odd_names {
        assert!(found.remove("ünï #%25&+ *").is_none_or(|(kind, _)| kind == file));
    }
    let mut want = BTreeMap::from([
        (full.as_str(), (file, 7)),
        (empty.as_str(), (file, 0)),
        (temporary.as_str(), (file, 1)),
    ]);
    let deeper = id(4);
    if let Some(kind) = can.below {
        want.insert(&deeper, (kind, 1));
    }
    if can.odd_names {
        want.insert("ünï #%25&+ *", (file, 1));
    }
    assert_eq!(found, want);
    let timed = |entry: &Entry| entry.modified_at.is_some() == can.times;
    assert!(locks.entries.iter().all(|e| e.kind != file || timed(e)));
    let readable = [(full.as_str(), true), ("ünï #%25&+ *", can.odd_names)];
    for (name, _) in readable.into_iter().filter(|(_, readable)| *readable) {
        let path = format!("locks/{name}");
        let entry = store.stat(&path).await.expect("is there");
        assert_eq!((entry.name.as_str(), entry.kind), (name, file));
        let content = store.read(&path, entry.size).await.expect("reads");
        assert_eq!(content.len() as u64, entry.size);
    }
    assert_eq!(store.stat("config").await.map(|entry| entry.size), Ok(6));
    assert_eq!(store.read(&format!("locks/{full}"), 7).await, Ok(Bytes::from_static(b"content")));
    let error = store.read(&format!("locks/{full}"), 6).await.expect_err("is too large");
    assert_eq!(error.kind, StoreErrorKind::TooLarge);
    assert_eq!(store.read(&format!("locks/{empty}"), 6).await, Ok(Bytes::new()));

    let missing = format!("locks/{}", id(9));
    for error in [
        store.read(&missing, 9).await.map(drop).expect_err("is missing"),
        store.stat(&missing).await.map(drop).expect_err("is missing"),
    ] {
        assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
        assert!(error.doing.ends_with(&missing), "{error}");
    }
    assert_eq!(store.list("key").await, Ok(Listing::default()), "a missing folder is empty");
    let folders = store.folders("").await.expect("lists").map(BTreeSet::from_iter);
    let want = BTreeSet::from(["keys".into(), "locks".into()]);
    assert_eq!(folders, can.folders.then_some(want));
    let error = store.read("locks/../config", 9).await.expect_err("leads out");
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Internal));
}

fn fixture() -> Vec<(String, &'static [u8])> {
    vec![
        ("config".into(), b"config"),
        (format!("keys/{}", id(7)), b"key"),
        (format!("locks/{}", id(1)), b"content"),
        (format!("locks/{}", id(2)), b""),
        (format!("locks/{}-tmp-123", id(3)), b"x"),
        (format!("locks/sub/{}", id(4)), b"x"),
        ("locks/ünï #%25&+ *".into(), b"x"),
    ]
}

fn make_folder(root: &Path) {
    for (name, content) in fixture() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        std::fs::write(path, content).expect("writes");
    }
}

#[tokio::test]
async fn a_folder_behaves() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("bäckup mit Leerzeichen/a%20b#c");
    make_folder(&root);
    let opened = Case::of(root.to_str().expect("UTF-8")).open().expect("opens");
    behaves(&*opened.store, EVERYTHING).await;
    assert_eq!(opened.requests("local", "list"), (3., 0.));
    assert_eq!(opened.requests("local", "stat"), (4., 1.));
    assert_eq!(opened.requests("local", "get"), (6., 2.));
}

#[tokio::test]
async fn a_bucket_in_memory_behaves() {
    for (prefix, page) in [("", 1000), ("bäckup/repo", 1000), ("a b/c+d%20", 2)] {
        let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let mut bucket =
            Bucket::of(fixture().into_iter().map(|(key, body)| (format!("{start}{key}"), body)));
        bucket.page = page;
        let server = FaultServer::start(move |seen| bucket.reply(seen)).await;
        let host = server.host();
        // Twice decoded or encoded it would be another prefix.
        let prefix = prefix.replace('%', "%25");
        let repository = format!("s3:http://{host}/bucket/{prefix}");
        behaves(&*Case::of(&repository).open().expect("opens").store, EVERYTHING).await;
    }
}

struct Moto {
    host: String,
    bucket: String,
    writer: Box<dyn ObjectStore>,
}

impl Moto {
    /// A bucket of its own for each test.
    async fn bucket(name: &str) -> Self {
        let host = std::env::var("S3_ENDPOINT")
            .expect("S3_ENDPOINT must name a moto server, as tests/run starts one");
        let host = host.trim_start_matches("http://").to_owned();
        let bucket = format!("{name}-{}", std::process::id());
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new();
        let url = format!("http://{host}/{bucket}");
        let made = client.put(url).send().await.expect("moto answers");
        assert!(made.status().is_success(), "{made:?}");
        let writer = AmazonS3Builder::new()
            .with_endpoint(format!("http://{host}"))
            .with_allow_http(true)
            .with_bucket_name(&bucket)
            .with_access_key_id("writer")
            .with_secret_access_key("writer")
            .build()
            .expect("is complete");
        Self { host, bucket, writer: Box::new(writer) }
    }

    async fn put(&self, key: &str, content: &'static [u8]) {
        let path = object_store::path::Path::parse(key).expect("is a key");
        self.writer.put(&path, content.into()).await.expect("writes");
    }

    /// A key that `object_store` would not write.
    async fn put_odd(&self, escaped: &str) {
        let url = format!("http://{}/{}/{escaped}", self.host, self.bucket);
        let put = reqwest::Client::new().put(url).send().await.expect("moto answers");
        assert!(put.status().is_success(), "{put:?}");
    }

    fn repository(&self, prefix: &str) -> String {
        format!("s3:http://{}/{}/{prefix}", self.host, self.bucket)
    }

    /// Requests for this bucket in the server's own log.
    fn lines(&self) -> Vec<String> {
        let log = std::env::var("S3_LOG").expect("S3_LOG must name moto's log");
        let log = std::fs::read_to_string(log).expect("reads moto's log");
        let path = format!("/{}", self.bucket);
        let ours = |line: &&str| {
            let rest = line.split_once(' ').and_then(|(_, rest)| rest.strip_prefix(&path));
            rest.is_some_and(|rest| rest.starts_with(['/', '?']))
        };
        log.lines().filter(ours).map(str::to_owned).collect()
    }

    /// The same by method and whether they list.
    fn log(&self) -> Vec<(String, bool)> {
        let lines = self.lines();
        let requests = lines.iter().filter_map(|line| {
            let (method, rest) = line.split_once(' ')?;
            Some((method.to_owned(), rest.contains("list-type=2")))
        });
        requests.collect()
    }
}

#[tokio::test]
async fn a_real_bucket_behaves() {
    let moto = Moto::bucket("behaves").await;
    for prefix in ["", "bäckup/repo"] {
        let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        for (key, content) in fixture() {
            moto.put(&format!("{start}{key}"), content).await;
        }
        let repository = moto.repository(prefix);
        let opened = Case::of(&repository).open().expect("opens");
        behaves(&*opened.store, EVERYTHING).await;
        assert_eq!(opened.requests("s3", "list"), (3., 0.));
        assert_eq!(opened.requests("s3", "stat"), (4., 1.));
        // An answer that is too large is a good one to S3.
        assert_eq!(opened.requests("s3", "get"), (6., 1.));
    }
    let made_by_us = moto.log().into_iter().filter(|(method, _)| method != "PUT");
    let (mut lists, mut heads, mut gets) = (0, 0, 0);
    for (method, list) in made_by_us {
        match (method.as_str(), list) {
            ("GET", true) => lists += 1,
            ("HEAD", false) => heads += 1,
            ("GET", false) => gets += 1,
            other => panic!("a monitor that only reads sent {other:?}"),
        }
    }
    assert_eq!((lists, heads, gets), (6, 8, 12), "as we count them ourselves");
}

#[tokio::test]
async fn odd_keys_and_markers_hide_nothing_in_a_real_bucket() {
    let moto = Moto::bucket("odd").await;
    let (first, second) = (id(1), id(0xff));
    for name in [&first, &second] {
        moto.put(&format!("repo/locks/{name}"), b"content").await;
    }
    for odd in ["repo/", "repo/locks/", "repo/locks//0a", "repo/locks/0b%07c", "repo/locks/sub/"] {
        moto.put_odd(odd).await;
    }
    let opened = Case::of(&moto.repository("repo")).open().expect("opens");
    let listing = opened.store.list("locks").await.expect("lists");
    let found = names(&listing);
    assert_eq!(found[first.as_str()], (EntryKind::File, 7));
    assert_eq!(found[second.as_str()], (EntryKind::File, 7));
    assert_eq!(found["sub"].0, EntryKind::Folder);
    assert_eq!(found.len(), 3, "{found:?}");
    let odd: BTreeSet<_> = listing.odd.iter().map(String::as_str).collect();
    assert_eq!(odd, BTreeSet::from(["/", "0b\u{7}c"]));
}

#[tokio::test]
async fn a_missing_bucket_is_not_found_and_never_empty() {
    let moto = Moto::bucket("there").await;
    let missing = Moto { bucket: "not-there".into(), ..moto };
    let listing = Case::of(&missing.repository("repo")).open().expect("opens");
    let error = listing.store.list("locks").await.expect_err("is missing");
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
    assert!(error.cause.contains("NoSuchBucket"), "{error}");
}

#[tokio::test]
async fn every_one_of_2500_locks_is_seen_over_three_pages() {
    let keys = (0..2500).map(|number| (format!("repo/locks/{}", id(number)), &b"x"[..]));
    let bucket = Bucket::of(keys);
    let server = FaultServer::start(move |seen| bucket.reply(seen)).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let opened = Case::of(&repository).open().expect("opens");
    let listing = opened.store.list("locks").await.expect("lists");
    let found: BTreeSet<_> = listing.entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(found, (0..2500).map(id).collect());
    assert_eq!(server.seen().len(), 3);
    assert_eq!(opened.requests("s3", "list"), (3., 0.));
}

#[tokio::test]
async fn variables_and_options_are_restics() {
    let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let anonymous = [("s3.unsafe-anonymous-auth", "true")];
    let region = [("s3.region", "x-1"), ("s3.bucket-lookup", "path"), ("local.layout", "x")];
    for (variables, options, signed) in [
        (&[KEY, SECRET][..], &[][..], "AKIAEXAMPLE/"),
        (&[("AWS_ACCESS_KEY", "old"), ("AWS_SECRET_KEY", "x")], &[], "old/"),
        (&[KEY, SECRET], &region, "/x-1/s3/"),
        (&[], &anonymous, ""),
    ] {
        let opened = Case { variables, options, ..Case::of(&repository) }.open().expect("opens");
        opened.store.list("locks").await.expect("lists");
        let last = server.seen().pop().expect("was asked");
        assert!(last.authorization.contains(signed), "{last:?}");
        assert_eq!(last.authorization.is_empty(), signed.is_empty(), "{last:?}");
        assert!(last.target.starts_with("/bucket?"), "{last:?}");
        assert!(last.target.contains("prefix=repo%2Flocks%2F"), "{last:?}");
    }
    let config = StoreErrorKind::Failed(ErrorClass::Config);
    for (variables, options, word) in [
        (&[KEY][..], &[][..], "AWS_SECRET_ACCESS_KEY is not"),
        (&[KEY, SECRET], &[("s3.bucket-lookup", "x")][..], "s3.bucket-lookup"),
        (&[KEY, SECRET], &[("s3.bucket-lookupp", "dns")], "no such option"),
        (&[KEY, SECRET], &[("s3.region", "eu west\u{e9}")], "is no region"),
        (&[KEY, SECRET, ("AWS_DEFAULT_REGION", "a/b")], &[], "is no region"),
        (&[KEY, SECRET], &[("s3.unsafe-anonymous-auth", "maybe")], "s3.unsafe-anonymous-auth"),
    ] {
        let error = Case { variables, options, ..Case::of(&repository) }.open().err();
        let error = error.expect("cannot work");
        assert_eq!(error.kind, config);
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(server.seen().len(), 4, "what cannot work is not tried");
    let colon = format!("s3:http://{}/buc:ket/repo", server.host());
    let dns = [("s3.bucket-lookup", "dns")];
    let error = Case { options: &dns, ..Case::of(&colon) }.open().err().expect("cannot work");
    assert!(error.advice.contains("path"), "{error:?}");
    let opened = Case::of(&colon).open().expect("opens");
    opened.store.list("locks").await.expect("is fine in a path");
}

/// A thousand repositories on one server need no thousand connections.
#[tokio::test]
async fn targets_of_one_server_share_a_connection() {
    let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
    let repositories =
        ["a", "b", "c"].map(|name| format!("s3:http://{}/bucket/{name}", server.host()));
    let opened: Vec<_> =
        repositories.iter().map(|at| Case::of(at).open().expect("opens")).collect();
    for opened in &opened {
        opened.store.list("locks").await.expect("lists");
        assert_eq!(opened.requests("s3", "list"), (1., 0.), "each is counted for itself");
    }
    assert_eq!(server.connections(), 1);
    let patient = Case { timeout: LIMIT * 2, ..Case::of(&repositories[0]) };
    patient.open().expect("opens").store.list("locks").await.expect("lists");
    assert_eq!(server.connections(), 2, "other limits, other client");
}

/// A key that may only list the repository's own prefix and read is enough.
#[tokio::test]
async fn a_key_that_may_only_read_its_prefix_is_enough() {
    let bucket = Bucket::of(fixture().into_iter().map(|(key, body)| (format!("repo/{key}"), body)));
    let script = move |seen: &Seen| {
        let lists = seen.target.starts_with("/bucket?");
        let inside = seen.target.contains("prefix=repo%2F") || seen.target.contains("/repo/");
        if !matches!(seen.method.as_str(), "GET" | "HEAD") || !inside {
            return Reply::refusal(403, "AccessDenied", "Access Denied");
        }
        if !lists && seen.target.ends_with(&id(1)) {
            return Reply::refusal(403, "InvalidObjectState", "in GLACIER");
        }
        bucket.reply(seen)
    };
    let server = FaultServer::start(script).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let opened = Case::of(&repository).open().expect("opens");
    assert_eq!(opened.store.list("locks").await.map(|l| l.entries.len()), Ok(5));
    assert_eq!(opened.store.stat("config").await.map(|entry| entry.size), Ok(6));
    assert_eq!(opened.store.read("config", 6).await, Ok(Bytes::from_static(b"config")));
    let archived = opened.store.read(&format!("locks/{}", id(1)), 9).await.expect_err("is away");
    assert_eq!(archived.kind, StoreErrorKind::Archived, "{archived}");
    assert!(!format!("{:?}", opened.store).contains("pl4nted"));
}
