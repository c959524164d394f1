//! Each request of a scan fails in turn, in every way: what is told is the truth or an error, and
//! the next scan tells all of it again, but for single files that were refused, which are left
//! alone for a while.

use std::sync::Mutex;

use lock_exporter::scan::{Look, ScanError};
use lock_exporter::source::LockSource;

use super::everywhere::{files, make, told};
use super::*;
use crate::target::{context, reader_of, scan};

/// One request that does not work, whenever it is sent.
#[derive(Default)]
pub(super) struct Trouble {
    /// Requests so far, each once: a retry is the same request.
    pub known: Vec<(String, String)>,
    /// Which of them fails, counted from 0.
    pub fails: Option<usize>,
}

impl Trouble {
    pub fn hits(&mut self, seen: &Seen) -> bool {
        let request = (seen.method.clone(), seen.target.clone());
        let number = self.known.iter().position(|known| *known == request).unwrap_or_else(|| {
            self.known.push(request);
            self.known.len() - 1
        });
        self.fails == Some(number)
    }
}

type Way = (&'static str, fn() -> Reply);

fn ways_to_fail() -> Vec<Way> {
    vec![
        ("500", || Reply::refusal(500, "InternalError", "We encountered an internal error.")),
        ("503", || Reply::refusal(503, "SlowDown", "Please reduce your request rate.")),
        ("403", || Reply::refusal(403, "AccessDenied", "Access Denied")),
        ("expired", || Reply::refusal(400, "ExpiredToken", "The provided token has expired.")),
        ("a proxy's page", || Reply::xml(200, "<html>please log in</html>")),
        ("nothing", || Reply::xml(200, "")),
        ("redirect", || {
            Reply::Answer(302, vec![("location", "http://[::1]:1/".into())], Bytes::new())
        }),
        ("cut", || Reply::Cut(Bytes::from_static(b"<ListBucketResult>"))),
    ]
}

/// An error, or all the locks: each as it is, or, when its own file was refused, sealed.
pub(super) fn is_true(result: &Result<Look, ScanError>, truth: &[String], what: &str) {
    let look = match result {
        Ok(look) => look,
        Err(error) => {
            let wrong = [ErrorClass::WrongPassword, ErrorClass::Damaged, ErrorClass::NotFound];
            assert!(!wrong.contains(&error.class), "{what}: {error}");
            return;
        }
    };
    let told = told(look);
    let name = |text: &String| text.split(' ').next().unwrap_or_default().to_owned();
    let names = |all: &[String]| all.iter().map(name).collect::<Vec<_>>();
    assert_eq!(names(&told), names(truth), "{what}");
    for (told, truth) in told.iter().zip(truth) {
        assert!(told == truth || told.ends_with(" permission"), "{what}: {told} for {truth}");
    }
}

pub(super) async fn recovers(source: &dyn LockSource, truth: &[String], refused: bool, what: &str) {
    let look = scan(source).await.unwrap_or_else(|error| panic!("after {what}: {error}"));
    if !refused {
        assert_eq!(told(&look), truth, "after {what}");
    }
    is_true(&Ok(look), truth, what);
}

async fn every_request_fails_once(bucket: Bucket) {
    let trouble = Arc::<Mutex<Trouble>>::default();
    let reply = Arc::new(Mutex::new(ways_to_fail()[0].1));
    let (shared, how) = (trouble.clone(), reply.clone());
    let server =
        FaultServer::start(move |seen| match shared.lock().expect("is whole").hits(seen) {
            true => (how.lock().expect("is whole"))(),
            false => bucket.reply(seen),
        })
        .await;
    let repository = format!("s3:http://{}/bucket/repo", server.host());
    let variables = [KEY, SECRET, ("RESTIC_PASSWORD", "p")];
    let open = || reader_of(&repository, PasswordSpec::Inherit, &variables, &[], &context());
    let set = |fails: Option<usize>| {
        let mut trouble = trouble.lock().expect("is whole");
        *trouble = Trouble { fails, known: vec![] };
    };
    let source = open();
    let truth = told(&scan(&*source).await.expect("looks"));
    let cold = trouble.lock().expect("is whole").known.len();
    set(None);
    scan(&*source).await.expect("looks");
    let warm = trouble.lock().expect("is whole").known.len();
    for (name, way) in ways_to_fail() {
        *reply.lock().expect("is whole") = way;
        for number in 0..cold {
            let source = open();
            set(Some(number));
            let what = format!("{name} to request {number} of the first scan");
            is_true(&scan(&*source).await, &truth, &what);
            set(None);
            recovers(&*source, &truth, name == "403", &what).await;
        }
        for number in 0..warm {
            set(Some(number));
            let what = format!("{name} to request {number} of a later scan");
            is_true(&scan(&*source).await, &truth, &what);
            set(None);
            recovers(&*source, &truth, name == "403", &what).await;
        }
    }
}

#[tokio::test]
async fn every_request_of_a_scan_fails_once_and_nothing_false_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("repo");
    make(&root);
    let mut all = Vec::new();
    files(dir.path(), "", &mut all);
    every_request_fails_once(Bucket::of(all.clone())).await;
    let free = all.into_iter().filter(|(name, _)| !name.contains("/locks/"));
    every_request_fails_once(Bucket::of(free)).await;
}
