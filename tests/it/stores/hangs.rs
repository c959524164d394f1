//! A server that falls silent at each request of a scan, at every point of an answer: the scan ends
//! by its time limit, the connection is given up, no task stays behind, and the next scan is whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use lock_exporter::source::{Context, LockSource};
use tokio::runtime::Handle;

use super::every_request::{Trouble, is_true, recovers};
use super::everywhere::{files, make, told};
use super::*;
use crate::fault_server::{AUTHORITY, tls_config};
use crate::target::{context, reader_limited, scan};

/// Of a scan. All before the silence must fit in, on a busy machine too.
const SCAN: Duration = Duration::from_secs(3);
/// Scans at a time.
const TOGETHER: usize = 24;

/// Where the server falls silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    /// Nothing is read, so that with TLS there is no handshake either.
    Connection,
    /// The request is read.
    Request,
    /// A part of the answer's head is sent.
    Head,
    /// A part of its body is sent.
    Body,
}

/// A server on threads of its own, so that every task of the runtime is the client's.
struct Silent {
    shared: Arc<Shared>,
    address: String,
}

struct Shared {
    bucket: Bucket,
    rest: bool,
    point: Mutex<Option<Point>>,
    trouble: Mutex<Trouble>,
    connections: AtomicUsize,
    /// Connections that fell silent, and those of them that the client gave up.
    silent: AtomicUsize,
    given_up: AtomicUsize,
}

impl Silent {
    fn start(bucket: Bucket, rest: bool, tls: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("is bound").to_string();
        let (point, trouble) = Default::default();
        let (connections, silent, given_up) = Default::default();
        let shared =
            Arc::new(Shared { bucket, rest, point, trouble, connections, silent, given_up });
        let serving = Arc::clone(&shared);
        let tls = tls.then(|| tls_config(false));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, tls) = (Arc::clone(&serving), tls.clone());
                std::thread::spawn(move || shared.serve(stream, tls));
            }
        });
        Self { shared, address }
    }

    /// Falls silent at this request or connection from now on, counted from 0; or never.
    fn fall_silent(&self, at: Option<(usize, Point)>) {
        let fails = at.filter(|(_, point)| *point != Point::Connection).map(|(number, _)| number);
        *self.shared.trouble.lock().expect("is whole") = Trouble { fails, known: vec![] };
        *self.shared.point.lock().expect("is whole") = at.map(|(_, point)| point);
        let left = match at {
            Some((number, Point::Connection)) => number,
            _ => usize::MAX,
        };
        self.shared.connections.store(left, Ordering::SeqCst);
    }

    /// Waits until the client has closed every silent connection, and there was one.
    async fn is_given_up(&self, what: &str) {
        let Shared { silent, given_up, .. } = &*self.shared;
        until(what, || {
            let (silent, given_up) =
                (silent.load(Ordering::SeqCst), given_up.load(Ordering::SeqCst));
            silent > 0 && given_up == silent
        })
        .await;
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>) {
        let left = |left: usize| left.checked_sub(1);
        if self.connections.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err() {
            return self.say_nothing(stream);
        }
        match tls {
            None => self.answer(&mut stream),
            Some(config) => {
                let session = rustls::ServerConnection::new(config).expect("is configured");
                self.answer(&mut rustls::StreamOwned::new(session, stream));
            }
        }
    }

    /// Answers one request, and closes the connection if it was answered whole.
    fn answer(&self, stream: &mut (impl Read + Write)) {
        let mut lines = BufReader::new(&mut *stream).lines().map_while(Result::ok);
        let Some(request) = lines.next() else { return };
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let mut words = request.split(' ').map(str::to_owned);
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
        let accept = head.iter().any(|line| line.contains("restic.rest.v2"));
        let none = String::new;
        let seen = Seen {
            method,
            target,
            authorization: none(),
            accept: if accept { "v2".into() } else { none() },
            cache_control: none(),
        };
        let hit = self.trouble.lock().expect("is whole").hits(&seen);
        let point = self.point.lock().expect("is whole").filter(|_| hit);
        if point == Some(Point::Request) {
            return self.say_nothing(stream);
        }
        let reply = if self.rest { self.bucket.rest(&seen) } else { self.bucket.reply(&seen) };
        let Reply::Answer(status, headers, body) = reply else { return };
        let mut text = format!("HTTP/1.1 {status} OK\r\nconnection: close\r\n");
        for (name, value) in &headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "content-length") {
            text += &format!("content-length: {}\r\n", body.len());
        }
        text += "\r\n";
        let whole = [text.as_bytes(), &body].concat();
        let sent = match point {
            None => whole.len(),
            Some(Point::Head) => text.len() / 2,
            Some(_) => text.len() + body.len() / 2,
        };
        // A client that gives up meanwhile is what this is about.
        let _ = stream.write_all(&whole[..sent]).and_then(|()| stream.flush());
        if point.is_some() && sent < whole.len() {
            self.say_nothing(stream);
        }
    }

    fn say_nothing(&self, mut stream: impl Read) {
        self.silent.fetch_add(1, Ordering::SeqCst);
        let mut rest = Vec::new();
        // Until the other side closes it, in whatever way.
        let _ = stream.read_to_end(&mut rest);
        self.given_up.fetch_add(1, Ordering::SeqCst);
    }
}

/// Threads and other tasks tell nobody when they are done.
async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, wait).await.is_ok(), "{what}");
}

/// One way to reach a repository in a server's memory.
#[derive(Clone, Copy)]
struct Way {
    location: fn(&str) -> String,
    rest: bool,
    tls: bool,
}

const WAYS: [Way; 3] = [
    Way { location: |host| format!("s3:http://{host}/bucket/repo"), rest: false, tls: false },
    Way { location: |host| format!("rest:http://{host}/repo"), rest: true, tls: false },
    Way { location: |host| format!("s3:https://{host}/bucket/repo"), rest: false, tls: true },
];

/// A first scan, or with `warm` one after it, during which the server falls silent.
async fn one(way: Way, bucket: Bucket, number: usize, point: Point, warm: bool, shared: &Context) {
    let server = Silent::start(bucket, way.rest, way.tls);
    let what = format!("{:?} {number} of {} (warm: {warm})", point, (way.location)("host"));
    let source = open(way, &server, shared);
    let mut truth = None;
    server.fall_silent(None);
    if warm {
        truth = Some(told(&scan(&*source).await.expect("looks")));
    }
    server.fall_silent(Some((number, point)));
    let result = tokio::time::timeout(LIMIT, scan(&*source)).await.expect("ends");
    let error = result.expect_err(&what);
    // `object_store` asks for the rest of a body that stops, and this server knows no ranges.
    let rest = point == Point::Body && error.class == ErrorClass::Protocol;
    assert!(error.class == ErrorClass::Timeout || rest, "{what}: {error}");
    server.is_given_up(&what).await;
    server.fall_silent(None);
    let truth = match truth {
        Some(truth) => truth,
        None => told(&scan(&*open(way, &server, shared)).await.expect("looks")),
    };
    is_true(&Err(error), &truth, &what);
    recovers(&*source, &truth, false, &what).await;
}

fn open(way: Way, server: &Silent, shared: &Context) -> Box<dyn LockSource> {
    let variables = [KEY, SECRET, ("RESTIC_PASSWORD", "p"), ("RESTIC_CACERT", AUTHORITY)];
    let variables = if way.tls { &variables[..] } else { &variables[..3] };
    reader_limited(&(way.location)(&server.address), variables, SCAN, shared)
}

/// How many requests a first scan sends, each once.
async fn requests(way: Way, bucket: &Bucket, shared: &Context) -> usize {
    let server = Silent::start(bucket.clone(), way.rest, way.tls);
    server.fall_silent(None);
    scan(&*open(way, &server, shared)).await.expect("looks");
    server.shared.trouble.lock().expect("is whole").known.len()
}

#[tokio::test]
async fn a_server_that_falls_silent_at_any_point_ends_the_scan_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    make(&dir.path().join("repo"));
    let mut all = Vec::new();
    files(dir.path(), "", &mut all);
    let bucket = Bucket::of(all);
    let shared = context();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut cases = Vec::new();
    for way in WAYS {
        let count = requests(way, &bucket, &shared).await;
        assert!(count > 5, "{count}");
        let points = match way.tls {
            // All else is as without.
            true => vec![Point::Connection],
            false => vec![Point::Connection, Point::Request, Point::Head, Point::Body],
        };
        for point in points {
            cases.extend((0..count).map(|number| (way, number, point, false)));
            cases.push((way, 0, point, true));
        }
    }
    let mut runs: Vec<_> = cases
        .into_iter()
        .map(|(way, number, point, warm)| one(way, bucket.clone(), number, point, warm, &shared))
        .collect();
    while !runs.is_empty() {
        let rest = runs.split_off(TOGETHER.min(runs.len()));
        join_all(std::mem::replace(&mut runs, rest)).await;
    }
    until("no task is left behind", || tasks() == before).await;
}
