use super::*;
use crate::label::HolderLabel;
use crate::secret::{EnvSpec, PasswordSpec};
use crate::target::SourceSpec;
use crate::target::{FileFormat, Role, Sought};

fn read(text: &str) -> Result<Config, ConfigError> {
    parse(text, &Overrides::default(), "web01")
}

fn problems(text: &str) -> Vec<String> {
    read(text).unwrap_err().0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_whole_file_becomes_targets_with_their_limits() {
    let config = read(
        "
scan: {interval: 2m, timeout: 20s, concurrency: 4, hold: 10m}
hold_limits: {restic: {exclusive: 5h}}
labels: {hostname_rewrite: [{regex: '^(a)-.*', replacement: $1}], drop: [username]}
targets:
  - name: db01
    restic:
      repository: /srv/restic/db01
      password_file: /etc/restic/db01.pass
      env: {AWS_DEFAULT_REGION: eu-central-1, NUMBER: 0123}
      options: {s3.bucket-lookup: path}
      key_hint: 5d1f
      cacert: /etc/ssl/ca.pem
    interval: 3m
    hold_limit: {shared: 0}
    stuck_limit: {exclusive: 45m, shared: 0}
  - name: sealed
    restic: {repository: /srv/restic/sealed}
",
    )
    .unwrap();
    assert_eq!(config.scan.concurrency, 4);
    assert_eq!(config.labels.drop, [HolderLabel::Username]);
    let [db01, sealed] = &config.targets[..] else { panic!("two targets") };
    assert_eq!(db01.interval, Duration::from_secs(180));
    assert_eq!(db01.timeout, Duration::from_secs(20));
    assert_eq!(&*db01.host, "web01");
    assert_eq!(db01.hold_limit.exclusive, Some(Duration::from_secs(5 * 3600)));
    assert_eq!(db01.hold_limit.shared, None);
    assert_eq!(db01.stuck_limit.exclusive, Some(Duration::from_secs(45 * 60)));
    assert_eq!(db01.stuck_limit.shared, None);
    let SourceSpec::Restic(restic) = &db01.source else { panic!("{db01:?}") };
    assert_eq!(restic.password, PasswordSpec::File("/etc/restic/db01.pass".into()));
    assert_eq!(restic.env.env["NUMBER"].expose(), b"0123");
    assert_eq!(restic.options["s3.bucket-lookup"], "path");
    assert_eq!(sealed.interval, Duration::from_secs(120));
    let SourceSpec::Restic(restic) = &sealed.source else { panic!("{sealed:?}") };
    assert_eq!(restic.password, PasswordSpec::Inherit);
}

#[test]
fn every_error_comes_at_once_with_line_and_key_and_no_secret() {
    let found = problems(
        "scan: {intervall: 60s, timeout: 60}
targets:
  - name: a
    restic: {repository: /srv/a, passwort_file: hunter2}
  - name: a
    restic: {repository: /srv/b, password: hunter3}
  - name: b
    restic: {repository: /srv/b, env: {AWS_SECRET_ACCESS_KEY: hunter4, X: [hunter5]}}
    stuck_limit: 10m
  - restic: {repository: /srv/c, password_file: /x, password_command: cat hunter6}
  - name: d
    name: e
    restic: {repository: /srv/d}
",
    );
    let text = found.join("\n");
    for expected in [
        "line 1, column 8: scan.intervall: unknown key; did you mean interval?",
        "scan.timeout: write a duration like 90s",
        "line 4, column 34: targets[0].restic.passwort_file: unknown key; did you mean password_file?",
        "targets[1].restic.password: a password does not belong into this file",
        "targets[2].restic.env.X: must be a text",
        "targets[2].stuck_limit: may not be shorter than 30m",
        "targets[3].name: every target needs a name",
        "only one of password_file, password_command can be used",
        "targets[4].name: the key stands twice, first in line 11",
    ] {
        assert!(text.contains(expected), "{expected:?} not in:\n{text}");
    }
    assert!(!text.contains("hunter"), "a secret in:\n{text}");
}

#[test]
fn one_name_twice_names_both_lines() {
    let found = problems(
        "targets:
  - {name: a, restic: {repository: /srv/a}}
  - {name: a, restic: {repository: /srv/b}}
",
    );
    assert_eq!(found, ["line 3, column 5: targets[1].name: the name \"a\" is taken in line 2"]);
}

#[test]
fn a_taken_name_is_told_beside_other_faults_of_the_targets() {
    let found = problems(
        "targets:
  - {name: a, restic: {repository: /srv/a}, intervall: 5m}
  - {name: a, restic: {repository: /srv/b, env: {AWS_SECRET_ACCESS_KEY=hunter2}}}
",
    );
    let text = found.join("\n");
    assert!(text.contains("the name \"a\" is taken in line 2"), "{text}");
    assert!(text.contains("did you mean interval?"), "{text}");
    assert!(text.contains("names no variable"), "{text}");
    assert!(!text.contains("hunter"), "{text}");
}

#[test]
fn a_target_that_would_vanish_between_two_scans_is_refused() {
    let text = |interval: &str| {
        format!("targets: [{{name: a, interval: {interval}, restic: {{repository: /srv/a}}}}]")
    };
    assert!(problems(&text("15m"))[0].contains("shorter than scan.hold"));
    assert!(problems(&text("0"))[0].contains("shorter than 1s"));
    assert!(read(&text("14m")).is_ok());
}

#[test]
fn repositories_without_locks_may_be_scanned_less_often() {
    let text = "
scan: {idle_interval: 5m}
targets:
  - {name: a, restic: {repository: /srv/a}}
  - {name: b, restic: {repository: /srv/b}, idle_interval: 10m}
  - {name: c, restic: {repository: /srv/c}, interval: 7m}
  - {name: d, restic: {discover: /srv/d}}
  - {name: e, file: {path: /run/e.lock}}
";
    let config = read(text).unwrap();
    let idle: Vec<_> = config.targets.iter().map(|it| it.idle().map(|it| it.as_secs())).collect();
    // One that is scanned less often anyway is scanned evenly; a search is always repeated, and
    // what it finds is not; looking at a lock file costs nothing.
    assert_eq!(idle, [Some(300), Some(600), None, None, None]);
    let [.., search, _] = &config.targets[..] else { panic!("{config:?}") };
    let name = TargetName::new("d/x").unwrap();
    assert_eq!(search.find(&name, "x".as_ref()).unwrap().idle(), Some(Duration::from_secs(300)));

    for (text, expected) in [
        (
            "scan: {idle_interval: 30s}\ntargets: [{name: a, restic: {repository: /srv/a}}]",
            "idle_interval (30s) is shorter than interval (1m)",
        ),
        (
            "targets: [{name: a, idle_interval: 15m, restic: {repository: /srv/a}}]",
            "idle_interval (15m) plus timeout (30s) must be shorter than scan.hold (15m)",
        ),
        (
            "targets: [{name: a, idle_interval: 5m, file: {path: /run/a.lock}}]",
            "targets[0].idle_interval: is for repositories",
        ),
    ] {
        assert!(problems(text)[0].contains(expected), "{:?}", problems(text));
    }
    let overrides =
        Overrides { idle_interval: Some(Duration::from_secs(420)), ..Overrides::default() };
    let config = parse(text, &overrides, "").unwrap();
    assert_eq!(config.targets[0].idle(), Some(Duration::from_secs(420)));
}

#[test]
fn nothing_to_watch_is_an_error() {
    for text in ["", "targets: []\n", "scan: {interval: 60s}\n", "# only a comment\n"] {
        assert!(problems(text)[0].contains("nothing to watch"), "{text:?}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let overrides = Overrides { interval: Some(Duration::from_secs(5)), ..Overrides::default() };
    let text = "scan: {interval: 60s}\ntargets: [{name: a, restic: {repository: /srv/a}}]";
    let config = parse(text, &overrides, "").unwrap();
    assert_eq!(config.targets[0].interval, Duration::from_secs(5));
}

#[test]
fn durations_are_written_with_units() {
    for (text, seconds) in
        [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1d", 86_400), ("0", 0), ("1500ms", 1)]
    {
        assert_eq!(duration(text).map(|d| d.as_secs()), Ok(seconds), "{text}");
    }
    for text in ["0", "90s", "15m", "4h", "24h", "7d", "1h30m", "1h5s", "25h1m1s", "1500ms"] {
        assert_eq!(written(duration(text).unwrap()), text);
    }
    for text in ["", "60", "m", "1x", "-5m", "1.5h", "99999999999999999999s", "999999999w", "é"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in "\\PC*|[ -~\\n]{0,200}") {
        let _ = read(&text);
    }
}

#[test]
fn lock_files_have_a_role_and_a_format() {
    let text = "
hold_limits: {file: {job: 2h}}
targets:
  - {name: apt, file: {path: /var/lib/dpkg/lock-frontend, role: job}, stuck_limit: 5m}
  - {name: agent, file: {path: /run/agent.lock, role: daemon}}
  - {name: pacman, file: {path: /var/lib/pacman/db.lck, format: exists}, hold_limit: 30m}
";
    let config = parse(text, &Overrides::default(), "web01").unwrap();
    let [apt, agent, pacman] = &config.targets[..] else { panic!("{config:?}") };
    let SourceSpec::File(file) = &pacman.source else { panic!("{pacman:?}") };
    assert_eq!((file.role, file.format), (Role::Job, FileFormat::Exists));
    assert_eq!(apt.hold_limit.exclusive, Some(Duration::from_secs(2 * 3600)));
    // Nobody refreshes a lock file, so restic's limit is not its least one.
    assert_eq!(apt.stuck_limit.shared, Some(Duration::from_secs(300)));
    assert_eq!(agent.hold_limit.exclusive, None);
    assert_eq!(pacman.hold_limit.shared, Some(Duration::from_secs(1800)));
    assert_eq!((apt.source_name(), apt.backend(), &*apt.host), ("file", "", "web01"));
}

#[test]
fn everything_wrong_with_lock_files_is_said_at_once() {
    let text = "
targets:
  - {name: a, file: {role: deamon}}
  - {name: b, file: {path: run/b.lock, format: flock}}
  - {name: c, file: {path: /run/c.lock}, restic: {repository: /srv/c}}
  - {name: d, file: {path: '/run/**/x.lock'}}
  - {name: e, file: {path: '/run/*.lock', max: 0}}
  - {name: f, file: {path: /run/f.lock, max: 5}}
";
    let ConfigError(problems) = parse(text, &Overrides::default(), "web01").unwrap_err();
    let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "targets[0].file",
        "targets[0].file.role",
        "targets[1].file.path",
        "targets[1].file.format",
        "targets[2]",
        "targets[3].file.path",
        "targets[4].file.max",
        "targets[5].file.max",
    ];
    assert_eq!(keys, expected, "{problems:?}");
}

#[test]
fn a_pattern_of_lock_files_is_a_search() {
    let text = "
hold_limits: {file: {job: 2h}}
targets:
  - {name: jobs, file: {path: '/run/*/job.lock', max: 7}}
  - {name: agents, file: {path: '/run/agent-?.pid', role: daemon, format: pid}}
";
    let config = read(text).unwrap();
    let [jobs, agents] = &config.targets[..] else { panic!("{config:?}") };
    let search = jobs.search().unwrap();
    assert!(matches!(&search.sought, Sought::Files(files) if files.glob.parts.len() == 2));
    assert_eq!((search.max, agents.search().unwrap().max), (7, 200));
    assert_eq!(jobs.hold_limit.exclusive, Some(Duration::from_secs(2 * 3600)));
    assert_eq!(agents.hold_limit.exclusive, None, "a daemon may hold its lock for ever");
    assert_eq!((jobs.source_name(), &*jobs.host), ("file", "web01"));
    assert_eq!(jobs.location(), "/run/*/job.lock");
}

#[test]
fn repositories_are_searched_below_a_place() {
    let text = "
targets:
  - name: fleet
    restic:
      discover: s3:https://s3.example.com/backups
      depth: 2
      exclude: [tmp/*]
      include: host*/**
      password_file: /etc/restic/{name}.pass
  - name: disk
    restic: {discover: /srv/restic}
";
    let config = read(text).unwrap();
    let [fleet, disk] = &config.targets[..] else { panic!("{config:?}") };
    let search = fleet.search().unwrap();
    let Sought::Repositories(sought) = &search.sought else { panic!("{search:?}") };
    assert_eq!((sought.depth, search.max), (2, 10_000));
    assert_eq!((sought.exclude.len(), sought.include.len()), (1, 1));
    assert_eq!((fleet.backend(), fleet.host.len()), ("s3", 0));
    assert_eq!(fleet.location(), "s3:https://s3.example.com/backups");
    let Sought::Repositories(sought) = &disk.search().unwrap().sought else { panic!("{disk:?}") };
    assert_eq!((sought.depth, &*disk.host), (1, "web01"));
}

#[test]
fn everything_wrong_with_a_search_is_said_at_once() {
    let text = "
targets:
  - {name: a, restic: {discover: /srv, repository: /srv/a}}
  - {name: b, restic: {repository: /srv/b, depth: 2, max: 3}}
  - {name: c, restic: {discover: 'rest:https://rest.example.com/'}}
  - {name: d, restic: {discover: 'rclone:remote:path', depth: 17, max: 0, exclude: ['[z-a]']}}
  - {name: e, restic: {discover: /srv, password_command: 'pass show {name}'}}
  - {name: f, restic: {repository: /srv/f, password_file: '/etc/{name}'}}
  - {name: g, restic: {discover: 'b2:bucket:x'}}
";
    let ConfigError(problems) = read(text).unwrap_err();
    let mut keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    keys.sort();
    let expected = [
        "targets[0].restic.discover",
        "targets[1].restic.depth",
        "targets[1].restic.max",
        "targets[2].restic.discover",
        "targets[3].restic.depth",
        "targets[3].restic.discover",
        "targets[3].restic.exclude",
        "targets[3].restic.max",
        "targets[4].restic.password_command",
        "targets[5].restic.password_file",
        "targets[6].restic.discover",
    ];
    assert_eq!(keys, expected, "{problems:?}");
    let rest = problems.iter().find(|problem| problem.key.starts_with("targets[2]")).unwrap();
    assert!(rest.message.contains("name each with repository"), "says what to do: {rest}");
}

#[test]
fn a_configured_name_leaves_room_for_what_is_found_below_it() {
    let named = |length| {
        let name = "x".repeat(length);
        format!("targets: [{{name: {name}, restic: {{repository: /srv/a}}}}]")
    };
    assert!(read(&named(128)).is_ok());
    assert!(problems(&named(129))[0].contains("at most 128 bytes"));
}

#[test]
fn a_repository_may_stand_in_the_variables_of_its_target() {
    let text = "
targets:
  - {name: a, restic: {env_dir: /secrets/a, env_file: /etc/a.env}}
  - {name: b, restic: {env: {RESTIC_REPOSITORY: /srv/b}}}
  - {name: c, restic: {env_dir: /secrets/c, repository: /srv/c}}
";
    let config = parse_with(text, &Overrides::default(), "h", &Around).unwrap();
    let places = config.targets.iter().map(|target| match &target.source {
        SourceSpec::Restic(restic) => restic.repository.to_string(),
        other => panic!("{other:?}"),
    });
    assert_eq!(places.collect::<Vec<_>>(), ["/srv/secrets/a", "/srv/b", "/srv/c"]);
}

#[test]
fn variables_that_cannot_be_read_are_a_problem_of_their_target() {
    let text = "targets:
  - {name: a, restic: {env_dir: /absent/a}}
  - {name: b, restic: {env_dir: /secrets/b, env_file: /absent/b}}
";
    let said = around(text);
    assert!(said[0].contains("targets[0].restic: needs repository"), "{said:?}");
    assert_eq!(said[1], "line 2, column 33: targets[0].restic.env_dir: no /absent/a");
    assert!(said.contains(&"line 3, column 55: targets[1].restic.env_file: no /absent/b".into()));
    // One that names none is told what is needed.
    let text = "targets: [{name: a, restic: {env_dir: /secrets/a}}]";
    let ConfigError(problems) = parse(text, &Overrides::default(), "h").unwrap_err();
    assert!(problems[0].message.contains("RESTIC_REPOSITORY"), "{problems:?}");
}

#[test]
fn what_a_target_names_and_is_not_there_comes_with_line_and_key_beside_all_else() {
    let said = around(
        "targets:
  - name: a
    restic:
      repository: /srv/a
      env_file: /absent/e
      password_file: /absent/p
      cacert: [/there, /absent/c]
  - {name: b, restic: {repository: /srv/b, password_env: ABSENT}, intervall: 5m}
  - {name: c, restic: {repository: /srv/c, env: {RESTIC_PASSWORD_FILE: /absent}}}
  - {name: d, restic: {discover: /srv, masterkey_file: '/absent/{name}'}}
",
    );
    let expected = [
        "line 5, column 17: targets[0].restic.env_file: no /absent/e",
        "line 6, column 22: targets[0].restic.password_file: no File(/absent/p)",
        "line 7, column 24: targets[0].restic.cacert: no /absent/c",
        "line 8, column 58: targets[1].restic.password_env: no Variable(ABSENT)",
        "line 8, column 67: targets[1].intervall: unknown key; did you mean interval?",
        "line 9, column 49: targets[2].restic.env: no Inherit",
    ];
    assert_eq!(said, expected);
}

/// Everything is there but what has `absent` in its name.
struct Around;

impl Surroundings for Around {
    fn repository(&self, spec: &EnvSpec) -> Result<Option<String>, String> {
        let file = spec.env_file.iter().map(|file| Named::EnvFile(file));
        let mut named = file.chain(spec.env_dir.iter().map(|folder| Named::EnvDir(folder)));
        match named.find_map(|named| self.fault(named)) {
            Some(fault) => Err(fault),
            None => Ok(match (&spec.env_dir, spec.env.get(REPOSITORY_VARIABLE)) {
                (_, Some(own)) => Some(String::from_utf8(own.expose().to_vec()).unwrap()),
                (Some(dir), None) => Some(format!("/srv{}", dir.display())),
                (None, None) => None,
            }),
        }
    }

    fn fault(&self, named: Named<'_>) -> Option<String> {
        let name = match named {
            Named::Opener(PasswordSpec::Inherit, env) => {
                env.env.contains_key("RESTIC_PASSWORD_FILE").then(|| "Inherit".to_owned())?
            }
            Named::Opener(password, _) => format!("{password:?}"),
            Named::EnvFile(path) | Named::EnvDir(path) | Named::Authorities(path) => {
                path.display().to_string()
            }
        };
        let absent = name == "Inherit" || name.to_lowercase().contains("absent");
        absent.then(|| format!("no {name}"))
    }
}

fn around(text: &str) -> Vec<String> {
    let ConfigError(problems) = parse_with(text, &Overrides::default(), "h", &Around).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}
