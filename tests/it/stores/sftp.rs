//! `sftp:` against a real OpenSSH server, started for each test; `sshd` must be installed.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::server::{Server, descendants, ended, free_port, idle, signal, stop};
use super::*;

/// As every backend, but restic looks at files only here.
const CAN: Can = Can { kinds: false, ..EVERYTHING };

pub struct Ssh {
    dir: tempfile::TempDir,
    server: Server,
    port: u16,
    starts: usize,
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn user() -> String {
    let id = Command::new("id").arg("-un").output().expect("id runs");
    String::from_utf8_lossy(&id.stdout).trim().to_owned()
}

fn daemon(dir: &Path, port: u16, log: &str) -> Server {
    // sshd wants to be called by its whole path.
    let mut command = Command::new("/usr/sbin/sshd");
    command.arg("-D").arg("-e").arg("-f").arg(dir.join("sshd_config"));
    Server::on_port(&mut command, &dir.join(log), port)
}

impl Ssh {
    /// A server with some more lines of configuration; `DIR` in them is its folder.
    pub fn start(more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path();
        std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).expect("is ours");
        let _ = std::fs::create_dir_all("/run/sshd");
        for name in ["host", "user", "other"] {
            let key = at.join(name);
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key));
        }
        let port = free_port();
        let shown = at.display();
        let subsystem =
            if more.contains("Subsystem") { "" } else { "Subsystem sftp internal-sftp" };
        let more = more.replace("DIR", &shown.to_string());
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nPidFile none\n\
             AuthorizedKeysFile {shown}/user.pub\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\n{subsystem}\n{more}\n"
        );
        std::fs::write(at.join("sshd_config"), config).expect("writes");
        let host = std::fs::read_to_string(at.join("host.pub")).expect("reads");
        let known = format!("[127.0.0.1]:{port} {host}");
        std::fs::write(at.join("known_hosts"), known).expect("writes");
        let server = daemon(at, port, "sshd.log");
        Self { dir, server, port, starts: 1 }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn url(&self, path: &str) -> String {
        let path = path.replace('%', "%25").replace('#', "%23");
        format!("sftp://{}@127.0.0.1:{}/{path}", user(), self.port)
    }

    /// Arguments that keep the machine's own ssh files out of it.
    pub fn arguments(&self, key: &str, known_hosts: &str) -> String {
        let at = self.dir.path().display();
        format!(
            "-F none -i {at}/{key} -o IdentitiesOnly=yes -o IdentityAgent=none \
             -o UserKnownHostsFile={at}/{known_hosts} -o GlobalKnownHostsFile=/dev/null \
             -o StrictHostKeyChecking=yes"
        )
    }

    fn open(&self, repository: &str, timeout: Duration) -> Opened {
        let arguments = self.arguments("user", "known_hosts");
        let options = [("sftp.args", arguments.as_str())];
        Case { options: &options, timeout, variables: &[], ..Case::of(repository) }
            .open()
            .expect("opens")
    }

    async fn fails_with(&self, repository: &str, options: &[(&str, &str)]) -> store::StoreError {
        let case = Case { options, variables: &[], ..Case::of(repository) };
        case.open().expect("opens").store.list("locks").await.expect_err("must fail")
    }

    /// Logins so far.
    fn logins(&self) -> usize {
        self.server.log().matches("Accepted publickey").count()
    }

    /// Ends the server with all its connections, and starts it again.
    pub fn restart(&mut self) {
        self.end();
        self.starts += 1;
        self.server = daemon(self.dir.path(), self.port, &format!("sshd.log.{}", self.starts));
    }

    pub fn end(&mut self) {
        let sessions = descendants(self.server.pid());
        self.server.kill();
        for pid in sessions {
            signal(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.end();
    }
}

fn expect(error: &store::StoreError, class: ErrorClass, words: &[&str]) {
    let shown = format!("{error} {}", error.advice);
    assert_eq!(error.kind.class(), class, "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
}

#[tokio::test]
async fn an_ssh_server_behaves() {
    let ssh = Ssh::start("");
    let root = ssh.path("bäckup mit Leerzeichen/a%20b#c");
    make_folder(&root);
    std::os::unix::fs::symlink(root.join("config"), root.join(format!("locks/{}", id(20))))
        .expect("links");
    let opened = ssh.open(&ssh.url(&root.display().to_string()), LIMIT);
    let listing = opened.store.list("locks").await.expect("lists");
    let odd: BTreeSet<_> = listing.odd.iter().map(String::as_str).collect();
    assert_eq!(odd, BTreeSet::from([&*id(20), "sub"]), "no files, so no locks to restic");
    behaves(&*opened.store, CAN).await;
    assert_eq!(opened.requests("sftp", "list"), (4., 0.));
    assert_eq!(opened.requests("sftp", "stat"), (4., 1.));
    assert_eq!(opened.requests("sftp", "get"), (6., 1.));
    assert_eq!(ssh.logins(), 1);
}

/// Hosters give accounts that reach nothing but their own folder.
#[tokio::test]
async fn an_account_in_a_root_of_its_own_behaves() {
    let ssh = Ssh::start("ChrootDirectory /srv\nForceCommand internal-sftp\nAllowTcpForwarding no");
    let name = format!("lock_exporter-{}", std::process::id());
    let root = Path::new("/srv").join(&name);
    make_folder(&root);
    for path in [format!("/{name}"), name.clone()] {
        // The login's home is not there, so a relative path begins at the root.
        let opened = ssh.open(&ssh.url(&path), LIMIT);
        behaves(&*opened.store, CAN).await;
    }
    std::fs::remove_dir_all(root).expect("is ours");
}

/// Names, keys and jumps of ssh's own configuration count, as they do for restic.
#[tokio::test]
async fn an_alias_behind_a_jump_host_behaves() {
    let ssh = Ssh::start("");
    make_folder(&ssh.path("repo"));
    let (at, user) = (ssh.dir.path().display(), user());
    let config = format!(
        "Host outer inner\nHostName 127.0.0.1\nPort {}\nUser {user}\nIdentityFile {at}/user\n\
         IdentitiesOnly yes\nUserKnownHostsFile {at}/known_hosts\nStrictHostKeyChecking yes\n\
         GlobalKnownHostsFile /dev/null\nHost inner\nProxyJump outer\n",
        ssh.port
    );
    std::fs::write(ssh.path("config"), config).expect("writes");
    let arguments = format!("-F {at}/config");
    let options = [("sftp.args", arguments.as_str())];
    let repository = format!("sftp:inner:{at}/repo");
    let case = Case { options: &options, variables: &[], ..Case::of(&repository) };
    behaves(&*case.open().expect("opens").store, CAN).await;
    assert_eq!(ssh.logins(), 2, "through the one to the other");
}

#[tokio::test]
async fn two_hundred_targets_share_one_connection_and_get_it_back() {
    let mut ssh = Ssh::start("");
    make_folder(&ssh.path("a"));
    make_folder(&ssh.path("b"));
    let opened: Vec<_> = (0..200)
        .map(|number| {
            let name = if number % 2 == 0 { "a" } else { "b" };
            ssh.open(&ssh.url(&ssh.path(name).display().to_string()), LIMIT)
        })
        .collect();
    let lists = || futures_util::future::join_all(opened.iter().map(|o| o.store.list("locks")));
    for listing in lists().await {
        assert_eq!(listing.map(|listing| listing.entries.len()), Ok(4));
    }
    assert_eq!(ssh.logins(), 1);
    ssh.restart();
    assert!(lists().await.iter().all(Result::is_ok), "the connection is made anew");
    assert_eq!(ssh.logins(), 1);
    ssh.end();
    for listing in lists().await {
        expect(&listing.expect_err("nobody is there"), ErrorClass::Network, &["refused"]);
    }
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_and_made_anew() {
    let ssh = Ssh::start("");
    make_folder(&ssh.path("repo"));
    let opened = ssh.open(&ssh.url(&ssh.path("repo").display().to_string()), LIMIT);
    opened.store.list("locks").await.expect("lists");
    let sessions = descendants(ssh.server.pid());
    assert!(!sessions.is_empty());
    idle().await;
    ended(&sessions).await;
    opened.store.list("locks").await.expect("lists");
    assert_eq!(ssh.logins(), 2);
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout_and_its_connection_is_given_up() {
    let ssh = Ssh::start("");
    make_folder(&ssh.path("repo"));
    let short = Duration::from_secs(2);
    let opened = ssh.open(&ssh.url(&ssh.path("repo").display().to_string()), short);
    // The first login may take longer than the short limit.
    while opened.store.list("locks").await.is_err() {}
    let before = ssh.logins();
    let sessions = descendants(ssh.server.pid());
    assert!(!sessions.is_empty());
    for pid in &sessions {
        stop(*pid);
    }
    let error = opened.store.list("locks").await.expect_err("nobody answers");
    expect(&error, ErrorClass::Timeout, &["list locks", "sftp:"]);
    while opened.store.list("locks").await.is_err() {}
    assert!(ssh.logins() > before, "over a new connection");
}

#[tokio::test]
async fn a_wrong_path_is_told_and_never_made() {
    let ssh = Ssh::start("");
    let missing = ssh.path("missing");
    let opened = ssh.open(&ssh.url(&missing.display().to_string()), LIMIT);
    let error = opened.store.list("locks").await.expect_err("is missing");
    expect(&error, ErrorClass::NotFound, &["does not exist", "missing", "Check the path"]);
    assert!(opened.store.read("config", 9).await.is_err());
    assert!(opened.store.folders("").await.is_err());
    assert!(!missing.exists());

    let relative = ssh.open(&ssh.url("lock_exporter/none"), LIMIT);
    let error = relative.store.list("locks").await.expect_err("is missing");
    expect(&error, ErrorClass::NotFound, &["lock_exporter/none", "home folder", "sftp:HOST:/PATH"]);
    let home = std::env::var("HOME").expect("is set");
    assert!(error.to_string().contains(&home), "where it leads: {error}");

    let command = format!(
        "ssh -p {} {} {}@127.0.0.1 -s sftp",
        ssh.port,
        ssh.arguments("user", "known_hosts"),
        user()
    );
    let options = [("sftp.command", command.as_str())];
    let error = ssh.fails_with("sftp:ann@127.0.0.1:2222/repo", &options).await;
    expect(&error, ErrorClass::NotFound, &["2222/repo", "sftp://USER@HOST:PORT//PATH"]);
}

#[tokio::test]
async fn sshs_own_words_are_in_the_error() {
    let ssh = Ssh::start("Banner DIR/banner");
    std::fs::write(ssh.path("banner"), "Welcome\nNo trespassing\n").expect("writes");
    std::fs::write(ssh.path("empty"), "").expect("writes");
    let other = std::fs::read_to_string(ssh.path("other.pub")).expect("reads");
    let changed = format!("[127.0.0.1]:{} {other}", ssh.port);
    std::fs::write(ssh.path("changed"), changed).expect("writes");
    let repository = ssh.url("/srv");
    for (key, known_hosts, class, words) in [
        ("user", "empty", ErrorClass::Config, ["host key is known", "known_hosts"]),
        ("user", "changed", ErrorClass::Config, ["Host key verification failed", "find out why"]),
        ("other", "known_hosts", ErrorClass::Auth, ["Permission denied (publickey)", "key"]),
    ] {
        let arguments = ssh.arguments(key, known_hosts);
        let error = ssh.fails_with(&repository, &[("sftp.args", &arguments)]).await;
        expect(&error, class, &words);
    }
    let nowhere = format!("sftp://127.0.0.1:{}//srv", free_port());
    let arguments = ssh.arguments("user", "known_hosts");
    let error = ssh.fails_with(&nowhere, &[("sftp.args", &arguments)]).await;
    expect(&error, ErrorClass::Network, &["Connection refused"]);
    let error = ssh.fails_with(&repository, &[("sftp.command", "/nonexistent/ssh x")]).await;
    expect(&error, ErrorClass::Config, &["/nonexistent/ssh", "openssh-client"]);
    let error =
        ssh.fails_with(&repository, &[("sftp.command", "sh -c 'echo hello; exit 3'")]).await;
    expect(&error, ErrorClass::Network, &["without a word", "prints text"]);
    assert_eq!(ssh.logins(), 0);
}

#[tokio::test]
async fn an_account_without_sftp_is_told() {
    let ssh = Ssh::start("Subsystem other /bin/false");
    let arguments = ssh.arguments("user", "known_hosts");
    let error = ssh.fails_with(&ssh.url("/srv"), &[("sftp.args", &arguments)]).await;
    expect(&error, ErrorClass::Protocol, &["subsystem request failed", "Subsystem"]);
}

#[tokio::test]
async fn what_is_no_folder_is_no_missing_one() {
    let ssh = Ssh::start("");
    let root = ssh.path("odd");
    std::fs::create_dir(&root).expect("makes");
    let opened = ssh.open(&ssh.url(&root.display().to_string()), LIMIT);
    assert_eq!(opened.store.list("locks").await, Ok(Listing::default()), "restic makes it");
    std::os::unix::fs::symlink("/nowhere/at/all", root.join("locks")).expect("links");
    let error = opened.store.list("locks").await.expect_err("may be full of locks");
    expect(&error, ErrorClass::Damaged, &["list locks", "a link that leads nowhere"]);
    std::fs::remove_file(root.join("locks")).expect("removes");
    std::fs::write(root.join("locks"), "").expect("writes");
    let error = opened.store.list("locks").await.expect_err("is a file");
    expect(&error, ErrorClass::Damaged, &["list locks", "no folder"]);
}

/// What only another user may read is neither empty nor missing.
#[tokio::test]
async fn refused_rights_name_what_was_tried_and_where() {
    let ssh = Ssh::start("Subsystem sftp DIR/as_nobody");
    let script = "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups \
                  /usr/lib/openssh/sftp-server\n";
    std::fs::write(ssh.path("as_nobody"), script).expect("writes");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("is ours");
    };
    mode(&ssh.path("as_nobody"), 0o755);
    make_folder(&ssh.path("repo"));
    let lock = format!("locks/{}", id(1));
    mode(&ssh.path("repo").join(&lock), 0);
    mode(&ssh.path("repo/keys"), 0);
    let opened = ssh.open(&ssh.url(&ssh.path("repo").display().to_string()), LIMIT);
    assert_eq!(opened.store.list("locks").await.map(|listing| listing.entries.len()), Ok(4));
    let error = opened.store.read(&lock, 9).await.expect_err("is refused");
    expect(&error, ErrorClass::Permission, &["read locks/", "Permission denied", &id(1), "owner"]);
    let error = opened.store.list("keys").await.expect_err("is refused");
    expect(&error, ErrorClass::Permission, &["list keys", "Permission denied", "repo/keys"]);
}

#[tokio::test]
async fn every_one_of_1500_locks_is_listed_with_its_time() {
    let ssh = Ssh::start("");
    let root = ssh.path("repo");
    make_folder(&root);
    for number in 100..1600 {
        std::fs::hard_link(root.join("config"), root.join("locks").join(id(number)))
            .expect("links");
    }
    let opened = ssh.open(&ssh.url(&root.display().to_string()), LIMIT);
    let listing = opened.store.list("locks").await.expect("lists");
    assert_eq!(listing.entries.len(), 1504);
    assert!(listing.entries.iter().all(|entry| entry.modified_at.is_some()));
    assert_eq!(opened.requests("sftp", "list"), (1., 0.));
}

/// Whatever a server sends, it is an error of this target and nothing more.
#[tokio::test]
async fn bytes_that_are_no_sftp_end_in_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut random = fastrand::Rng::with_seed(11);
    // The answer to the first request, so that the rest is read as packets.
    let version = [0, 0, 0, 5, 2, 0, 0, 0, 3];
    for round in 0..40 {
        let mut bytes = if round % 2 == 0 { version.to_vec() } else { Vec::new() };
        for _ in 0..random.usize(1..20) {
            let kind = random.u8(100..106);
            let length = random.usize(0..40);
            let claimed = if random.bool() { length + 5 } else { random.usize(0..1 << 32) };
            bytes.extend(u32::try_from(claimed).unwrap_or(u32::MAX).to_be_bytes());
            bytes.push(kind);
            bytes.extend((1..3_u32).flat_map(u32::to_be_bytes));
            bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
        }
        let file = dir.path().join("bytes");
        std::fs::write(&file, bytes).expect("writes");
        let command = format!("sh -c 'cat {}; exec sleep 0.2'", file.display());
        let options = [("sftp.command", command.as_str())];
        let case = Case { options: &options, variables: &[], ..Case::of("sftp:host:/srv") };
        let listing = case.open().expect("opens").store.list("locks").await;
        let error = listing.expect_err("is no listing");
        assert!(!error.cause.is_empty(), "{error}");
    }
}
