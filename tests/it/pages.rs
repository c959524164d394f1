//! Pages and API of the running program: addresses, refusals, headers, a refused reload.

use serde_json::Value;

use crate::binary::{PASSWORD, Serving, repository, run, text};

/// An exporter with a repository under names that addresses have to quote.
fn serving(folder: &std::path::Path, names: &[&str], flags: &[&str]) -> Serving {
    let (root, password) = repository(folder);
    let config = folder.join("lock_exporter.yml");
    std::fs::write(&config, yaml(&root, &password, names)).unwrap();
    let flag = format!("--config.file={}", config.display());
    let serving = Serving::start(&[&[flag.as_str()], flags].concat());
    serving.metrics_with("hostname=\"prune01\"");
    serving
}

fn yaml(root: &str, password: &str, names: &[&str]) -> String {
    let target = |name: &&str| {
        format!(
            "  - {{name: {name:?}, restic: {{repository: {root:?}, password_file: {password:?}}}}}\n"
        )
    };
    "targets:\n".to_owned() + &names.iter().map(target).collect::<String>()
}

#[test]
fn each_address_is_exact_and_each_refusal_has_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serving(folder.path(), &["db01", "a/b c%ü"], &[]);
    for (request, status) in [
        ("GET /", "200"),
        ("HEAD /targets", "200"),
        ("GET /targets/db01", "200"),
        ("GET /targets/a/b%20c%25%C3%BC", "200"),
        ("GET /targets/a%2Fb%20c%25%c3%bc", "200"),
        ("GET /targets?name=db01", "200"),
        ("GET /?q=db01&state=exclusive", "200"),
        ("GET /config", "200"),
        ("GET /api/v1/targets", "200"),
        ("GET /api/v1/targets/db01", "200"),
        ("GET /api/v1/locks?mode=exclusive", "200"),
        ("GET /api/v1/events", "200"),
        ("GET /-/page.css", "200"),
        ("GET /-/page.js", "200"),
        ("GET /-/icon.svg", "200"),
        ("GET /targets/", "404"),
        ("GET /targets/db", "404"),
        ("GET /targets/db01/", "404"),
        ("GET /targets/%ff", "404"),
        ("GET /target", "404"),
        ("GET /api/v1/targets/x", "404"),
        ("GET /api/v1/", "404"),
        ("GET /api", "404"),
        ("GET /?state=broken", "400"),
        ("GET /?page=0", "400"),
        ("GET /targets/db01?x=1", "400"),
        ("GET /api/v1/locks?limit=0", "400"),
        ("GET /api/v1/targets?sort=name", "400"),
        ("GET /api/v1/events?kind=x", "400"),
        ("POST /", "405"),
        ("DELETE /targets/db01", "405"),
        ("PUT /api/v1/locks", "405"),
    ] {
        let (head, body) = serving.ask(request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {head}");
        if status != "200" {
            assert!(head.contains("content-type: text/plain"), "{request}: {head}");
            assert!(body.len() > 5, "{request}: {body}");
        }
        assert_eq!(status == "405", head.contains("allow: GET, HEAD"), "{request}: {head}");
    }
}

#[test]
fn a_page_may_do_nothing_but_ask_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serving(folder.path(), &["db01"], &[]);
    for path in ["/", "/targets/db01"] {
        let (head, body) = serving.ask(&format!("GET {path}"));
        assert!(head.contains("content-security-policy: default-src 'none'; "), "{head}");
        assert!(!head.contains("unsafe"), "{head}");
        assert!(!body.contains(" style=") && !body.contains(" onclick="), "{body}");
        assert!(body.contains("prune01") && body.contains("exclusive"), "{body}");
    }
    let (_, body) = serving.ask("GET /api/v1/targets/db01");
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["target"]["locks"][0]["holder"]["pid"], 77);
    let (_, body) = serving.ask("GET /config");
    assert!(body.contains("password_file: ") && !body.contains(PASSWORD), "{body}");
}

#[test]
fn a_refused_configuration_is_on_every_page_until_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serving(folder.path(), &["db01"], &["--web.enable-lifecycle"]);
    let config = folder.path().join("lock_exporter.yml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, "targets:\n  - {nam: db01}\n").unwrap();
    assert!(serving.ask("POST /-/reload").0.starts_with("HTTP/1.1 500"));
    for path in ["/", "/targets/db01"] {
        let (_, body) = serving.ask(&format!("GET {path}"));
        assert!(body.contains("was not reloaded") && body.contains("line 2"), "{body}");
    }
    let kinds = |serving: &Serving| {
        let (_, body) = serving.ask("GET /api/v1/events");
        let json: Value = serde_json::from_str(&body).unwrap();
        let events = json["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The record follows when the tracker has heard of it.
    while !kinds(&serving).contains(&"reload_refused".to_owned()) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::write(&config, good).unwrap();
    assert!(serving.ask("POST /-/reload").0.starts_with("HTTP/1.1 200"));
    assert!(!serving.ask("GET /").1.contains("was not reloaded"));
}

#[test]
fn what_cannot_be_done_as_asked_is_said_where_it_is_read() {
    for arguments in [
        &["check", "--output", "nagios", "--no-such-flag"][..],
        &["check", "--output=nagios", "--scan.interval=x"],
        &["check", "--output=nagios"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        let line = text(&output.stdout);
        assert!(line.starts_with("LOCKS UNKNOWN - "), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    let demo = run(&["demo", "--once", "-r", "/srv/restic"]);
    assert_eq!(demo.status.code(), Some(64));
    assert!(text(&demo.stderr).contains("own repositories"), "{}", text(&demo.stderr));
    let checked = run(&["--config.check", "-r", "/nonexistent"]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(
        text(&checked.stdout).contains("No repository was opened"),
        "{}",
        text(&checked.stdout)
    );
}
