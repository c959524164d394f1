//! A second S3 server of another make, which checks signatures: `rclone serve s3` over a folder
//! (`S3_SIGNED` names an rclone that has it).

use std::process::Command;

use super::server::{Server, free_port, program};
use super::*;

/// Folders are real ones here, and a file's name cannot hold everything.
const CAN: Can = Can { odd_names: false, ..EVERYTHING };

const LOGIN: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "reader"), ("AWS_SECRET_ACCESS_KEY", "pl4nted+secret/key")];

struct Signed {
    dir: tempfile::TempDir,
    server: Server,
    port: u16,
}

impl Signed {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("data/bucket")).expect("makes");
        let port = free_port();
        let mut command = Command::new(program("S3_SIGNED"));
        command
            .args(["serve", "s3", "-vv", "--config", "/notfound", "--vfs-cache-mode", "off"])
            .args(["--dir-cache-time", "0s"])
            .args(["--auth-key", &format!("{},{}", LOGIN[0].1, LOGIN[1].1)])
            .args(["--addr", &format!("127.0.0.1:{port}")])
            .arg(dir.path().join("data"));
        let server = Server::on_port(&mut command, &dir.path().join("log"), port);
        Self { dir, server, port }
    }

    fn open(&self, prefix: &str, variables: &[(&str, &str)]) -> Opened {
        let repository = format!("s3:http://127.0.0.1:{}/{prefix}", self.port);
        Case { variables, ..Case::of(&repository) }.open().expect("opens")
    }
}

#[tokio::test]
async fn a_server_that_checks_signatures_behaves() {
    let signed = Signed::start();
    for prefix in ["bucket", "bucket/bäckup mit/a+b"] {
        make_folder(&signed.dir.path().join("data").join(prefix));
        let opened = signed.open(prefix, &LOGIN);
        behaves(&*opened.store, CAN).await;
        assert_eq!(opened.requests("s3", "list"), (3., 0.));
    }
    let log = signed.server.log();
    assert!(log.contains("LIST BUCKET"), "{log}");
    assert!(!log.contains("CREATE OBJECT") && !log.contains("DELETE"), "only read: {log}");
}

#[tokio::test]
async fn wrong_signatures_are_told() {
    let signed = Signed::start();
    make_folder(&signed.dir.path().join("data/bucket"));
    let wrong = [LOGIN[0], ("AWS_SECRET_ACCESS_KEY", "pl4nted and wrong")];
    let unknown = [("AWS_ACCESS_KEY_ID", "nobody"), LOGIN[1]];
    for (variables, prefix, class, code) in [
        (wrong, "bucket", ErrorClass::Auth, "SignatureDoesNotMatch"),
        (unknown, "bucket", ErrorClass::Auth, "InvalidAccessKeyId"),
        (LOGIN, "nobucket", ErrorClass::NotFound, "NoSuchBucket"),
    ] {
        let error = signed.open(prefix, &variables).store.list("locks").await.expect_err(code);
        assert_eq!(error.kind.class(), class, "{error}");
        assert!(error.to_string().contains(code), "{error}");
        assert!(!format!("{error:?}").contains("pl4nted"), "{error:?}");
    }
}

#[tokio::test]
async fn every_one_of_1500_locks_comes_in_two_pages() {
    let signed = Signed::start();
    let repository = signed.dir.path().join("data/bucket/repo");
    make_folder(&repository);
    for number in 100..1597 {
        std::fs::write(repository.join("locks").join(id(number)), b"x").expect("writes");
    }
    let opened = signed.open("bucket/repo", &LOGIN);
    let listing = opened.store.list("locks").await.expect("lists");
    let locks = listing.entries.iter().filter(|entry| entry.name.len() == 64);
    assert_eq!(locks.count(), 1499);
    assert_eq!(opened.requests("s3", "list"), (2., 0.));
}
