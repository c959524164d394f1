//! `azure:` against Azurite (`AZURITE` names `azurite-blob`) and `gs:` against fake-gcs-server
//! (`GCS_SERVER`), and both against scripts.

use std::process::Command;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::server::{Server, free_port, program};
use super::*;

/// A folder's name is no lock on these, and what lies below may be.
const CAN: Can = Can { kinds: false, below: Some(EntryKind::Deeper), ..EVERYTHING };

const ACCOUNT: (&str, &str) = ("AZURE_ACCOUNT_NAME", "devstoreaccount1");
/// The key that Azurite publishes.
pub const KEY: (&str, &str) = (
    "AZURE_ACCOUNT_KEY",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
);

/// Account signatures by that key: what they allow, until when.
const ALL: &str = "sv=2018-11-09&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&sig=CPoOux8rQhR0b5pwICKRhVPCypVOv2XSgLfWcXpc32c%3D";
const READ: &str = "sv=2018-11-09&ss=b&srt=sco&sp=r&se=2099-01-01T00%3A00%3A00Z&sig=4d1WnWuGbvNtemVb%2B4LqVfksvhHlkWAL5bOI2HJCdkY%3D";
const READ_LIST: &str = "?sv=2018-11-09&ss=b&srt=sco&sp=rl&se=2099-01-01T00%3A00%3A00Z&sig=0%2FVtRkDqkEaYPBKkcGJrNKjjCY4p8MHNSYBwLtOsorg%3D";
const EXPIRED: &str = "sv=2018-11-09&ss=b&srt=sco&sp=rl&se=2020-01-01T00%3A00%3A00Z&sig=8YnhsxWMkAStOjpj7dZ5XfvLZw8m%2BKvCEpG3qBcKvKI%3D";

pub struct Azurite {
    dir: tempfile::TempDir,
    _server: Server,
    url: String,
}

impl Azurite {
    /// Azurite with one container, `box`.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let mut command = Command::new(program("AZURITE"));
        command
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .args(["--disableTelemetry", "--skipApiVersionCheck", "--location"])
            .arg(dir.path());
        let server = Server::on_port(&mut command, &dir.path().join("log"), port);
        let url = format!("http://127.0.0.1:{port}");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let container = format!("{url}/devstoreaccount1/box?restype=container&{ALL}");
        let made = reqwest::Client::new().put(container).header("content-length", 0).send().await;
        assert!(made.expect("Azurite answers").status().is_success());
        Self { dir, _server: server, url }
    }

    pub async fn put(&self, objects: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let writer = MicrosoftAzureBuilder::new()
            .with_account("devstoreaccount1")
            .with_container_name("box")
            .with_endpoint(format!("{}/devstoreaccount1", self.url))
            .with_allow_http(true)
            .with_config(AzureConfigKey::SasKey, ALL)
            .build()
            .expect("is complete");
        for (key, content) in objects {
            let path = object_store::path::Path::parse(key).expect("is a key");
            writer.put(&path, content.into()).await.expect("writes");
        }
    }

    async fn fill(&self, prefix: &str, more: &[&str]) {
        let more = more.iter().map(|name| (name.to_string(), &b"x"[..]));
        let all = fixture().into_iter().chain(more);
        self.put(all.map(|(key, content)| (format!("{prefix}{key}"), content.to_vec()))).await;
    }

    pub fn variables<'a>(&'a self, login: &'a [(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [&[ACCOUNT, ("AZURITE_BLOB_STORAGE_URL", self.url.as_str())], login].concat()
    }

    async fn list(&self, repository: &str, login: &[(&str, &str)]) -> store::StoreError {
        let variables = self.variables(login);
        let case = Case { variables: &variables, ..Case::of(repository) };
        case.open().expect("opens").store.list("locks").await.expect_err("must fail")
    }
}

fn expect(error: &store::StoreError, class: ErrorClass, words: &[&str]) {
    let shown = format!("{error} {}", error.advice);
    assert_eq!(error.kind.class(), class, "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let debug = format!("{error:?}");
    for secret in ["pl4nted", "sig=", &KEY.1[..20], "sv=2018"] {
        assert!(!debug.contains(secret), "{debug}");
    }
}

#[tokio::test]
async fn azure_behaves() {
    let azurite = Azurite::start().await;
    for prefix in ["", "bäckup/repo/"] {
        azurite.fill(prefix, &[]).await;
        for login in [KEY, ("AZURE_ACCOUNT_SAS", READ_LIST)] {
            let variables = azurite.variables(std::slice::from_ref(&login));
            let repository = format!("azure:box:/{prefix}");
            let case = Case { variables: &variables, ..Case::of(&repository) };
            let opened = case.open().expect("opens");
            behaves(&*opened.store, CAN).await;
            // One more each time, for what lies below a folder.
            assert_eq!(opened.requests("azure", "list"), (4., 0.));
            assert_eq!(opened.requests("azure", "stat"), (4., 1.));
            assert!(!format!("{:?}", opened.store).contains(&KEY.1[..20]));
        }
    }
    let log = std::fs::read_to_string(azurite.dir.path().join("log")).expect("reads");
    assert!(log.contains("comp=list"), "{log}");
    assert!(!log.contains("\"DELETE "), "a monitor that only reads");
}

/// restic lists everything below and takes the last part of the name.
#[tokio::test]
async fn a_lock_below_a_folder_of_azure_is_found_by_its_name() {
    let azurite = Azurite::start().await;
    let below = [format!("locks/old/deep/{}", id(8)), format!("locks/old/{}", id(1))];
    azurite.fill("", &[&below[0], &below[1]]).await;
    let variables = azurite.variables(&[KEY]);
    let case = Case { variables: &variables, ..Case::of("azure:box:/") };
    let listing = case.open().expect("opens").store.list("locks").await.expect("lists");
    let found = names(&listing);
    assert_eq!(found[&*id(8)], (EntryKind::Deeper, 1));
    assert_eq!(found[&*id(4)], (EntryKind::Deeper, 1));
    assert_eq!(found[&*id(1)], (EntryKind::File, 7), "the one that can be read");
}

#[tokio::test]
async fn azures_refusals_are_told_apart() {
    let azurite = Azurite::start().await;
    azurite.fill("", &[]).await;
    let sas = |value: &'static str| [("AZURE_ACCOUNT_SAS", value)];
    let error = azurite.list("azure:box:/", &sas(READ)).await;
    expect(&error, ErrorClass::Permission, &["list locks", "sp=rl", "azure:box:/"]);
    let error = azurite.list("azure:box:/", &sas(EXPIRED)).await;
    expect(&error, ErrorClass::Auth, &["expired", "AZURE_ACCOUNT_SAS"]);
    let wrong = [("AZURE_ACCOUNT_KEY", "cGw0bnRlZA==")];
    let error = azurite.list("azure:box:/", &wrong).await;
    expect(&error, ErrorClass::Auth, &["AZURE_ACCOUNT_KEY"]);
    let error = azurite.list("azure:none:/", &[KEY]).await;
    expect(&error, ErrorClass::NotFound, &["ContainerNotFound", "container's name"]);

    let open = |variables: &[(&str, &str)]| {
        Case { variables, ..Case::of("azure:box:/") }.open().err().expect("is incomplete")
    };
    expect(&open(&[]), ErrorClass::Config, &["AZURE_ACCOUNT_NAME"]);
    expect(&open(&[("AZURE_ACCOUNT_NAME", "a/pl4nted")]), ErrorClass::Config, &["NAME holds"]);
    // Not even the letter that is wrong is quoted.
    let error = open(&[("AZURE_ACCOUNT_NAME", "box"), ("AZURE_ACCOUNT_KEY", "pl4ntedkey==")]);
    expect(&error, ErrorClass::Config, &["read the account key: AZURE_ACCOUNT_KEY is no base64"]);
}

/// A server over the buckets in `data`, and its address.
pub fn google(dir: &Path) -> (Server, String) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(program("GCS_SERVER"));
    command
        .args(["-scheme", "http", "-host", "127.0.0.1", "-port", &port.to_string()])
        .args(["-public-host", &address, "-external-url", &format!("http://{address}")])
        .args(["-backend", "memory", "-data"])
        .arg(dir.join("data"));
    (Server::on_port(&mut command, &dir.join("log"), port), address)
}

#[tokio::test]
async fn google_behaves() {
    let dir = tempfile::tempdir().expect("a folder");
    make_folder(&dir.path().join("data/bucket"));
    make_folder(&dir.path().join("data/bucket/bäckup/repo"));
    let (_server, address) = google(dir.path());
    let variables = [("STORAGE_EMULATOR_HOST", address.as_str())];
    let repository = "gs:bucket:/bäckup/repo";
    let opened = Case { variables: &variables, ..Case::of(repository) }.open().expect("opens");
    behaves(&*opened.store, CAN).await;
    assert_eq!(opened.requests("gs", "list"), (4., 0.));
}

#[tokio::test]
async fn googles_credentials_that_cannot_work_are_told() {
    let open = |variables: &'static [(&str, &str)]| {
        Case { variables, ..Case::of("gs:bucket:/") }.open().map(|opened| opened.store)
    };
    let error = open(&[("GOOGLE_ACCESS_TOKEN", "pl4nted token")]).expect_err("holds a blank");
    expect(&error, ErrorClass::Config, &["GOOGLE_ACCESS_TOKEN"]);
    let file = open(&[("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")]).expect("opens");
    let error = file.list("locks").await.expect_err("is missing");
    expect(
        &error,
        ErrorClass::Config,
        &["gs:bucket:/", "/nonexistent/key.json", "GOOGLE_APPLICATION_CREDENTIALS"],
    );
}

#[tokio::test]
async fn googles_refusals_are_told_apart() {
    for (status, code, class, word) in [
        (404, "NoSuchBucket", ErrorClass::NotFound, "gs:BUCKET"),
        (403, "AccessDenied", ErrorClass::Permission, "storage.objects.list"),
        (401, "AuthenticationRequired", ErrorClass::Auth, "GOOGLE_ACCESS_TOKEN"),
        (503, "ServiceUnavailable", ErrorClass::Throttled, "less often"),
    ] {
        let server = FaultServer::start(move |_| Reply::refusal(status, code, "no")).await;
        let host = server.host();
        let variables = [("STORAGE_EMULATOR_HOST", host.as_str())];
        let case = Case { variables: &variables, ..Case::of("gs:bucket:/repo") };
        let error = case.open().expect("opens").store.list("locks").await.expect_err(code);
        expect(&error, class, &[code, word, "gs:bucket:/repo"]);
    }
}

/// Lists an empty container that takes every token of `service`; what both were asked.
async fn with_identity(
    service: &str,
    login: &[(&str, &str)],
) -> Result<Vec<Seen>, store::StoreError> {
    let empty = "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>";
    let server = FaultServer::start(move |_| Reply::xml(200, empty)).await;
    let (url, service) = (format!("http://{}", server.host()), format!("http://{service}"));
    let place = [ACCOUNT, ("AZURITE_BLOB_STORAGE_URL", url.as_str())];
    let login = login.iter().map(|(name, value)| match *value {
        "SERVICE" => (*name, service.as_str()),
        value => (*name, value),
    });
    let variables: Vec<_> = place.into_iter().chain(login).collect();
    let case = Case { variables: &variables, ..Case::of("azure:box:/") };
    let opened = case.open().expect("opens");
    for _ in 0..2 {
        opened.store.list("locks").await?;
    }
    assert_eq!(opened.requests("azure", "credentials"), (1., 0.), "a token holds for both");
    Ok(server.seen())
}

/// Microsoft's own services cannot be had for a test; what they are asked is documented.
#[tokio::test]
async fn azures_identities_are_asked_for_a_token() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("token");
    std::fs::write(&file, "pl4nted").expect("writes");
    let file = file.display().to_string();
    let tenant = [("AZURE_CLIENT_ID", "id"), ("AZURE_TENANT_ID", "tenant")];
    let authority = ("AZURE_AUTHORITY_HOST", "SERVICE");
    let secret = [&tenant[..], &[authority, ("AZURE_CLIENT_SECRET", "pl4nted")]].concat();
    let federated = [&tenant[..], &[authority, ("AZURE_FEDERATED_TOKEN_FILE", &file)]].concat();
    let machine = vec![("IDENTITY_ENDPOINT", "SERVICE")];
    for (login, path) in [
        (&secret, "/tenant/oauth2/v2.0/token"),
        (&federated, "/tenant/oauth2/v2.0/token"),
        (&machine, "/?"),
    ] {
        let service = FaultServer::start(|_| {
            let hour = "2099-01-01T00:00:00Z".parse::<jiff::Timestamp>().expect("is a time");
            Reply::xml(
                200,
                &format!(
                    r#"{{"access_token":"issued","token_type":"Bearer","expires_in":3600,
                    "expires_on":"{}"}}"#,
                    hour.as_second()
                ),
            )
        })
        .await;
        let seen = with_identity(&service.host(), login).await.expect("lists");
        assert!(seen.iter().all(|seen| seen.authorization == "Bearer issued"), "{seen:?}");
        let asked = service.seen();
        assert!(asked[0].target.starts_with(path), "{}", asked[0].target);
    }
    let refuses = FaultServer::start(|_| Reply::xml(401, "pl4nted")).await;
    let error = with_identity(&refuses.host(), &secret).await.expect_err("is refused");
    expect(&error, ErrorClass::Auth, &["which gives out credentials", "401"]);
    let error = with_identity(&refuses.host(), &machine).await.expect_err("is refused");
    expect(&error, ErrorClass::Auth, &["which gives out credentials", "401"]);
}
