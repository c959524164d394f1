//! What a store says of servers that refuse, lie, hang or cannot be trusted.

use super::*;
use crate::fault_server::{AUTHORITY, CLIENT, start_tls};

/// Opens `/bucket/repo` of a server and lists its locks.
async fn list_from(
    script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    variables: &[(&str, &str)],
    timeout: Duration,
) -> (Result<Listing, store::StoreError>, Vec<Seen>) {
    let server = FaultServer::start(script).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let case = Case { variables, timeout, ..Case::of(&repository) };
    let listing = case.open().expect("opens").store.list("locks").await;
    (listing, server.seen())
}

fn expect(
    listing: Result<Listing, store::StoreError>,
    kind: StoreErrorKind,
    words: &[&str],
) -> store::StoreError {
    let error = listing.expect_err("must fail");
    assert_eq!(error.kind, kind, "{error}");
    let shown = format!("{error} {}", error.advice);
    for word in words {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(shown.contains("s3:http"), "names the place: {shown}");
    for secret in [SECRET.1, TOKEN.1, "Signature=", "pl4nted"] {
        assert!(!format!("{error:?}").contains(secret), "{error:?}");
    }
    error
}

#[tokio::test]
async fn refusals_are_told_apart_and_show_no_secret() {
    use StoreErrorKind::{Archived, Failed, NotFound};
    let auth = Failed(ErrorClass::Auth);
    for (status, code, kind, word, requests) in [
        (403, "InvalidAccessKeyId", auth, "AWS_ACCESS_KEY_ID", 1),
        (403, "SignatureDoesNotMatch", auth, "AWS_SECRET_ACCESS_KEY", 1),
        (400, "ExpiredToken", auth, "AWS_SESSION_TOKEN", 1),
        (403, "RequestTimeTooSkewed", auth, "clock", 1),
        (403, "AccessDenied", Failed(ErrorClass::Permission), "s3:ListBucket", 1),
        (404, "NoSuchBucket", NotFound, "bucket's name", 1),
        (403, "InvalidObjectState", Archived, "InvalidObjectState", 1),
        (503, "SlowDown", Failed(ErrorClass::Throttled), "less often", 3),
        (500, "InternalError", Failed(ErrorClass::Other), "InternalError", 3),
        (301, "PermanentRedirect", Failed(ErrorClass::Config), "region", 1),
    ] {
        // Some servers send back what they were sent.
        let message = format!("no\n<x>{}</x> {} {}", SECRET.1, SECRET.1, TOKEN.1);
        let script = move |_: &Seen| Reply::refusal(status, code, &message);
        let (listing, seen) = list_from(script, &[KEY, SECRET, TOKEN], LIMIT).await;
        expect(listing, kind, &[code, word]);
        assert_eq!(seen.len(), requests, "{code}");
    }
    let page = |_: &Seen| Reply::xml(403, "<html><body>Forbidden</body></html>");
    let (listing, _) = list_from(page, &[KEY, SECRET], LIMIT).await;
    expect(listing, Failed(ErrorClass::Permission), &["web page"]);
    let nobody = |_: &Seen| Reply::xml(404, "404 page not found");
    let (listing, _) = list_from(nobody, &[KEY, SECRET], LIMIT).await;
    expect(listing, Failed(ErrorClass::Protocol), &["404", "S3 service"]);
}

/// Refusals of both kinds of client, and what they say of the time to come.
#[tokio::test]
async fn a_server_that_says_when_to_come_back_is_not_asked_again_before() {
    let date = |seconds: &str| format!("Tue, 01 Dec 2026 12:{seconds} GMT");
    for (status, wish, wait, words) in [
        (429, "120".to_owned(), Some(120), "again after 120 s"),
        (503, date("02:00"), Some(90), "again after 90 s"),
        (503, "soon".to_owned(), None, "503"),
        // It will not help to come back.
        (403, "120".to_owned(), None, "403"),
    ] {
        let headers = vec![("retry-after", wish), ("date", date("00:30"))];
        for scheme in ["s3:http://HOST/bucket/repo", "rest:http://HOST/repo"] {
            let headers = headers.clone();
            let script = move |_: &Seen| Reply::Answer(status, headers.clone(), Bytes::new());
            let server = FaultServer::start(script).await;
            let repository = scheme.replace("HOST", &server.host());
            let opened = Case::of(&repository).open().expect("opens");
            let error = opened.store.list("locks").await.expect_err("is refused");
            assert_eq!(error.wait, wait.map(Duration::from_secs), "{error}");
            assert!(error.to_string().contains(words), "{error}");
            let asked = if status == 503 && wait.is_none() { 3 } else { 1 };
            assert_eq!(server.seen().len(), asked, "{error}");
        }
    }
}

#[tokio::test]
async fn answers_that_are_no_whole_listing_fail() {
    let protocol = StoreErrorKind::Failed(ErrorClass::Protocol);
    let incomplete = StoreErrorKind::Failed(ErrorClass::Incomplete);
    let page = |inner: &str| format!("<ListBucketResult>{inner}</ListBucketResult>");
    let object = "<Contents><Key>other/x</Key><Size>1</Size><LastModified>2026-07-01T10:00:00Z\
                  </LastModified></Contents>";
    let (whole, cut) = ("<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated>");
    let same = format!("{cut}<NextContinuationToken>t</NextContinuationToken>");
    for (body, kind, word) in [
        ("<!DOCTYPE html><html>log in".to_owned(), protocol, "web page"),
        ("{}".into(), protocol, "no listing"),
        (page(&format!("{whole}{object}")), protocol, "not asked for"),
        (page(object), protocol, "IsTruncated"),
        (page(&format!("{cut}<NextMarker>x</NextMarker>")), incomplete, "cut the listing short"),
        (page(&same), incomplete, "same token"),
        (page(&" ".repeat(9 << 20)), incomplete, "bytes"),
    ] {
        let (listing, seen) =
            list_from(move |_| Reply::xml(200, &body), &[KEY, SECRET], LIMIT).await;
        expect(listing, kind, &[word]);
        assert!(seen.len() <= 2, "is not asked again and again");
    }
}

/// From a server that knows no delimiters, so that keys come with everything in them.
#[tokio::test]
async fn no_key_makes_a_listing_fail() {
    let parts = ["/", ".", "..", "\u{7}", "a", "B", "é", "%2F", "&", "<", "#", " ", "+", "*", "'"];
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys = BTreeSet::from([format!("repo/locks/{}", id(1))]);
    while keys.len() < 900 {
        let key: String =
            (0..random.usize(0..7)).map(|_| parts[random.usize(0..parts.len())]).collect();
        keys.insert(format!("repo/locks/{key}"));
    }
    let plain = |key: &&String| {
        object_store::path::Path::parse(key).is_ok_and(|path| path.as_ref() == key.as_str())
    };
    let (good, odd): (BTreeSet<_>, BTreeSet<_>) = keys.iter().partition(plain);
    let body: String = keys
        .iter()
        .map(|key| {
            let key = key.replace('&', "&amp;").replace('<', "&lt;").replace('\u{7}', "&#x7;");
            format!(
                "<Contents><Key>{key}</Key><Size>1</Size>\
                 <LastModified>2026-07-01T10:00:00Z</LastModified></Contents>"
            )
        })
        .collect();
    let body =
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{body}</ListBucketResult>");
    let (listing, _) = list_from(move |_| Reply::xml(200, &body), &[KEY, SECRET], LIMIT).await;
    let listing = listing.expect("lists");
    let first = |key: &&String| key["repo/locks/".len()..].split('/').next().map(str::to_owned);
    let want: BTreeSet<_> = good.iter().filter_map(first).collect();
    assert_eq!(listing.entries.iter().map(|e| e.name.clone()).collect::<BTreeSet<_>>(), want);
    // The folder's own marker is no name in it.
    let marker = usize::from(odd.contains(&"repo/locks/".to_owned()));
    assert_eq!(listing.odd.len(), odd.len() - marker);
    assert!(odd.len() > 100 && good.len() > 100, "{} {}", odd.len(), good.len());
}

#[tokio::test]
async fn servers_that_do_not_answer_fail_within_the_scan() {
    let timeout = StoreErrorKind::Failed(ErrorClass::Timeout);
    let (listing, _) = list_from(|_| Reply::Silent, &[KEY, SECRET], SHORT).await;
    expect(listing, timeout, &["list locks"]);
    let (listing, _) = list_from(|_| Reply::Trickle, &[KEY, SECRET], SHORT).await;
    expect(listing, timeout, &["list locks"]);

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = nobody.local_addr().expect("is bound");
    drop(nobody);
    let repository = format!("s3:http://{address}/bucket/repo");
    let opened = Case::of(&repository).open().expect("opens");
    let listing = opened.store.list("locks").await;
    expect(listing, StoreErrorKind::Failed(ErrorClass::Network), &["refused", "port"]);
    let (requests, failed) = opened.requests("s3", "list");
    assert_eq!((requests, failed), (3., 3.), "one request and two retries");
}

#[tokio::test]
async fn a_given_up_request_is_counted() {
    let server = FaultServer::start(|_| Reply::Silent).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let opened = Case::of(&repository).open().expect("opens");
    let arrived = async {
        while server.seen().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        listing = opened.store.list("locks") => panic!("{listing:?}"),
        () = arrived => {}
    }
    assert_eq!(opened.requests("s3", "list"), (1., 1.));
}

#[tokio::test]
async fn only_a_trusted_certificate_is_talked_to() {
    let repository = format!("s3:https://{}/bucket/repo", start_tls(false));
    let tls = StoreErrorKind::Failed(ErrorClass::Tls);
    let listing = Case::of(&repository).open().expect("opens").store.list("locks").await;
    let error = listing.expect_err("is not trusted");
    assert_eq!(error.kind, tls, "{error}");
    assert!(error.cause.contains("certificate") && error.advice.contains("cacert"), "{error:?}");

    let empty = Ok(Listing::default());
    let with_cacert = Case { cacert: Some(AUTHORITY), ..Case::of(&repository) };
    assert_eq!(with_cacert.open().expect("opens").store.list("locks").await, empty);
    let variables = [KEY, SECRET, ("RESTIC_CACERT", AUTHORITY)];
    let with_variable = Case { variables: &variables, ..Case::of(&repository) };
    assert_eq!(with_variable.open().expect("opens").store.list("locks").await, empty);
    let insecure = Case { insecure_tls: true, ..Case::of(&repository) };
    assert_eq!(insecure.open().expect("opens").store.list("locks").await, empty);

    let wrong = Case {
        cacert: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
        ..Case::of(&repository)
    };
    let listing = wrong.open().expect("opens").store.list("locks").await;
    let error = listing.expect_err("is no certificate");
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Config));
    assert!(error.to_string().contains("Cargo.toml"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_asked_for() {
    let repository = format!("s3:https://{}/bucket/repo", start_tls(true));
    let with = Case { cacert: Some(AUTHORITY), ..Case::of(&repository) };
    let error = with.open().expect("opens").store.list("locks").await.expect_err("is asked");
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Tls), "{error}");
    for (file, accepted) in [(CLIENT, true), (AUTHORITY, false)] {
        let variables = [KEY, SECRET, ("RESTIC_TLS_CLIENT_CERT", file)];
        let case = Case { variables: &variables, cacert: Some(AUTHORITY), ..Case::of(&repository) };
        let listing = case.open().expect("opens").store.list("locks").await;
        if accepted {
            assert_eq!(listing, Ok(Listing::default()));
        } else {
            let error = listing.expect_err("has no key in it");
            assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Config), "{error}");
            assert!(error.to_string().contains(file), "{error}");
        }
    }
}

#[tokio::test]
async fn the_region_is_learnt_once_from_a_refusal() {
    let bucket = Bucket::of([("repo/config", &b"x"[..])]);
    let script = move |seen: &Seen| {
        if seen.authorization.contains("/eu-central-1/s3/") {
            return bucket.reply(seen);
        }
        Reply::xml(
            400,
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>wrong region</Message>\
             <Region>eu-central-1</Region></Error>",
        )
    };
    let server = FaultServer::start(script).await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let opened = Case::of(&repository).open().expect("opens");
    for _ in 0..3 {
        assert_eq!(opened.store.list("locks").await, Ok(Listing::default()));
    }
    assert_eq!(server.seen().len(), 4, "one refusal, then three listings");
    // A region that was given is not overruled.
    let variables = [KEY, SECRET, ("AWS_DEFAULT_REGION", "us-west-2")];
    let case = Case { variables: &variables, ..Case::of(&repository) };
    let listing = case.open().expect("opens").store.list("locks").await;
    expect(listing, StoreErrorKind::Failed(ErrorClass::Auth), &["s3.region", "AWS_DEFAULT_REGION"]);
}
