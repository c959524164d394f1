//! The configuration in use as YAML, with every secret shown as `<secret>`.
//!
//! It says what applies: defaults are written out, files that secrets come from are named, and
//! locations are without credentials and query, as everywhere.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::config::{Config, ScanSettings, written};
use crate::secret::{EnvSpec, PasswordSpec};
use crate::target::{
    FileFormat, FileSpec, PerMode, Repositories, ResticSpec, Role, SearchSpec, Sought, SourceSpec,
    TargetName, TargetSpec,
};

/// What stands in the place of a secret.
const SECRET: &str = "<secret>";

/// Endings of the names of restic's options whose values are no secrets. Others, such as the
/// command of `sftp.command`, may hold one.
const OPEN_OPTIONS: [&str; 8] = [
    ".bucket-lookup",
    ".connections",
    ".layout",
    ".list-objects-v1",
    ".region",
    ".storage-class",
    ".unsafe-anonymous-auth",
    ".retries",
];

/// The effective configuration.
pub fn yaml(config: &Config) -> String {
    let Config { scan, labels, targets, .. } = config;
    let ScanSettings { interval, idle_interval, timeout, concurrency, hold } = *scan;
    let mut out = String::new();
    line(&mut out, 0, "scan", "");
    line(&mut out, 1, "interval", &written(interval));
    if let Some(idle_interval) = idle_interval {
        line(&mut out, 1, "idle_interval", &written(idle_interval));
    }
    line(&mut out, 1, "timeout", &written(timeout));
    line(&mut out, 1, "concurrency", &concurrency.to_string());
    line(&mut out, 1, "hold", &written(hold));
    if !labels.hostname_rewrite.is_empty() || !labels.drop.is_empty() {
        line(&mut out, 0, "labels", "");
        if !labels.hostname_rewrite.is_empty() {
            line(&mut out, 1, "hostname_rewrite", "");
        }
        for (regex, replacement) in &labels.hostname_rewrite {
            let (regex, replacement) = (text(regex.as_str()), text(replacement));
            let _ = writeln!(out, "    - {{regex: {regex}, replacement: {replacement}}}");
        }
        if !labels.drop.is_empty() {
            let drop: Vec<_> = labels.drop.iter().map(|label| label.as_str()).collect();
            line(&mut out, 1, "drop", &format!("[{}]", drop.join(", ")));
        }
    }
    line(&mut out, 0, "targets", "");
    for spec in targets {
        target(&mut out, spec);
    }
    out
}

fn target(out: &mut String, spec: &TargetSpec) {
    let TargetSpec { name, interval, idle_interval, timeout, .. } = spec;
    let TargetSpec { hold_limit, stuck_limit, source, .. } = spec;
    let _ = writeln!(out, "  - name: {}", text(TargetName::as_str(name)));
    line(out, 2, "interval", &written(*interval));
    if idle_interval != interval {
        line(out, 2, "idle_interval", &written(*idle_interval));
    }
    line(out, 2, "timeout", &written(*timeout));
    line(out, 2, "hold_limit", &limits(hold_limit));
    line(out, 2, "stuck_limit", &limits(stuck_limit));
    match source {
        SourceSpec::Restic(spec) => restic(out, spec, None),
        SourceSpec::File(spec) => file(out, spec, None),
        SourceSpec::Search(SearchSpec { sought, max, .. }) => match sought {
            Sought::Repositories(sought) => restic(out, &sought.each, Some((sought, *max))),
            Sought::Files(sought) => file(out, &sought.each, Some(*max)),
        },
    }
}

fn file(out: &mut String, spec: &FileSpec, max: Option<usize>) {
    let FileSpec { path, role, format } = spec;
    line(out, 2, "file", "");
    line(out, 3, "path", &place(path));
    let role = match role {
        Role::Job => "job",
        Role::Daemon => "daemon",
    };
    line(out, 3, "role", role);
    line(out, 3, "format", FileFormat::as_str(*format));
    if let Some(max) = max {
        line(out, 3, "max", &max.to_string());
    }
}

fn restic(out: &mut String, spec: &ResticSpec, search: Option<(&Repositories, usize)>) {
    line(out, 2, "restic", "");
    let key = if search.is_some() { "discover" } else { "repository" };
    line(out, 3, key, &text(&spec.repository.to_string()));
    if let Some((Repositories { depth, exclude, include, .. }, max)) = search {
        line(out, 3, "depth", &depth.to_string());
        for (key, patterns) in [("exclude", exclude), ("include", include)] {
            if !patterns.is_empty() {
                let patterns: Vec<_> = patterns.iter().map(|one| text(one.as_str())).collect();
                line(out, 3, key, &format!("[{}]", patterns.join(", ")));
            }
        }
        line(out, 3, "max", &max.to_string());
    }
    opened(out, spec);
}

/// How a repository is reached and opened.
fn opened(out: &mut String, spec: &ResticSpec) {
    let ResticSpec { repository: _, password, env, options, key_hint, cacert, insecure_tls } = spec;
    match password {
        PasswordSpec::Inherit => {}
        PasswordSpec::File(path) => line(out, 3, "password_file", &place(path)),
        PasswordSpec::Command(_) => line(out, 3, "password_command", &text(SECRET)),
        PasswordSpec::Variable(name) => line(out, 3, "password_env", &text(name)),
        PasswordSpec::MasterKeyFile(path) => line(out, 3, "masterkey_file", &place(path)),
        PasswordSpec::Empty => line(out, 3, "insecure_no_password", "true"),
    }
    let EnvSpec { env, env_file, env_dir } = env;
    if let Some(path) = env_file {
        line(out, 3, "env_file", &place(path));
    }
    if let Some(path) = env_dir {
        line(out, 3, "env_dir", &place(path));
    }
    if !env.is_empty() {
        line(out, 3, "env", "");
        for name in env.keys() {
            line(out, 4, &text(name), &text(SECRET));
        }
    }
    if !options.is_empty() {
        line(out, 3, "options", "");
        for (name, value) in options {
            let open = OPEN_OPTIONS.iter().any(|ending| name.ends_with(ending));
            line(out, 4, &text(name), &text(if open { value } else { SECRET }));
        }
    }
    if let Some(hint) = key_hint {
        line(out, 3, "key_hint", &text(hint));
    }
    match &cacert[..] {
        [] => {}
        [path] => line(out, 3, "cacert", &place(path)),
        paths => {
            let paths: Vec<_> = paths.iter().map(|path| place(path)).collect();
            line(out, 3, "cacert", &format!("[{}]", paths.join(", ")));
        }
    }
    if *insecure_tls {
        line(out, 3, "insecure_tls", "true");
    }
}

fn line(out: &mut String, depth: usize, key: &str, value: &str) {
    let space = if value.is_empty() { "" } else { " " };
    let _ = writeln!(out, "{:indent$}{key}:{space}{value}", "", indent = depth * 2);
}

/// As a string in double quotes, which YAML and JSON write alike.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn place(path: &Path) -> String {
    text(&path.to_string_lossy())
}

fn limits(limits: &PerMode<Option<Duration>>) -> String {
    let of = |limit: Option<Duration>| written(limit.unwrap_or_default());
    format!("{{exclusive: {}, shared: {}}}", of(limits.exclusive), of(limits.shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    const FULL: &str = "
scan: {interval: 90s, idle_interval: 5m, concurrency: 4}
labels: {hostname_rewrite: [{regex: '^pod-.*$', replacement: pod}], drop: [username]}
targets:
  - name: db01
    restic:
      repository: 'rest:https://user:hunter2@backup.example.com/db01'
      password_command: pass show hunter2
      env: {AWS_SECRET_ACCESS_KEY: hunter2}
      options: {s3.bucket-lookup: path, sftp.command: 'sshpass -p hunter2 ssh x'}
  - name: local
    restic: {repository: /srv/restic, password_file: /etc/restic/pass, env_file: /etc/restic/env}
    hold_limit: {exclusive: 6h}
    stuck_limit: 45m
  - name: apt
    file: {path: /var/lib/dpkg/lock, role: daemon}
  - name: jobs
    file: {path: '/run/*/job.lock'}
  - name: fleet
    restic: {discover: 's3:https://s3.example.com/backups', depth: 2, exclude: [tmp/*]}
";

    #[test]
    fn it_says_what_applies_and_no_secret() {
        let config = config::parse(FULL, &Overrides::default(), "web01").unwrap();
        let shown = yaml(&config);
        assert!(!shown.contains("hunter2"), "{shown}");
        for part in [
            "interval: 90s",
            "\"AWS_SECRET_ACCESS_KEY\": \"<secret>\"",
            "\"s3.bucket-lookup\": \"path\"",
            "\"sftp.command\": \"<secret>\"",
            "password_file: \"/etc/restic/pass\"",
            "stuck_limit: {exclusive: 45m, shared: 45m}",
            "role: daemon",
            "discover: \"s3:https://s3.example.com/backups\"",
            "exclude: [\"tmp/*\"]",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn it_can_be_read_as_a_configuration_that_says_the_same() {
        let config = config::parse(FULL, &Overrides::default(), "web01").unwrap();
        let shown = yaml(&config);
        let again = config::parse(&shown, &Overrides::default(), "web01").expect("it is one");
        assert_eq!(yaml(&again), shown);
    }
}
