use std::path::Path;

use super::*;

/// Files that hold their own paths; those of `absent` are not there.
struct Paths;

impl Pems for Paths {
    fn read(&mut self, path: &Path) -> Result<Secret, String> {
        if path.ends_with("absent") {
            return Err(format!("no {}", path.display()));
        }
        Ok(Secret::new(path.to_str().unwrap()))
    }

    fn take(&mut self, tls: &TlsConfig) -> Result<(), String> {
        if tls.key.expose() == b"other" { Err("no pair".into()) } else { Ok(()) }
    }
}

fn parsed(text: &str) -> WebConfig {
    parse(text, Path::new("/etc/lock-exporter"), &mut Paths).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    let error = parse(text, Path::new(""), &mut Paths).unwrap_err();
    error.0.iter().map(ToString::to_string).collect()
}

#[test]
fn files_that_cannot_be_read_are_told_with_line_and_key_beside_all_else() {
    let found = problems(
        "tls_server_config:
  cert_file: absent
  key_file: k/absent
  client_auth_type: VerifyClientCertIfGiven
  client_ca_file: absent
basic_auth_users: {john: doe}
",
    );
    let expected = [
        "line 2, column 14: tls_server_config.cert_file: no absent",
        "line 3, column 13: tls_server_config.key_file: no k/absent",
        "line 5, column 19: tls_server_config.client_ca_file: no absent",
    ];
    assert_eq!(found[..3], expected);
    assert!(found[3].starts_with("line 6, column 26: basic_auth_users.john: must be"), "{found:?}");
    let found = problems("rate_limit: {burst: x}\ntls_server_config: {cert: a, key: other}\n");
    assert!(found[1].starts_with("line 2,") && found[1].ends_with("_config: no pair"), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let tls = parsed("tls_server_config: {cert_file: a.pem, key_file: /k/b.key}").tls.unwrap();
    assert_eq!(tls.cert.expose(), b"/etc/lock-exporter/a.pem");
    assert_eq!(tls.key.expose(), b"/k/b.key");
    assert_eq!((tls.min, tls.max), (TlsVersion::Tls12, TlsVersion::Tls13));
}

#[test]
fn every_word_for_client_certificates_means_what_it_says() {
    for (word, verifies, requires) in [
        ("NoClientCert", false, false),
        ("RequestClientCert", false, false),
        ("RequireAnyClientCert", false, true),
        ("RequireClientCert", false, true),
        ("VerifyClientCertIfGiven", true, false),
        ("RequireAndVerifyClientCert", true, true),
    ] {
        let text = format!("tls_server_config: {{cert: a, key: b, client_auth_type: {word}}}");
        let auth = parsed(&text).tls.unwrap().client_auth;
        assert_eq!((auth.verifies(), auth.requires()), (verifies, requires), "{word}");
    }
}

#[test]
fn only_a_file_that_says_nothing_is_empty() {
    for (text, empty) in [("", true), ("# words\n", true), ("tls_server_config:\n", false)] {
        assert_eq!(parsed(text).empty, empty, "{text:?}");
    }
}

#[test]
fn no_error_and_no_debug_output_shows_a_key_a_hash_or_a_password() {
    let text = "tls_server_config: {cert: a, key: pl4nted}\nbasic_auth_users:\n  a: \
                $2b$04$abcdefghijklmnopqrstuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu\n";
    let shown = format!("{:?}", parse(text, Path::new(""), &mut Paths));
    assert!(!shown.contains("pl4nted") && !shown.contains("$2b$04"), "{shown}");
    let wrong =
        "basic_auth_users: {john: pl4nted}\ntls_server_config: {key: pl4nted, min: pl4nted}";
    let error = problems(wrong).concat();
    assert!(error.contains("bcrypt") && !error.contains("pl4nted"), "{error}");
}

#[test]
fn a_rate_needs_an_interval_to_be_one() {
    assert_eq!(parsed("rate_limit: {burst: 3}").rate_limit, None);
    let rate = parsed("rate_limit: {interval: 1m30s, burst: 3}").rate_limit.unwrap();
    assert_eq!(rate, RateLimit { interval: Duration::from_secs(90), burst: 3 });
}
