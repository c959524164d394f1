//! What people write: configuration, places, secrets, queries. And names that others choose.

use std::path::Path;

use lock_exporter::config::web::{Pems, TlsConfig};
use lock_exporter::config::{self, Overrides};
use lock_exporter::exposition::configuration;
use lock_exporter::exposition::format::Format;
use lock_exporter::exposition::json::{EventsAsk, LocksAsk, TargetsAsk};
use lock_exporter::exposition::page::Ask;
use lock_exporter::label;
use lock_exporter::location::Location;
use lock_exporter::pattern::{Glob, Pattern};
use lock_exporter::secret::{Secret, text};
use lock_exporter::store::credentials::profile;

use crate::parsers::{Parser, kind, kind_of_many, none};

const KIB: usize = 1024;

const YAML_WORDS: &[&str] = &[
    "scan:",
    "interval:",
    "timeout:",
    "hold:",
    "concurrency:",
    "hold_limits:",
    "labels:",
    "drop:",
    "hostname_rewrite:",
    "targets:",
    "name:",
    "restic:",
    "repository:",
    "file:",
    "path:",
    "role:",
    "format:",
    "stuck_limit:",
    "discover:",
    "exclude:",
    "password_file:",
    "password_command:",
    "env:",
    "options:",
    "shard:",
    "\n",
    "  - ",
    "&a",
    "*a",
    "<<: *a",
    "!!str ",
    "|\n",
    ">\n",
    "? ",
    ": ",
    "---",
    "...",
    "# ",
    "{",
    "}",
    "[",
    "]",
    "null",
    "~",
    "0x10",
    ".inf",
    "1h30m",
    "{name}",
    "\t",
];

/// The configuration file.
pub const CONFIGURATION: Parser = Parser {
    name: "configuration",
    words: YAML_WORDS,
    samples: none,
    // The deepest nesting that is read takes two; aliases of aliases take more, until the reader
    // of YAML gives up.
    base: 4 << 20,
    each: 600,
    run: configuration,
};

/// The web configuration file. Nothing of it may be shown that protects something.
pub const WEB: Parser = Parser {
    name: "web-configuration",
    words: &[
        "tls_server_config:",
        "cert_file:",
        "key_file:",
        "cert:",
        "key:",
        "client_auth_type:",
        "client_ca_file:",
        "min_version:",
        "max_version:",
        "TLS13",
        "TLS10",
        "cipher_suites:",
        "curve_preferences:",
        "http_server_config:",
        "http2:",
        "headers:",
        "X-Frame-Options:",
        "basic_auth_users:",
        "rate_limit:",
        "interval:",
        "burst:",
        "NoClientCert",
        "RequireAndVerifyClientCert",
        "planted-secret",
        "$2b$04$",
        "\n",
        "  ",
        "{",
        "}",
        "[",
        "]",
        "true",
    ],
    samples: none,
    base: 4 << 20,
    each: 200,
    run: web,
};

pub const DURATION: Parser = Parser {
    name: "duration",
    words: &["ns", "us", "ms", "s", "m", "h", "d", "w", "y", ".5", "-", "+", " "],
    samples: none,
    base: KIB,
    each: 8,
    run: duration,
};

/// The strings that name repositories.
pub const LOCATION: Parser = Parser {
    name: "location",
    words: &[
        "s3:",
        "https://",
        "http://",
        "http+unix://",
        "rest:",
        "sftp:",
        "sftp://",
        "rclone:",
        "azure:",
        "gs:",
        "b2:",
        "swift:",
        "local:",
        "user:pw@",
        "[::1]",
        ":8000",
        "/",
        "//",
        "..",
        "%2f",
        "%00",
        "@",
        ":",
        "?a=b",
        "#",
        ".sock:",
        "/repo/",
    ],
    samples: none,
    base: 4 * KIB,
    each: 60,
    run: location,
};

/// Patterns for paths. The operator writes them; an expression of a pattern takes megabytes.
pub const PATTERN: Parser = Parser {
    name: "pattern",
    words: &["*", "?", "**", "[a-z]", "[!a]", "[", "]", "/", "\\", "-", "!"],
    samples: none,
    base: 32 << 20,
    each: 64,
    run: pattern,
};

pub const ASSIGNMENTS: Parser = Parser {
    name: "assignments",
    words: &[
        "export ", "=", "'", "\"", "\\", "\\\n", "#", ";", "$HOME", "`", "~", "\n", "\r\n", "$'",
    ],
    samples: none,
    base: 4 * KIB,
    each: 80,
    run: assignments,
};

pub const PASSWORD: Parser = Parser {
    name: "password",
    words: &["\u{feff}", "\n", "\r\n", "\u{a0}", "\u{2028}", "\0"],
    samples: || vec![b"\xff\xfes\0e\0c\0".to_vec(), b"\xfe\xff\0s\0e\xd8\x3d\xdc\x64".to_vec()],
    base: KIB,
    each: 8,
    run: password,
};

pub const COMMAND: Parser = Parser {
    name: "command",
    words: &["'", "\"", "\\", " ", "\\'", "\\\"", "pass show "],
    samples: none,
    base: KIB,
    each: 60,
    run: command,
};

pub const PROFILES: Parser = Parser {
    name: "profiles",
    words: &["[default]", "[profile a]", "[a]", "=", " = ", " #", " ;", "\n", "aws_access_key_id"],
    samples: none,
    base: 4 * KIB,
    each: 100,
    run: profiles,
};

pub const ACCEPT: Parser = Parser {
    name: "accept",
    words: &[
        "text/plain",
        "application/openmetrics-text",
        "version=1.0.0",
        "version=0.0.4",
        ";",
        ",",
        "q=",
        "*/*",
        "0.5",
        "escaping=underscores",
        "application/vnd.google.protobuf",
    ],
    samples: none,
    base: KIB,
    each: 8,
    run: accept,
};

/// What pages and API are asked for.
pub const QUERY: Parser = Parser {
    name: "query",
    words: &[
        "q=",
        "state=",
        "page=",
        "name=",
        "refresh=",
        "offset=",
        "limit=",
        "target=",
        "mode=",
        "kind=",
        "verdict=",
        "&",
        "+",
        "%20",
        "%ff",
        "stuck",
        "exclusive",
        "readable",
        "stale",
        "acquired",
    ],
    samples: none,
    base: 4 * KIB,
    each: 16,
    run: query,
};

/// Host and user names on their way to labels.
pub const LABEL: Parser = Parser {
    name: "label",
    words: &["\u{fffd}", "\u{202e}", "\n", "\"", "\\", "\u{85}", "\u{1f464}"],
    samples: none,
    base: 4 * KIB,
    each: 8,
    run: label,
};

fn as_text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

fn configuration(input: &[u8]) -> u64 {
    let Some(text) = as_text(input) else { return 0 };
    match config::parse(text, &Overrides::default(), "here") {
        Ok(config) => {
            assert!(!config.targets.is_empty(), "nothing to watch, and no error");
            let shown = configuration::yaml(&config);
            kind_of_many(&shown, config.targets.len())
        }
        Err(error) => {
            assert!(!error.0.is_empty(), "an error that says nothing");
            // YAML ends a line at a lone carriage return, too.
            let lines = text.split(['\n', '\r']).count() as u32 + 1;
            for problem in &error.0 {
                assert!(problem.line <= lines, "a problem in line {} of {lines}", problem.line);
            }
            kind(&error.0.iter().map(|problem| problem.message.as_str()).collect::<String>())
        }
    }
}

/// Any file is there, and anything goes together.
struct Unread;

impl Pems for Unread {
    fn read(&mut self, _: &Path) -> Result<Secret, String> {
        Ok(Secret::new("planted-secret"))
    }

    fn take(&mut self, _: &TlsConfig) -> Result<(), String> {
        Ok(())
    }
}

fn web(input: &[u8]) -> u64 {
    let Some(text) = as_text(input) else { return 0 };
    let parsed = config::web::parse(text, Path::new("/etc"), &mut Unread);
    // Of a key with that name the name is shown.
    let shown = format!("{parsed:?}");
    if text.matches("planted-secret").count() == text.matches("key: planted-secret").count() {
        assert!(!shown.contains("planted-secret"), "{shown}");
    }
    match parsed {
        Ok(config) => kind_of_many(&format!("{config:?}"), config.users.len()),
        Err(error) => {
            assert!(!error.0.is_empty(), "an error that says nothing");
            kind(&error.0.iter().map(|problem| problem.message.as_str()).collect::<String>())
        }
    }
}

fn duration(input: &[u8]) -> u64 {
    match as_text(input).map(config::duration) {
        Some(Ok(duration)) => kind_of_many("ok", duration.as_secs() as usize),
        Some(Err(error)) => kind(&error.chars().take(9).collect::<String>()),
        None => 0,
    }
}

fn location(input: &[u8]) -> u64 {
    let Some(text) = as_text(input) else { return 0 };
    match Location::parse(text) {
        Ok(location) => {
            let shown = [location.to_string(), format!("{location:?}"), location.target_name()];
            let below = location.below("a/b").is_some();
            kind_of_many(&format!("{} {below}", location.scheme()), shown[0].len())
        }
        Err(error) => kind(&error.0.chars().take(20).collect::<String>()),
    }
}

fn pattern(input: &[u8]) -> u64 {
    let Some(text) = as_text(input) else { return 0 };
    let glob = Glob::new(text);
    match Pattern::new(text) {
        Some(pattern) => {
            assert_eq!(pattern.as_str(), text);
            kind(&format!("{} {}", pattern.matches(b"a/b/locks"), glob.is_ok()))
        }
        None => kind(&format!("none {}", glob.is_ok())),
    }
}

fn assignments(input: &[u8]) -> u64 {
    match text::assignments(input) {
        Ok(found) => {
            for (name, _) in &found {
                let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                assert!(!name.is_empty() && name.bytes().all(good), "{name:?}");
            }
            kind_of_many("ok", found.len())
        }
        Err(bad) => kind(bad.cause),
    }
}

fn password(input: &[u8]) -> u64 {
    let secret = text::of_file(input);
    assert_eq!(text::trim(&secret), &**secret, "it still has white space");
    kind_of_many("", secret.len())
}

fn command(input: &[u8]) -> u64 {
    let Some(line) = as_text(input) else { return 0 };
    match text::split_command(line) {
        Ok(parts) => {
            assert!(!parts.is_empty(), "a command of nothing");
            kind_of_many("ok", parts.len())
        }
        Err(why) => kind(why),
    }
}

fn profiles(input: &[u8]) -> u64 {
    let Some(text) = as_text(input) else { return 0 };
    let found =
        ["default", "a"].map(|name| profile::find(text, name).map_or(0, |found| found.len()));
    kind_of_many(&format!("{}", found[0] > 0), found[1])
}

fn accept(input: &[u8]) -> u64 {
    let Some(header) = as_text(input) else { return 0 };
    kind(&Format::accepted(header).content_type())
}

fn query(input: &[u8]) -> u64 {
    let Some(query) = as_text(input) else { return 0 };
    let asked = [
        Ask::parse(query).err(),
        TargetsAsk::parse(query).err(),
        LocksAsk::parse(query).err(),
        EventsAsk::parse(query).err(),
    ];
    for error in asked.iter().flatten() {
        assert!(error.len() < 1_000, "an error of {} bytes", error.len());
    }
    kind(&format!("{asked:?}"))
}

fn label(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let clean = label::clean(&text, label::BYTES_MAX);
    let short = label::shortened(&text, label::BYTES_MAX);
    for value in [&*clean, &*short] {
        assert!(value.len() <= label::BYTES_MAX, "{} bytes", value.len());
        assert!(!value.contains(|c: char| c.is_control() || c == '\u{fffd}'), "{value:?}");
    }
    assert_eq!(label::clean(&clean, label::BYTES_MAX), clean, "not clean yet");
    kind_of_many(if short.contains('~') { "cut" } else { "" }, short.len())
}
