use std::path::Path;

use super::*;

fn parsed(text: &str) -> WebConfig {
    parse(text, Path::new("/etc/lock-exporter")).unwrap()
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let tls = parsed("tls_server_config: {cert_file: a.pem, key_file: /k/b.key}").tls.unwrap();
    let place = |material: &Material| match material {
        Material::File(path) => path.clone(),
        Material::Inline(_) => panic!("inline"),
    };
    assert_eq!(place(&tls.cert), Path::new("/etc/lock-exporter/a.pem"));
    assert_eq!(place(&tls.key), Path::new("/k/b.key"));
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
    let shown = format!("{:?}", parse(text, Path::new("")));
    assert!(!shown.contains("pl4nted") && !shown.contains("$2b$04"), "{shown}");
    let wrong =
        "basic_auth_users: {john: pl4nted}\ntls_server_config: {key: pl4nted, min: pl4nted}";
    let error = parse(wrong, Path::new("")).unwrap_err().to_string();
    assert!(error.contains("bcrypt") && !error.contains("pl4nted"), "{error}");
}

#[test]
fn a_rate_needs_an_interval_to_be_one() {
    assert_eq!(parsed("rate_limit: {burst: 3}").rate_limit, None);
    let rate = parsed("rate_limit: {interval: 1m30s, burst: 3}").rate_limit.unwrap();
    assert_eq!(rate, RateLimit { interval: Duration::from_secs(90), burst: 3 });
}
