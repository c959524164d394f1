//! `rest:` against restic's own server and against scripts. `REST_SERVER` names the program.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{Server, free_port, program};
use super::*;

const CAN: Can = Can { times: false, folders: false, kinds: false, odd_names: false, below: None };

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

/// rest-server over a folder, with some arguments.
pub fn rest_server(folder: &Path, arguments: &[&str]) -> (Server, u16) {
    let port = free_port();
    let log = folder.with_extension("log");
    let mut command = Command::new(program("REST_SERVER"));
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--path"]).arg(folder).args(arguments);
    (Server::on_port(&mut command, &log, port), port)
}

fn case<'a>(repository: &'a str, variables: &'a [(&'a str, &'a str)]) -> Case<'a> {
    Case { variables, ..Case::of(repository) }
}

async fn list(case: Case<'_>) -> Result<Listing, store::StoreError> {
    case.open().expect("opens").store.list("locks").await
}

fn fails(
    listing: Result<Listing, store::StoreError>,
    class: ErrorClass,
    words: &[&str],
) -> store::StoreError {
    let error = listing.expect_err("must fail");
    assert_eq!(error.kind.class(), class, "{error}");
    let shown = format!("{error} {}", error.advice);
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(!format!("{error:?}").contains("pl4nted"), "{error:?}");
    error
}

#[tokio::test]
async fn a_rest_server_behaves() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    for repository in ["", "repo", "a b/c+d"] {
        make_folder(&root.join(repository));
    }
    let requests = dir.path().join("requests");
    let request_log = requests.to_str().expect("UTF-8");
    for append_only in [false, true] {
        let mut arguments = vec!["--no-auth", "--log", request_log];
        arguments.extend(append_only.then_some("--append-only"));
        let (_server, port) = rest_server(&root, &arguments);
        for path in ["", "repo", "a%20b/c+d/"] {
            let repository = format!("rest:http://127.0.0.1:{port}/{path}");
            let opened = case(&repository, &[]).open().expect("opens");
            behaves(&*opened.store, CAN).await;
            // The protocol has no `key`, so it is not asked for.
            assert_eq!(opened.requests("rest", "list"), (1., 0.));
            assert_eq!(opened.requests("rest", "stat"), (3., 1.));
            assert_eq!(opened.requests("rest", "get"), (5., 2.));
        }
        let missing = format!("rest:http://127.0.0.1:{port}/none");
        fails(list(case(&missing, &[])).await, ErrorClass::NotFound, &["no repository", "/none/"]);
    }
    let log = std::fs::read_to_string(requests).expect("reads the log");
    assert!(log.contains("GET /repo/locks/"), "{log}");
    for verb in ["POST", "DELETE", "PUT", "PATCH"] {
        assert!(!log.contains(&format!("\"{verb} ")), "a monitor that only reads sent {verb}");
    }
}

#[tokio::test]
async fn a_rest_server_asks_for_users_and_certificates() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    make_folder(&root.join("ann"));
    make_folder(&root.join("bob"));
    let users = dir.path().join("users");
    let made = Command::new("htpasswd")
        .args(["-nbB", "ann", "pl4nted/word"])
        .output()
        .expect("htpasswd of apache2-utils runs");
    std::fs::write(&users, made.stdout).expect("writes");
    let users = users.to_str().expect("UTF-8");
    let (certificate, key) = (format!("{TLS}/server.pem"), format!("{TLS}/server.key"));
    let arguments = ["--htpasswd-file", users, "--private-repos", "--tls", "--tls-cert"];
    let arguments = [&arguments[..], &[certificate.as_str(), "--tls-key", &key]].concat();
    let (_server, port) = rest_server(&root, &arguments);
    let host = format!("127.0.0.1:{port}");
    let ca = format!("{TLS}/ca.pem");
    let with_ca = |repository, variables| Case { cacert: Some(&ca), ..case(repository, variables) };
    let user = ("RESTIC_REST_USERNAME", "ann");
    let both = [user, ("RESTIC_REST_PASSWORD", "pl4nted/word")];

    let plain = format!("rest:https://{host}/ann/");
    let opened = with_ca(&plain, &both).open().expect("opens");
    behaves(&*opened.store, CAN).await;
    assert!(!format!("{:?}", opened.store).contains("pl4nted"));
    let in_string = format!("rest:https://ann:pl4nted%2Fword@{host}/ann/");
    assert_eq!(
        list(with_ca(&in_string, &[])).await.map(|found| found.entries.is_empty()),
        Ok(false)
    );

    let auth = ErrorClass::Auth;
    fails(list(with_ca(&plain, &[])).await, auth, &["401", "RESTIC_REST_USERNAME"]);
    // What the string says counts, even if it is only half of it.
    let half = format!("rest:https://ann@{host}/ann/");
    fails(list(with_ca(&half, &both)).await, auth, &["401"]);
    let wrong = [user, ("RESTIC_REST_PASSWORD", "pl4nted")];
    fails(list(with_ca(&plain, &wrong)).await, auth, &["401"]);
    let other = format!("rest:https://{host}/bob/");
    fails(list(with_ca(&other, &both)).await, auth, &["--private-repos"]);
    let untrusted = list(case(&plain, &both)).await;
    fails(untrusted, ErrorClass::Tls, &["certificate", "cacert"]);
    let insecure = Case { insecure_tls: true, ..case(&plain, &both) };
    assert!(list(insecure).await.is_ok());
    let over_http = format!("rest:http://{host}/ann/");
    list(case(&over_http, &both)).await.expect_err("speaks TLS only");
}

#[tokio::test]
async fn a_rest_server_answers_through_a_socket() {
    let dir = tempfile::tempdir().expect("a folder");
    make_folder(&dir.path().join("root/repo"));
    let socket = dir.path().join("rest.sock");
    let mut command = Command::new(program("REST_SERVER"));
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    command.arg("--no-auth").arg("--path").arg(dir.path().join("root"));
    let log = dir.path().join("log");
    let server = Server::start(&mut command, &log, || UnixStream::connect(&socket).is_ok());
    let repository = format!("rest:http+unix://{}:/repo/", socket.display());
    behaves(&*case(&repository, &[]).open().expect("opens").store, CAN).await;
    drop(server);
    let missing = format!("rest:http+unix://{}.not:/repo/", socket.display());
    fails(list(case(&missing, &[])).await, ErrorClass::Network, &["No such file", ".not:/repo/"]);
}

#[tokio::test]
async fn a_stopped_rest_server_is_a_timeout_and_a_killed_one_is_back_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    make_folder(&root);
    let (mut server, port) = rest_server(&root, &["--no-auth"]);
    let repository = format!("rest:http://127.0.0.1:{port}/");
    let opened = Case { timeout: SHORT, ..case(&repository, &[]) }.open().expect("opens");
    opened.store.list("locks").await.expect("lists");
    server.freeze();
    fails(opened.store.list("locks").await, ErrorClass::Timeout, &["list locks"]);
    server.thaw();
    server.kill();
    fails(opened.store.list("locks").await, ErrorClass::Network, &["refused"]);
    let mut command = Command::new(program("REST_SERVER"));
    command.args(["--no-auth", "--listen", &format!("127.0.0.1:{port}"), "--path"]).arg(&root);
    let _again = Server::on_port(&mut command, &dir.path().join("again.log"), port);
    opened.store.list("locks").await.expect("lists again");
}

/// As many as a crash loop leaves, behind a real server.
#[tokio::test]
async fn every_one_of_1500_locks_is_listed_by_one_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    make_folder(&root);
    for number in 100..1600 {
        symlink(root.join("config"), root.join("locks").join(id(number))).expect("makes a name");
    }
    let (_server, port) = rest_server(&root, &["--no-auth"]);
    let repository = format!("rest:http://127.0.0.1:{port}/");
    let opened = case(&repository, &[]).open().expect("opens");
    let listing = opened.store.list("locks").await.expect("lists");
    let found = names(&listing);
    assert!((100..1600).all(|number| found.contains_key(id(number).as_str())));
    assert_eq!(opened.requests("rest", "list"), (1., 0.));
    assert_eq!(opened.requests("rest", "stat"), (0., 0.));
}

fn json(body: &str) -> Reply {
    let headers = vec![("content-type", "application/vnd.x.restic.rest.v2".into())];
    Reply::Answer(200, headers, body.to_owned().into())
}

fn status(status: u16) -> Reply {
    Reply::Answer(status, vec![], Bytes::new())
}

/// Lists the locks of a scripted server.
async fn list_from(
    script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    timeout: Duration,
) -> (Result<Listing, store::StoreError>, Vec<Seen>) {
    let server = FaultServer::start(script).await;
    let repository = format!("rest:http://ann:pl4nted@{}/repo", server.host());
    let listing = list(Case { timeout, ..case(&repository, &[]) }).await;
    (listing, server.seen())
}

#[tokio::test]
async fn requests_are_those_that_the_servers_want() {
    let (listing, seen) = list_from(|_| json("[]"), LIMIT).await;
    assert_eq!(listing, Ok(Listing::default()));
    let [request] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/repo/locks/"));
    assert_eq!(request.accept, "application/vnd.x.restic.rest.v2", "compared as a whole");
    assert_eq!(request.cache_control, "no-cache");
    assert_eq!(request.authorization, "Basic YW5uOnBsNG50ZWQ=", "without being asked");
}

#[tokio::test]
async fn a_listing_that_was_not_found_once_is_looked_at_again() {
    let asked = AtomicUsize::new(0);
    let script = move |seen: &Seen| match seen.target.ends_with("/locks/") {
        true if asked.fetch_add(1, Ordering::SeqCst) == 0 => status(404),
        true => json(&format!(r#"[{{"name":"{}","size":137}}]"#, id(1))),
        false => Reply::Answer(200, vec![("content-length", "155".into())], Bytes::new()),
    };
    let (listing, seen) = list_from(script, LIMIT).await;
    assert_eq!(
        names(&listing.expect("lists")),
        BTreeMap::from([(&*id(1), (EntryKind::File, 137))])
    );
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// rest-server's listing in the second version fails whenever a file goes meanwhile.
#[tokio::test]
async fn a_folder_in_constant_change_is_listed_without_sizes() {
    let script = move |seen: &Seen| match (seen.method.as_str(), seen.target.as_str()) {
        ("HEAD", "/repo/config") => {
            Reply::Answer(200, vec![("content-length", "155".into())], Bytes::new())
        }
        ("HEAD", target) if target.ends_with(&id(1)) => {
            Reply::Answer(200, vec![("content-length", "137".into())], Bytes::new())
        }
        ("HEAD", _) => status(404),
        ("GET", "/repo/locks/") if seen.accept.ends_with("v1") => {
            json(&format!(r#"["{}","{}",".DS_Store"]"#, id(1), id(2)))
        }
        _ => status(404),
    };
    let (listing, seen) = list_from(script, LIMIT).await;
    let listing = listing.expect("lists");
    let want = [(&*id(1), (EntryKind::File, 137)), (".DS_Store", (EntryKind::File, 0))];
    assert_eq!(names(&listing), BTreeMap::from(want), "what is gone is left out");
    assert!(!seen.iter().any(|seen| seen.target.contains("DS_Store")), "is no name to ask for");
}

#[tokio::test]
async fn an_old_server_is_read_by_names() {
    let size = |size: &str| Reply::Answer(200, vec![("content-length", size.into())], Bytes::new());
    let script = move |seen: &Seen| match seen.method.as_str() {
        "HEAD" => size(if seen.target.ends_with(&id(1)) { "0" } else { "137" }),
        _ => Reply::Answer(
            200,
            vec![("content-type", "application/vnd.x.restic.rest.v1".into())],
            format!(r#"["{}","{}"]"#, id(1), id(2)).into(),
        ),
    };
    let (listing, _) = list_from(script, LIMIT).await;
    let want = [(&*id(1), (EntryKind::File, 0)), (&*id(2), (EntryKind::File, 137))];
    assert_eq!(names(&listing.expect("lists")), BTreeMap::from(want));
}

#[tokio::test]
async fn no_answer_but_a_fresh_listing_is_believed() {
    let html = "<!DOCTYPE html><html>log in</html>";
    let aged = |age: &'static str| Reply::Answer(200, vec![("age", age.into())], "[]".into());
    let answer = |body: &str| Reply::Answer(200, vec![], body.to_owned().into());
    type Script = Box<dyn Fn() -> Reply + Send + Sync>;
    let cases: Vec<(Script, ErrorClass, &str, usize)> = vec![
        (Box::new(move || answer(html)), ErrorClass::Protocol, "web page", 1),
        (Box::new(move || aged("30")), ErrorClass::Protocol, "cache", 1),
        (Box::new(move || answer("{}")), ErrorClass::Protocol, "no listing", 1),
        (Box::new(|| status(404)), ErrorClass::NotFound, "no repository", 2),
        (Box::new(|| status(405)), ErrorClass::Protocol, "405", 1),
        (Box::new(|| status(401)), ErrorClass::Auth, "RESTIC_REST_PASSWORD", 1),
        (Box::new(|| status(403)), ErrorClass::Permission, "403", 1),
        (Box::new(|| status(500)), ErrorClass::Other, "500", 3),
        (Box::new(|| status(503)), ErrorClass::Throttled, "less often", 3),
        (
            Box::new(|| Reply::Answer(302, vec![("location", "http://x/".into())], Bytes::new())),
            ErrorClass::Config,
            "elsewhere",
            1,
        ),
    ];
    for (script, class, word, requests) in cases {
        let (listing, seen) = list_from(move |_| script(), LIMIT).await;
        fails(listing, class, &[word]);
        assert_eq!(seen.len(), requests, "{word}");
    }
    let (listing, _) = list_from(move |_| aged("0"), LIMIT).await;
    assert_eq!(listing, Ok(Listing::default()));
    for script in [|| Reply::Silent, || Reply::Trickle] {
        let (listing, _) = list_from(move |_| script(), SHORT).await;
        fails(listing, ErrorClass::Timeout, &["list locks"]);
    }
}

#[tokio::test]
async fn a_file_comes_whole_or_not_at_all() {
    let part = |range: &'static str| {
        Reply::Answer(206, vec![("content-range", range.into())], Bytes::from_static(b"content"))
    };
    for (reply, want) in [
        (part("bytes 0-6/7"), Ok(())),
        (part("bytes 1-7/8"), Err("a part of the file")),
        (Reply::xml(200, "<html>no</html>"), Err("web page")),
    ] {
        let reply = std::sync::Mutex::new(Some(reply));
        let script = move |_: &Seen| reply.lock().expect("is whole").take().unwrap_or(status(404));
        let server = FaultServer::start(script).await;
        let repository = format!("rest:http://{}/", server.host());
        let read = case(&repository, &[]).open().expect("opens").store.read("config", 99).await;
        match want {
            Ok(()) => assert_eq!(read, Ok(Bytes::from_static(b"content"))),
            Err(word) => {
                let error = read.expect_err(word);
                assert_eq!(error.kind.class(), ErrorClass::Protocol, "{error}");
                assert!(error.to_string().contains(word), "{error}");
            }
        }
    }
}

/// As every other program: the proxy of the process's environment, which a test of this process
/// could not set.
#[tokio::test]
async fn requests_go_through_the_proxy_that_the_environment_names() {
    let proxy = FaultServer::start(|_| status(404)).await;
    let url = format!("http://{}", proxy.host());
    let check = |bypass: &str| {
        tokio::process::Command::new(env!("CARGO_BIN_EXE_lock_exporter"))
            .args(["check", "-r", "rest:http://backup.invalid:8000/repo", "--output=json"])
            .env_clear()
            .envs([("http_proxy", url.as_str()), ("no_proxy", bypass)])
            .output()
    };
    check("other.invalid").await.expect("runs");
    let seen = proxy.seen();
    let meant = |seen: &Seen| seen.target.starts_with("http://backup.invalid:8000/repo/");
    assert!(!seen.is_empty() && seen.iter().all(meant), "{seen:?}");
    let past = check("backup.invalid").await.expect("runs");
    assert_eq!(proxy.seen().len(), seen.len(), "not for hosts that it names");
    let said = String::from_utf8_lossy(&past.stdout);
    assert!(said.contains("\"network\""), "{said}");
}
