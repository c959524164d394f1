//! `rclone:`, and `b2:` and `swift:` through it, with the rclone of this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::server::{descendants, ended, idle, signal, stop};
use super::*;

const CAN: Can = Can {
    times: false,
    folders: false,
    kinds: false,
    odd_names: true,
    below: Some(EntryKind::File),
};

/// rclone's configuration with one remote, `store`, that is a folder.
struct Remote {
    dir: tempfile::TempDir,
    config: String,
}

impl Remote {
    fn make() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let config = dir.path().join("rclone.conf");
        let root = dir.path().join("root");
        std::fs::create_dir_all(&root).expect("makes");
        let text = format!("[store]\ntype = alias\nremote = {}\n", root.display());
        std::fs::write(&config, text).expect("writes");
        Self { config: config.display().to_string(), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, repository: &str, options: &[(&str, &str)]) -> Opened {
        self.open_within(repository, options, LIMIT)
    }

    fn open_within(&self, repository: &str, options: &[(&str, &str)], timeout: Duration) -> Opened {
        let variables = [("RCLONE_CONFIG", self.config.as_str())];
        let case = Case { variables: &variables, options, timeout, ..Case::of(repository) };
        case.open().expect("opens")
    }

    /// The programs that serve this remote, by their environment.
    fn programs(&self) -> Vec<u32> {
        let ours = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.windows(self.config.len()).any(|part| part == self.config.as_bytes())
        };
        descendants(std::process::id()).into_iter().filter(ours).collect()
    }
}

fn expect(error: &store::StoreError, class: ErrorClass, words: &[&str]) {
    let shown = format!("{error} {}", error.advice);
    assert_eq!(error.kind.class(), class, "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(!format!("{error:?}").contains("pl4nted"), "{error:?}");
}

#[tokio::test]
async fn rclone_behaves() {
    let remote = Remote::make();
    make_folder(&remote.path("root/bäckup mit Leerzeichen/repo"));
    let opened = remote.open("rclone:store:bäckup mit Leerzeichen/repo", &[]);
    behaves(&*opened.store, CAN).await;
    assert_eq!(opened.requests("rclone", "list"), (1., 0.));
    assert_eq!(remote.programs().len(), 1);
    let again = remote.open("rclone:store:bäckup mit Leerzeichen/repo", &[]);
    again.store.list("locks").await.expect("lists");
    assert_eq!(remote.programs().len(), 1, "shared");
    drop((opened, again));
    while !remote.programs().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_repository_is_no_empty_one_to_a_look_at_config() {
    let remote = Remote::make();
    let opened = remote.open("rclone:store:none", &[]);
    assert_eq!(opened.store.list("locks").await, Ok(Listing::default()));
    let error = opened.store.stat("config").await.expect_err("is missing");
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
    assert!(!remote.path("root/none").exists(), "never made");
}

#[tokio::test]
async fn an_rclone_that_ends_or_hangs_is_started_anew() {
    let remote = Remote::make();
    make_folder(&remote.path("root/repo"));
    let opened = remote.open_within("rclone:store:repo", &[], Duration::from_secs(3));
    while opened.store.list("locks").await.is_err() {}
    let [first] = remote.programs()[..] else { panic!("not one program") };
    signal(first, rustix::process::Signal::KILL);
    opened.store.list("locks").await.expect("lists");
    let [second] = remote.programs()[..] else { panic!("not one program") };
    assert_ne!(first, second);
    stop(second);
    let error = opened.store.list("locks").await.expect_err("hangs");
    expect(&error, ErrorClass::Timeout, &["list locks", "rclone:store:repo"]);
    while opened.store.list("locks").await.is_err() {}
}

#[tokio::test]
async fn an_rclone_that_nobody_uses_is_ended_and_comes_back() {
    let remote = Remote::make();
    make_folder(&remote.path("root/repo"));
    let opened = remote.open("rclone:store:repo", &[]);
    opened.store.list("locks").await.expect("lists");
    let programs = remote.programs();
    assert_eq!(programs.len(), 1);
    idle().await;
    ended(&programs).await;
    opened.store.list("locks").await.expect("lists");
}

#[tokio::test]
async fn rclones_own_words_are_in_the_error() {
    let remote = Remote::make();
    let list = async |repository: &str, options: &[(&str, &str)]| {
        let opened = remote.open(repository, options);
        opened.store.list("locks").await.expect_err("must fail")
    };
    let error = list("rclone:other:repo", &[]).await;
    expect(&error, ErrorClass::Config, &["didn't find section", "listremotes"]);
    // What it is told in secret it says again, in quotes of its own.
    let error = list("rclone:other,pass=\"pl4nted:word\":repo", &[]).await;
    expect(&error, ErrorClass::Config, &["didn't find section", "rclone:other:repo"]);
    let error = list("rclone:store:repo", &[("rclone.args", "serve restic --no-such")]).await;
    expect(&error, ErrorClass::Config, &["unknown flag", "rclone.args"]);
    let missing = [("rclone.program", "/nonexistent/rclone")];
    let error = list("rclone:store:repo", &missing).await;
    expect(&error, ErrorClass::Config, &["/nonexistent/rclone", "Install the package rclone"]);
    let variables = [("B2_ACCOUNT_ID", "id"), ("B2_ACCOUNT_KEY", "pl4nted")];
    let case = Case { variables: &variables, options: &missing, ..Case::of("b2:bucket:x") };
    let error = case.open().expect("opens").store.list("locks").await.expect_err("is missing");
    expect(&error, ErrorClass::Config, &["package rclone", "s3.REGION.backblazeb2.com"]);
}

/// A program in rclone's place that tells what it was given, as a complaint.
#[tokio::test]
async fn secrets_of_b2_and_swift_are_on_no_command_line() {
    let remote = Remote::make();
    let (program, seen) = (remote.path("rclone"), remote.path("seen"));
    let script = format!("#!/bin/sh\n(echo \"$@\"; env) > {}\nexit 1\n", seen.display());
    std::fs::write(&program, script).expect("writes");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("is ours");
    let program = program.display().to_string();
    let options = [("rclone.program", program.as_str())];
    for (repository, variables, line, given) in [
        (
            "b2:bucket:/a/b",
            [("B2_ACCOUNT_ID", "id"), ("B2_ACCOUNT_KEY", "pl4nted")],
            "serve restic --stdio --b2-hard-delete lockexporter:bucket",
            "RCLONE_CONFIG_LOCKEXPORTER_KEY=pl4nted",
        ),
        (
            "swift:box:/a",
            [("OS_USERNAME", "ann"), ("OS_PASSWORD", "pl4nted")],
            "serve restic --stdio --b2-hard-delete lockexporter:box",
            "OS_PASSWORD=pl4nted",
        ),
    ] {
        let case = Case { variables: &variables, options: &options, ..Case::of(repository) };
        let opened = case.open().expect("opens");
        let error = opened.store.list("locks").await.expect_err("it only ends");
        expect(&error, ErrorClass::Other, &["without a word", case.repository]);
        assert!(!format!("{:?}", opened.store).contains("pl4nted"));
        let seen = std::fs::read_to_string(&seen).expect("was started");
        assert_eq!(seen.lines().next(), Some(line));
        assert!(seen.lines().any(|line| line == given), "{seen}");
    }
    let none = Case { variables: &[], ..Case::of("b2:bucket:x") }.open().err();
    expect(&none.expect("is incomplete"), ErrorClass::Config, &["B2_ACCOUNT_ID"]);
}

fn json(status: u16, body: String) -> Reply {
    Reply::Answer(status, vec![("content-type", "application/json".into())], body.into())
}

/// The service cannot be had for a test; rclone is real, and so is all that reaches it.
#[tokio::test]
async fn b2_is_logged_in_to_and_listed_with_restics_variables() {
    let address = Arc::<std::sync::OnceLock<String>>::default();
    let own = address.clone();
    let service = FaultServer::start(move |seen| {
        let url = format!("http://{}", own.get().map_or("", |host| host.as_str()));
        let method = seen.target.split(['/', '?']).nth(3).unwrap_or_default();
        match method {
            "b2_authorize_account" => json(
                200,
                format!(
                    r#"{{"accountId":"a","authorizationToken":"t","apiUrl":"{url}",
                    "downloadUrl":"{url}","minimumPartSize":5000000,"allowed":{{"bucketId":"b",
                    "bucketName":"bucket","capabilities":["listFiles","readFiles"]}}}}"#
                ),
            ),
            "b2_list_buckets" => json(
                200,
                r#"{"buckets":[{"bucketId":"b","accountId":"a","bucketName":"bucket",
                "bucketType":"allPrivate"}]}"#
                    .into(),
            ),
            "b2_list_file_names" => json(
                200,
                format!(
                    r#"{{"files":[{{"fileId":"f","fileName":"a/b/locks/{}","size":7,
                    "contentLength":7,"action":"upload","uploadTimestamp":1767225600000}}],
                    "nextFileName":null}}"#,
                    id(1)
                ),
            ),
            _ => json(400, r#"{"status":400,"code":"bad_request","message":"no"}"#.into()),
        }
    })
    .await;
    address.set(service.host()).expect("is set once");
    let arguments = format!("serve restic --stdio --b2-endpoint http://{}", service.host());
    let options = [("rclone.args", arguments.as_str())];
    let variables = [("B2_ACCOUNT_ID", "id"), ("B2_ACCOUNT_KEY", "pl4nted")];
    let case = Case { variables: &variables, options: &options, ..Case::of("b2:bucket:a/b") };
    let opened = case.open().expect("opens");
    let listing =
        opened.store.list("locks").await.unwrap_or_else(|e| panic!("{e}\n{:?}", service.seen()));
    assert_eq!(names(&listing)[&*id(1)], (EntryKind::File, 7));
    // `id:pl4nted` as RFC 7617 writes it.
    assert_eq!(service.seen()[0].authorization, "Basic aWQ6cGw0bnRlZA==");
}

/// As above: the service is a script.
#[tokio::test]
async fn swift_is_logged_in_to_and_listed_with_restics_variables() {
    let address = Arc::<std::sync::OnceLock<String>>::default();
    let own = address.clone();
    let service = FaultServer::start(move |seen| {
        let url = format!("http://{}/v1/store", own.get().map_or("", |host| host.as_str()));
        match (seen.method.as_str(), seen.target.split('?').next().unwrap_or_default()) {
            ("GET", "/auth/v1.0") => Reply::Answer(
                200,
                vec![("x-storage-url", url), ("x-auth-token", "token".into())],
                Bytes::new(),
            ),
            ("HEAD", "/v1/store/box") => Reply::Answer(204, vec![], Bytes::new()),
            ("GET", "/v1/store/box") if seen.target.contains("marker=a") => json(200, "[]".into()),
            ("GET", "/v1/store/box") => json(
                200,
                format!(
                    r#"[{{"name":"a/locks/{}","hash":"9e107d9d372bb6826bd81d3542a419d6","bytes":7,
                    "content_type":"application/octet-stream",
                    "last_modified":"2026-01-01T00:00:00.000000"}}]"#,
                    id(1)
                ),
            ),
            _ => Reply::Answer(404, vec![], Bytes::new()),
        }
    })
    .await;
    address.set(service.host()).expect("is set once");
    let auth = format!("http://{}/auth/v1.0", service.host());
    let variables = [("ST_AUTH", auth.as_str()), ("ST_USER", "ann"), ("ST_KEY", "pl4nted")];
    let case = Case { variables: &variables, ..Case::of("swift:box:/a") };
    let opened = case.open().expect("opens");
    let listing =
        opened.store.list("locks").await.unwrap_or_else(|e| panic!("{e}\n{:?}", service.seen()));
    assert_eq!(names(&listing)[&*id(1)], (EntryKind::File, 7));
}
