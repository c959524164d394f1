use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/web")
}

#[test]
fn every_case_gets_its_verdict_and_its_reason() {
    let (mut good, mut bad) = (0, 0);
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let result = check(&path);
        if name.ends_with(".good.yml") {
            good += 1;
            assert!(result.is_ok(), "{name}: {:#}", result.unwrap_err());
        } else if name.ends_with(".bad.yml") {
            bad += 1;
            let text = fs::read_to_string(&path).unwrap();
            let expected = text.lines().next().unwrap().strip_prefix("# says: ").unwrap();
            let error = match result {
                Ok(_) => panic!("{name} was taken"),
                Err(error) => format!("{error:#}"),
            };
            assert!(error.contains(expected), "{name}: {error}");
            assert!(error.contains(".bad.yml"), "which file? {error}");
        }
    }
    assert!(good >= 20 && bad >= 40, "{good} good, {bad} bad");
}

const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

async fn value(guard: &Guard) -> Result<String, Broken> {
    let now = guard.now().await?;
    let first = now.headers.first();
    Ok(first.map_or(String::new(), |(_, value)| value.to_str().unwrap().to_owned()))
}

#[tokio::test]
async fn a_change_is_seen_and_what_looks_half_written_changes_nothing_yet() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yml");
    write(&file, "http_server_config: {headers: {X-Frame-Options: deny}}\n");
    let guard = Guard::with(Some(&file), NEVER).unwrap();
    assert_eq!(value(&guard).await.unwrap(), "deny");
    write(&file, "http_server_config: {headers: {X-Frame-Options: sameorigin}}\n");
    assert_eq!(value(&guard).await.unwrap(), "sameorigin");
    for text in ["http_server_config: {hea", ""] {
        write(&file, text);
        assert_eq!(value(&guard).await.unwrap(), "sameorigin", "{text:?}");
    }
}

#[tokio::test]
async fn a_broken_file_lets_nobody_in_until_it_is_mended_and_an_empty_one_asks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yml");
    write(&file, "http_server_config: {headers: {X-Frame-Options: deny}}\n");
    let guard = Guard::with(Some(&file), Duration::ZERO).unwrap();
    write(&file, "nonsense: true\n");
    assert_eq!(value(&guard).await, Err(Broken { tls: false }));
    write(&file, "http_server_config: {headers: {X-Frame-Options: sameorigin}}\n");
    assert_eq!(value(&guard).await.unwrap(), "sameorigin");
    write(&file, "");
    assert_eq!(value(&guard).await.unwrap(), "");
    fs::remove_file(&file).unwrap();
    assert_eq!(value(&guard).await, Err(Broken { tls: false }));
}

#[tokio::test]
async fn a_file_that_is_emptied_while_it_keeps_people_out_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yml");
    let users = "basic_auth_users: {prometheus: $2y$04$abcdefghijklmnopqrstuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu}\n";
    write(&file, users);
    let guard = Guard::with(Some(&file), Duration::ZERO).unwrap();
    assert_eq!(guard.now().await.unwrap().users.len(), 1);
    for text in ["", "# nothing\n"] {
        write(&file, text);
        assert_eq!(guard.now().await.err(), Some(Broken { tls: false }), "{text:?}");
    }
    write(&file, users);
    assert_eq!(guard.now().await.unwrap().users.len(), 1);
}

#[tokio::test]
async fn a_key_that_follows_its_certificate_breaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tls = self::folder().join("../tls");
    let place = |name: &str| folder.path().join(name);
    fs::copy(tls.join("server.pem"), place("cert")).unwrap();
    fs::copy(tls.join("server.key"), place("key")).unwrap();
    let file = place("web.yml");
    write(&file, "tls_server_config: {cert_file: cert, key_file: key}\n");
    let guard = Guard::with(Some(&file), NEVER).unwrap();
    let first = guard.now().await.unwrap().tls.clone().unwrap();
    // Read again, since it may have changed within the same tick of the clock; it has not.
    assert!(Arc::ptr_eq(&first, guard.now().await.unwrap().tls.as_ref().unwrap()));
    fs::copy(tls.join("client.pem"), place("cert")).unwrap();
    assert!(Arc::ptr_eq(&first, guard.now().await.unwrap().tls.as_ref().unwrap()));
    fs::copy(tls.join("client.pem"), place("key")).unwrap();
    assert!(!Arc::ptr_eq(&first, guard.now().await.unwrap().tls.as_ref().unwrap()));
    let mut files = guard.files();
    files.sort();
    assert_eq!(files, [place("cert"), place("key"), place("web.yml")]);
}

#[test]
fn a_file_of_the_same_size_and_time_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    write(&one, "aaaa");
    write(&two, "bbbb");
    let (before, meta) = (look(&one), fs::metadata(&one).unwrap());
    fs::File::options()
        .write(true)
        .open(&two)
        .unwrap()
        .set_modified(meta.modified().unwrap())
        .unwrap();
    fs::rename(&two, &one).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().size(), meta.size());
    assert_ne!(before, look(&one));
}
