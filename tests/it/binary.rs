//! The binary as people run it: flags, exit codes, HTTP, signals, and no secret anywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lock_exporter::cmd::demo::writer::{Fields, Repository, Version};
use serde_json::Value;

pub(crate) const PASSWORD: &str = "hunter2-the-planted-secret";

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock_exporter"));
    command.env_clear().stdin(Stdio::null());
    // No file of the working folder may become its configuration.
    command.current_dir(std::env::temp_dir());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A repository with one live exclusive lock, and a file with its password.
pub(crate) fn repository(folder: &Path) -> (String, String) {
    let root = folder.join("repository");
    let made = Repository::init(&root, Version::V2, PASSWORD.as_bytes(), Repository::CHEAP);
    made.unwrap()
        .lock(&Fields {
            time: jiff::Timestamp::now(),
            exclusive: true,
            hostname: "prune01".into(),
            username: "backup".into(),
            pid: 77,
            uid: 0,
            gid: 0,
        })
        .unwrap();
    let password = folder.join("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    (root.to_str().unwrap().to_owned(), password.to_str().unwrap().to_owned())
}

/// A running exporter that is killed when a test ends.
pub struct Serving {
    child: Child,
    address: SocketAddr,
    /// Read all the time: a full pipe would stop whoever logs, and with it the exporter.
    log: Option<std::thread::JoinHandle<String>>,
}

impl Serving {
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = program()
            .args(["--web.listen-address=127.0.0.1:0", "--log.level=debug"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended: {seen}");
            seen.push_str(&line);
            if let Some((_, address)) = line.trim().rsplit_once("address=") {
                break address.parse().unwrap();
            }
        };
        let rest = std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = log.read_to_string(&mut rest);
            rest
        });
        Self { child, address, log: Some(rest) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The status line and headers, and the body, of one request.
    pub fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // Long enough for a machine that compiles at the same time.
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Asks for `/metrics` until the text is there; a time-out is the test runner's business.
    pub fn metrics_with(&self, wanted: &str) -> String {
        loop {
            let (_, body) = self.ask("GET /metrics");
            if body.contains(wanted) {
                return body;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGTERM and returns the exit code and the rest of the log.
    pub fn stop(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let log = self.log.take().unwrap().join().unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_serves_what_it_scans_and_ends_at_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let serving = Serving::start(&["-r", &root, "--password-file", &password]);
    let metrics = serving.metrics_with("hostname=\"prune01\"");
    assert!(metrics.contains("lock_target_state{"));
    assert!(metrics.contains("process_resident_memory_bytes"));
    let (head, body) = serving.ask("HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    for (request, expected) in [
        ("GET /", "200"),
        ("GET /-/healthy", "200"),
        ("GET /-/ready", "200"),
        ("GET /metrics/", "404"),
        ("GET /favicon.ico", "404"),
        ("POST /metrics", "405"),
        ("DELETE /", "405"),
    ] {
        let (head, _) = serving.ask(request);
        assert!(head.starts_with(&format!("HTTP/1.1 {expected}")), "{request}: {head}");
        assert_eq!(expected == "405", head.contains("allow: GET, HEAD"), "{request}: {head}");
    }
    let (code, log) = serving.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn no_secret_is_shown_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let serving = Serving::start(&["-r", &root, "--password-file", &password]);
    let mut shown = serving.metrics_with("hostname=\"prune01\"");
    for path in ["/", "/config", "/api/v1/targets", "/api/v1/locks", "/api/v1/events"] {
        shown += &serving.ask(&format!("GET {path}")).1;
    }
    let arguments = std::fs::read(format!("/proc/{}/cmdline", serving.child.id())).unwrap();
    shown += &text(&arguments);
    shown += &serving.stop().1;
    for output in ["table", "json", "prom", "nagios"] {
        let output = run(&["check", "-r", &root, "--password-file", &password, "--output", output]);
        shown += &text(&output.stdout);
        shown += &text(&output.stderr);
    }
    // A secret in the place of something else: none of the errors may quote it.
    let location = format!("s3:http://user:{PASSWORD}@127.0.0.1:1/bucket/x?token={PASSWORD}");
    for arguments in [
        vec!["check", "-r", &root, "--password-command", "false hunter2-the-planted-secret"],
        vec!["check", "-r", &location],
        vec!["check", "-r", &location, "--output", "json", "-o", "s3.unsafe-anonymous-auth=true"],
    ] {
        let output = run(&arguments);
        shown += &text(&output.stdout);
        shown += &text(&output.stderr);
    }
    assert!(shown.contains("prune01"), "{shown}");
    let place = shown.find(PASSWORD).map(|at| &shown[at.saturating_sub(200)..at]);
    assert_eq!(place, None, "a secret was shown");
}

#[test]
fn check_answers_with_the_codes_of_nagios() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let by_file = ["--password-file", &password];
    let live = run(&[&["check", "-r", &root, "--output=json"][..], &by_file].concat());
    assert_eq!(live.status.code(), Some(0), "{}", text(&live.stderr));
    let json: Value = serde_json::from_slice(&live.stdout).unwrap();
    let target = &json["targets"][0];
    assert_eq!(target["state"], "exclusive");
    assert_eq!(target["blocked"]["shared"], true);
    assert_eq!(target["locks"][0]["holder"]["pid"], 77);
    assert_eq!(target["locks"][0]["verdict"], "fresh");
    let repository_of = |name: &str| {
        let root = folder.path().join(name);
        let made = Repository::init(&root, Version::V1, PASSWORD.as_bytes(), Repository::CHEAP);
        (made.unwrap(), root.to_str().unwrap().to_owned())
    };
    let (unreadable, path) = repository_of("unreadable");
    unreadable.unreadable().unwrap();
    let critical = run(&[&["check", "-r", &path, "--output=nagios"][..], &by_file].concat());
    assert_eq!(critical.status.code(), Some(2));
    assert!(text(&critical.stdout).starts_with("LOCKS CRITICAL - "));
    let wrong = program().args(["check", "-r", &root]).env("RESTIC_PASSWORD", "x").output();
    assert_eq!(wrong.as_ref().unwrap().status.code(), Some(3));
    assert!(text(&wrong.unwrap().stdout).contains("wrong_password"));
    for arguments in [
        &["check"][..],
        &["check", "--no-such-flag"],
        &["check", "--config.file=/nonexistent.yml"],
        &["check", "-r", "/nonexistent"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn check_finds_targets_by_name_and_says_which_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let config = folder.path().join("lock_exporter.yml");
    let yaml = format!(
        "targets:\n  - {{name: db, restic: {{repository: {root:?}, password_file: {password:?}}}}}\n  \
         - {{name: gone, restic: {{repository: /nonexistent}}}}\n"
    );
    std::fs::write(&config, yaml).unwrap();
    let config = format!("--config.file={}", config.display());
    let one = run(&["check", "db", &config, "--output=json"]);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
    let json: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(json["targets"].as_array().map(Vec::len), Some(1));
    assert_eq!(run(&["check", &config]).status.code(), Some(3));
    let unknown = run(&["check", "bd", &config]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(text(&unknown.stderr).contains("targets: db, gone"), "{}", text(&unknown.stderr));
}

#[test]
fn a_textfile_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let textfile = folder.path().join("textfile");
    std::fs::create_dir(&textfile).unwrap();
    let arguments = ["check", "-r", &root, "--password-file", &password, "--textfile"];
    let output = run(&[&arguments[..], &[textfile.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let names: Vec<_> =
        std::fs::read_dir(&textfile).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lock_exporter.prom"]);
    let metrics = std::fs::read_to_string(textfile.join("lock_exporter.prom")).unwrap();
    assert!(metrics.contains("lock_target_blocked"));
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    let nothing = run(&[]);
    assert_eq!(nothing.status.code(), Some(64));
    for way in ["-r", "--config.file", "lock_exporter.yml", "RESTIC_REPOSITORY"] {
        assert!(text(&nothing.stderr).contains(way), "{}", text(&nothing.stderr));
    }
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(64));
    assert_eq!(run(&["-r", "/x", "--config.file=/x.yml"]).status.code(), Some(64));
    assert_eq!(run(&["--config.file=/nonexistent.yml"]).status.code(), Some(1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--web.listen-address={}", taken.local_addr().unwrap());
    let output = run(&["-r", "/x", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot listen on"), "{}", text(&output.stderr));
    for flag in ["--help", "--version"] {
        let output = run(&[flag]);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{flag}");
    }
}

#[test]
fn idle_and_slow_connections_do_not_keep_a_scrape_waiting() {
    let serving = Serving::start(&["-r", "/nonexistent"]);
    let mut others = Vec::new();
    for n in 0..400 {
        let mut stream = TcpStream::connect(serving.address).unwrap();
        if n % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").unwrap();
        }
        others.push(stream);
    }
    let (head, _) = serving.ask("GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // What never becomes a request is closed by the server.
    let mut first = others.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
}

#[test]
fn the_demo_prints_metrics_of_every_kind_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = program().args(["demo", "--once"]).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let metrics = text(&output.stdout);
    for sample in [
        "lock_target_state{target=\"free\",host=\"demo\",state=\"free\"} 1",
        "lock_target_state{target=\"live-shared\",host=\"demo\",state=\"shared\"} 1",
        "lock_target_state{target=\"live-exclusive\",host=\"demo\",state=\"exclusive\"} 1",
        "lock_target_locks{target=\"stale\",host=\"demo\",mode=\"exclusive\",state=\"stale\"} 1",
        "lock_target_unreadable_locks{target=\"unreadable\",host=\"demo\"} 1",
        "lock_target_empty_locks{target=\"empty\",host=\"demo\"} 1",
        "lock_target_locks{target=\"sealed\",host=\"demo\",mode=\"unknown\",state=\"active\"} 1",
    ] {
        assert!(metrics.contains(sample), "no {sample} in\n{metrics}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_reload_keeps_what_did_not_change_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let config = folder.path().join("lock_exporter.yml");
    let target = |name: &str| {
        format!(
            "  - {{name: {name}, restic: {{repository: {root:?}, password_file: {password:?}}}}}\n"
        )
    };
    std::fs::write(&config, format!("targets:\n{}", target("one"))).unwrap();
    let flag = format!("--config.file={}", config.display());
    let serving = Serving::start(&[&flag, "--web.enable-lifecycle"]);
    let metrics = serving.metrics_with("hostname=\"prune01\"");
    let of = |metrics: &str, name: &str| {
        metrics.lines().find(|line| line.starts_with(name)).map(str::to_owned)
    };
    let since = of(&metrics, "lock_hold_since_timestamp_seconds{target=\"one\"").unwrap();

    let two = format!("targets:\n{}{}", target("one"), target("two"));
    std::fs::write(&config, two).unwrap();
    let (head, body) = serving.ask("POST /-/reload");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    let metrics = serving.metrics_with("lock_scans_total{target=\"two\"");
    assert_eq!(
        of(&metrics, "lock_hold_since_timestamp_seconds{target=\"one\""),
        Some(since.clone())
    );

    let broken = format!("targets:\n{}  - {{name: {PASSWORD}, no: 1}}\n", target("two"));
    std::fs::write(&config, broken).unwrap();
    let (head, body) = serving.ask("PUT /-/reload");
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    assert!(body.contains("unknown key"), "{body}");
    // The very next scrape says so, however shortly after another one it comes.
    let (_, metrics) = serving.ask("GET /metrics");
    assert!(metrics.contains("\nlock_exporter_config_last_reload_successful 0\n"), "{metrics}");
    assert_eq!(of(&metrics, "lock_hold_since_timestamp_seconds{target=\"one\""), Some(since));
    assert!(metrics.contains("target=\"two\""));

    std::fs::write(&config, format!("targets:\n{}", target("two"))).unwrap();
    let pid = rustix::process::Pid::from_child(&serving.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let metrics = serving.metrics_with("lock_exporter_targets{source=\"restic\"} 1");
    assert!(!metrics.contains("target=\"one\""), "{metrics}");
    serving.metrics_with("lock_exporter_config_last_reload_successful 1");
    let (head, _) = serving.ask("GET /-/reload");
    assert!(head.contains("405") && head.contains("allow: POST, PUT"), "{head}");
    assert_eq!(serving.stop().0, Some(0));
}

#[test]
fn reloading_over_http_must_be_allowed() {
    let serving = Serving::start(&["-r", "/nonexistent"]);
    let (head, body) = serving.ask("POST /-/reload");
    assert!(head.starts_with("HTTP/1.1 403") && body.contains("--web.enable-lifecycle"), "{head}");
}

#[test]
fn a_configuration_can_be_checked_without_serving() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lock_exporter.yml");
    let flag = format!("--config.file={}", config.display());
    let check = |yaml: &str| {
        std::fs::write(&config, yaml).unwrap();
        let output = run(&["--config.check", &flag]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let good = "targets: [{name: a, restic: {repository: /srv/a}}]";
    let (code, said) = check(good);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("1 target, nothing wrong: settings"), "{said}");
    let web = folder.path().join("web.yml");
    let tls =
        "tls_server_config:\n  cert_file: absent\n  key_file: absent\nbasic_auth_users: {a: b}";
    std::fs::write(&web, tls).unwrap();
    std::fs::write(
        &config,
        format!(
            "targets:
  - name: a
    intervall: 5m
    restic:
      repository: /srv/a
      password_file: {}
      env_dir: /nonexistent/d
  - {{name: b, restic: {{repository: /srv/b, password_env: NOT_SET, cacert: /nonexistent/c}}}}
  - {{name: c, restic: {{repository: /srv/c, masterkey_file: /nonexistent/k}}}}
  - {{name: d, restic: {{env_file: /nonexistent/e}}}}
",
            folder.path().display()
        ),
    )
    .unwrap();
    let output = run(&["--config.check", &flag, &format!("--web.config.file={}", web.display())]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let expected = [
        "lock_exporter.yml has 8 errors:",
        "line 3, column 5: targets[0].intervall: unknown key",
        "line 6, column 22: targets[0].restic.password_file: read password file /",
        "line 7, column 16: targets[0].restic.env_dir: read env dir /nonexistent/d: No such file",
        "targets[1].restic.password_env: read password from NOT_SET: the variable is not set",
        "targets[1].restic.cacert: read cacert /nonexistent/c: No such file",
        "targets[2].restic.masterkey_file: read master key file /nonexistent/k: No such file",
        "targets[3].restic: needs repository",
        "targets[3].restic.env_file: read env file /nonexistent/e: No such file or directory (os \
         error 2). Check the path, and that it is mounted where the exporter runs.",
        "web.yml has 3 errors:",
        "line 2, column 14: tls_server_config.cert_file: cannot read",
        "line 3, column 13: tls_server_config.key_file: cannot read",
        "line 4, column 23: basic_auth_users.a: must be a bcrypt hash",
    ];
    let mut rest = said.as_str();
    for part in expected {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not next in:\n{said}"));
        rest = &rest[at + part.len()..];
    }
    assert!(said.contains("not a regular file. Name a regular file"), "a folder: {said}");
}

#[test]
fn files_that_flags_name_are_checked_too() {
    let output = run(&[
        "--config.check",
        "-r=/srv/a",
        "--password-file=/nonexistent/p",
        "--cacert=/nonexistent/c",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for part in ["--password-file: read password file /nonexistent/p", "--cacert: read cacert"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_health_of_a_running_exporter_can_be_asked_for() {
    let serving = Serving::start(&["-r", "/nonexistent"]);
    let ask = |port: u16| {
        let address = format!("127.0.0.1:{port}");
        let output = program()
            .arg("healthcheck")
            .env("LOCK_EXPORTER_WEB_LISTEN_ADDRESS", address)
            .output()
            .unwrap();
        output.status.code()
    };
    assert_eq!(ask(serving.address.port()), Some(0));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(ask(closed.port()), Some(1));
}

#[test]
fn manual_and_completions_name_the_flags() {
    for arguments in [&["man"][..], &["completions", "bash"], &["completions", "zsh"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        let said = text(&output.stdout).replace("\\-", "-");
        assert!(said.contains("web.listen-address"), "{arguments:?}: {said}");
    }
}

/// A lock file that somebody has locked, and a configuration that watches it.
fn held_lock_file(folder: &Path) -> (Child, String) {
    let path = folder.join("job.lock");
    let script = "exec 9>\"$1\"; flock -x 9; echo held; read -r end";
    let mut holder = Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let config = folder.join("lock_exporter.yml");
    let text = format!("targets:\n  - {{name: job, file: {{path: {path:?}}}}}\n");
    std::fs::write(&config, text).unwrap();
    (holder, format!("--config.file={}", config.display()))
}

#[test]
fn a_restart_in_the_middle_of_a_hold_keeps_its_start_and_a_second_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut holder, config) = held_lock_file(folder.path());
    let state = format!("--state.dir={}", folder.path().display());
    let since = |metrics: &str| {
        let line = metrics.lines().find(|line| line.starts_with("lock_hold_since_")).unwrap();
        assert!(line.contains("command=\"bash\""), "{line}");
        line.to_owned()
    };
    let first = Serving::start(&[&config, &state]);
    let before = since(&first.metrics_with("lock_hold_since_timestamp_seconds{"));
    let refused = run(&["--web.listen-address=127.0.0.1:0", &config, &state]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let told = text(&refused.stderr);
    assert!(told.contains(&format!("(pid {}, as it wrote)", first.child.id())), "{told}");
    assert_eq!(first.stop().0, Some(0));
    let second = Serving::start(&[&config, &state]);
    assert_eq!(since(&second.metrics_with("lock_hold_since_timestamp_seconds{")), before);
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// Clients that ask for metrics and do not read the answer: what is rendered for them stays
/// bounded, and once they have used up the scrapes, others are told so at once.
#[test]
fn clients_that_do_not_read_cost_little_and_are_counted_as_scrapes() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lock_exporter.yml");
    let targets: String = (0..3000)
        .map(|n| format!("  - {{name: target-{n}, restic: {{repository: /nonexistent/{n}}}}}\n"))
        .collect();
    std::fs::write(&config, format!("targets:\n{targets}")).unwrap();
    let flag = format!("--config.file={}", config.display());
    let serving = Serving::start(&[&flag, "--web.max-requests=20"]);
    // The very first page knows every target.
    let (_, page) = serving.ask("GET /metrics");
    assert!(page.len() > 4_000_000, "a page of {} bytes would fit into socket buffers", page.len());
    let memory = || {
        let status = format!("/proc/{}/status", serving.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let before = memory();
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(serving.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        silent.push(stream);
    }
    while !serving.ask("GET /metrics").0.starts_with("HTTP/1.1 503") {}
    let after = memory();
    assert!(after < before + 200, "{before} MiB before, {after} MiB with clients that do not read");
    drop(silent);
    while !serving.ask("GET /metrics").0.starts_with("HTTP/1.1 200") {}
}

#[test]
fn what_cannot_be_printed_is_no_panic() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (arguments, expected) in [
        (&["check"][..], 3),
        (&[][..], 64),
        (&["check", "-r", "/nonexistent"], 3),
        (&["--config.file=/nonexistent.yml"], 1),
        (&["demo", "--once"], 1),
    ] {
        let output = program().args(arguments).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
    }
}

#[test]
fn a_plugin_says_on_standard_output_why_it_knows_nothing() {
    let output = run(&["check", "--output=nagios", "--config.file=/nonexistent.yml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).starts_with("LOCKS UNKNOWN - "), "{}", text(&output.stdout));
}

#[test]
fn a_long_path_is_a_name_that_was_cut_and_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (root, password) = repository(folder.path());
    let long = format!("/nonexistent/{}", "x".repeat(300));
    let other = format!("/nonexistent/{}y", "x".repeat(300));
    let arguments = ["check", "-p", &password, "--output=json", &root, &long, &other];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states: Vec<_> = json["targets"].as_array().unwrap().iter().map(|t| &t["state"]).collect();
    assert_eq!(states.len(), 3);
    assert!(states.iter().any(|state| **state == "exclusive"), "{states:?}");
}

#[test]
fn flags_that_contradict_each_other_or_would_do_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.yml");
    std::fs::write(&config, "targets: [{name: a, restic: {repository: /srv/a}}]").unwrap();
    let config = format!("--config.file={}", config.display());
    for arguments in [
        &["-r", "/x", "-p", "/p", "--insecure-no-password"][..],
        &["-r", "/x", "-p", "/p", "--password-command", "x"],
        &["-p", "/p", &config],
        &["--key-hint", "aa", &config],
        &["-r", "/x", "-o", "hunter2-the-planted-secret"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains(PASSWORD));
    }
    let odd = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
    let odd: std::ffi::OsString = odd;
    let output = program().env("RESTIC_REPOSITORY", odd).output().unwrap();
    assert!(text(&output.stderr).contains("no UTF-8"), "{}", text(&output.stderr));
}

#[test]
fn a_configuration_that_never_ends_is_refused() {
    for path in ["/dev/zero", "/dev/null", "/tmp"] {
        let output = run(&[&format!("--config.file={path}")]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(text(&output.stderr).contains("is not a file"), "{}", text(&output.stderr));
    }
}

/// Whoever reads the log has stopped: a terminal in scroll lock, a collector that hangs.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (_reader, mut full) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&full).unwrap();
    rustix::fs::fcntl_setfl(&full, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, flags).unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (repository, password) = repository(folder.path());
    let child = program()
        .args(["--log.level=debug", "-r", &repository, "--password-file", &password])
        .arg(format!("--web.listen-address={address}"))
        .stderr(full)
        .spawn()
        .unwrap();
    while TcpStream::connect(address).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = Some(std::thread::spawn(String::new));
    let serving = Serving { child, address, log };
    serving.metrics_with("lock_target_state{target=");
    assert_eq!(serving.stop().0, Some(0));
}
