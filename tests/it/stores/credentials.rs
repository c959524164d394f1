//! Where the credentials for S3 come from, when no variable holds them.

use std::os::unix::fs::PermissionsExt;

use super::*;

const OFF: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

/// Lists from a server that answers everybody; the result and the key ids of the requests.
async fn list(variables: &[(&str, &str)]) -> (Result<Listing, store::StoreError>, Vec<String>) {
    let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let opened = Case { variables, ..Case::of(&repository) }.open().expect("opens");
    let listing = opened.store.list("locks").await;
    let ids = server.seen().into_iter().map(|seen| {
        let id = seen.authorization.split("Credential=").nth(1).unwrap_or_default().to_owned();
        id.split('/').next().unwrap_or_default().to_owned()
    });
    (listing, ids.collect())
}

async fn signed_by(variables: &[(&str, &str)]) -> Vec<String> {
    let (listing, ids) = list(variables).await;
    assert_eq!(listing, Ok(Listing::default()));
    ids
}

async fn refused(variables: &[(&str, &str)], words: &[&str]) -> store::StoreError {
    let (listing, ids) = list(variables).await;
    let error = listing.expect_err("has no credentials");
    assert_eq!(ids, Vec::<String>::new(), "nothing unsigned is sent");
    let shown = format!("{error} {}", error.advice);
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(!format!("{error:?}").contains("pl4nted"), "{error:?}");
    error
}

#[tokio::test]
async fn profiles_are_read_as_people_have_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let home = dir.path().to_str().expect("UTF-8");
    std::fs::create_dir(dir.path().join(".aws")).expect("makes");
    let credentials = dir.path().join(".aws/credentials");
    let write = |id: &str| {
        let text = format!(
            "[default]\naws_access_key_id = {id}\naws_secret_access_key = pl4nted\n\
             [other]\naws_access_key_id = OTHER\naws_secret_access_key = pl4nted\n\
             [sso]\nsso_session = x\n"
        );
        std::fs::write(&credentials, text).expect("writes");
    };
    write("FIRST");
    let variables = [("HOME", home), OFF];
    assert_eq!(signed_by(&variables).await, ["FIRST"]);
    write("SECOND");
    assert_eq!(signed_by(&variables).await, ["SECOND"], "read anew when opened anew");
    assert_eq!(signed_by(&[("AWS_PROFILE", "other"), ("HOME", home), OFF]).await, ["OTHER"]);
    let file = credentials.to_str().expect("UTF-8");
    assert_eq!(signed_by(&[("AWS_SHARED_CREDENTIALS_FILE", file), OFF]).await, ["SECOND"]);
    let both = [("HOME", home), KEY, SECRET];
    assert_eq!(signed_by(&both).await, ["AKIAEXAMPLE"], "variables come first");

    let sso = [("AWS_PROFILE", "sso"), ("HOME", home), OFF];
    refused(&sso, &["profile sso", "credential_process", "export-credentials"]).await;
    let missing = [("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/file"), OFF];
    refused(&missing, &["/nonexistent/file"]).await;
    let nothing = [("HOME", "/nonexistent"), OFF];
    let error = refused(&nothing, &["neither AWS_ACCESS_KEY_ID", "/nonexistent/.aws", "Set"]).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Config));
}

#[tokio::test]
async fn a_program_is_asked_again_when_what_it_gave_expires() {
    let dir = tempfile::tempdir().expect("a folder");
    let (script, asked) = (dir.path().join("get keys"), dir.path().join("asked"));
    let config = dir.path().join("config");
    let line = format!("[profile p]\ncredential_process = \"{}\" pl4nted\n", script.display());
    std::fs::write(&config, line).expect("writes");
    let write = |body: &str| {
        let text = format!("#!/bin/sh\necho x >> {}\n{body}\n", asked.display());
        std::fs::write(&script, text).expect("writes");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("is ours");
    };
    let keys = |expiration: &str| {
        write(&format!(
            "echo '{{\"Version\":1,\"AccessKeyId\":\"ISSUED\",\"SecretAccessKey\":\"pl4nted\",\
             \"SessionToken\":\"pl4nted\",\"Expiration\":\"{expiration}\"}}'"
        ));
    };
    let config = config.to_str().expect("UTF-8");
    let variables = [("AWS_CONFIG_FILE", config), ("AWS_PROFILE", "p"), OFF];
    for (expiration, times) in [("2099-01-01T00:00:00Z", 1), ("2020-01-01T00:00:00Z", 2)] {
        keys(expiration);
        let _ = std::fs::remove_file(&asked);
        let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
        let repository = format!("s3:http://{}/bucket/repo", server.host());
        let case = Case { variables: &variables, ..Case::of(&repository) };
        let opened = case.open().expect("opens");
        for _ in 0..2 {
            opened.store.list("locks").await.expect("lists");
        }
        assert!(server.seen().iter().all(|seen| seen.authorization.contains("=ISSUED/")));
        let asked = std::fs::read_to_string(&asked).expect("was asked");
        assert_eq!(asked.lines().count(), times, "{expiration}");
    }
    write("echo 'the session is over, log in' >&2; exit 1");
    let error = refused(&variables, &["credential_process", "the session is over"]).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Auth));
    write("echo '{\"AccessKeyId\":\"pl4nted\"'");
    refused(&variables, &["no credential"]).await;
}

const ISSUED: &str = r#"{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"ISSUED",
    "SecretAccessKey":"pl4nted","Token":"pl4nted","LastUpdated":"2026-01-01T00:00:00Z",
    "Expiration":"2099-01-01T00:00:00Z"}"#;

#[tokio::test]
async fn services_of_machines_and_containers_are_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let token = dir.path().join("token");
    std::fs::write(&token, "pl4nted").expect("writes");
    let token = token.to_str().expect("UTF-8");
    let services = FaultServer::start(|seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        match path {
            "/latest/api/token" => Reply::xml(200, "pl4nted"),
            "/latest/meta-data/iam/security-credentials/" => Reply::xml(200, "role"),
            "/latest/meta-data/iam/security-credentials/role" | "/pod" => Reply::xml(200, ISSUED),
            "/" => Reply::xml(
                200,
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                 <SessionToken>pl4nted</SessionToken><SecretAccessKey>pl4nted</SecretAccessKey>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration><AccessKeyId>ISSUED</AccessKeyId>\
                 </Credentials></AssumeRoleWithWebIdentityResult>\
                 </AssumeRoleWithWebIdentityResponse>",
            ),
            _ => Reply::xml(404, ""),
        }
    })
    .await;
    let url = format!("http://{}", services.host());
    let pod = format!("{url}/pod");
    let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
    let identity = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
        ("AWS_ENDPOINT_URL_STS", &url),
        OFF,
    ];
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token),
        OFF,
    ];
    for variables in [&machine[..], &identity, &container] {
        assert_eq!(signed_by(variables).await, ["ISSUED"], "{variables:?}");
    }

    let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let case = Case { variables: &machine, ..Case::of(&repository) };
    let opened = case.open().expect("opens");
    for _ in 0..3 {
        opened.store.list("locks").await.expect("lists");
    }
    assert_eq!(opened.requests("s3", "list"), (3., 0.));
    let (asked, failed) = opened.requests("s3", "credentials");
    assert!((1. ..=3.).contains(&asked) && failed == 0., "once, and not for each request");
}

#[tokio::test]
async fn services_that_refuse_or_are_not_there_are_told() {
    let nobody = format!("http://127.0.0.1:{}", server::free_port());
    let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", nobody.as_str())];
    let words = ["neither AWS_ACCESS_KEY_ID", "127.0.0.1, which gives out", "AWS_SECRET"];
    let error = refused(&machine, &words).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Config), "{error}");
    let refuses = FaultServer::start(|_| Reply::xml(403, "pl4nted")).await;
    let url = format!("http://{}/pod", refuses.host());
    let dir = tempfile::tempdir().expect("a folder");
    let token = dir.path().join("token");
    std::fs::write(&token, "pl4nted").expect("writes");
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().expect("UTF-8")),
    ];
    let error = refused(&container, &["which gives out credentials", "403"]).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Auth), "{error}");
    let url = format!("http://{}", refuses.host());
    let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
    let error = refused(&machine, &["neither AWS_ACCESS_KEY_ID", "403"]).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Config), "{error}");
}

const ROLE: (&str, &str) = ("RESTIC_AWS_ASSUME_ROLE_ARN", "arn:aws:iam::123456789012:role/backups");

#[tokio::test]
async fn a_role_is_taken_on_once_and_signs_the_requests() {
    let service = format!("http://{}", Moto::bucket("role").await.host);
    let role = [KEY, SECRET, ROLE, ("RESTIC_AWS_ASSUME_ROLE_STS_ENDPOINT", &service), OFF];
    let server = FaultServer::start(|_| Reply::xml(200, EMPTY)).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let case = Case { variables: &role, ..Case::of(&repository) };
    let opened = case.open().expect("opens");
    for _ in 0..3 {
        opened.store.list("locks").await.expect("lists");
    }
    assert_eq!(opened.requests("s3", "credentials"), (1., 0.), "one hour holds for all three");
    for seen in server.seen() {
        assert!(seen.authorization.contains("Credential=ASIA"), "{}", seen.authorization);
    }
}

#[tokio::test]
async fn a_role_that_is_refused_is_told_with_the_services_words() {
    let refuses = FaultServer::start(|_| {
        Reply::xml(
            403,
            "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>may not \
             assume it with pl4nted+secret/key</Message></Error></ErrorResponse>",
        )
    })
    .await;
    let url = format!("http://{}", refuses.host());
    let role = [KEY, SECRET, ROLE, ("RESTIC_AWS_ASSUME_ROLE_STS_ENDPOINT", url.as_str())];
    let words = ["127.0.0.1: ", "AccessDenied", "may not assume", "RESTIC_AWS_ASSUME_ROLE_ARN"];
    let error = refused(&role, &words).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Permission), "{error}");
    assert!(refuses.seen()[0].authorization.contains("/sts/aws4_request"));

    let nonsense = FaultServer::start(|_| Reply::xml(200, "<html>pl4nted</html>")).await;
    let url = format!("http://{}", nonsense.host());
    let role = [KEY, SECRET, ROLE, ("RESTIC_AWS_ASSUME_ROLE_STS_ENDPOINT", url.as_str())];
    let error = refused(&role, &["without keys"]).await;
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Protocol), "{error}");
}
