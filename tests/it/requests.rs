//! Requests as no well-behaved client sends them, byte by byte: what each is answered.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::binary::Serving;

/// Everything that comes back until the other side closes.
fn answer(serving: &Serving, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    // Whoever is refused may be cut off while still sending.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn every_request_gets_the_answer_that_http_knows_for_it() {
    let serving = Serving::start(&["-r", "/nonexistent"]);
    let long_query = format!("GET /metrics?{} HTTP/1.1", "collect[]=junk&".repeat(3_000));
    let query_of_100_kb = format!("GET /metrics?{} HTTP/1.1", "collect[]=junk&".repeat(7_000));
    let long_line = format!("GET /{} HTTP/1.1", "a".repeat(1_000_000));
    let many = format!("GET /metrics HTTP/1.1\r\nAccept: {}", "a/b;q=0.1,".repeat(1_000));
    let cases = [
        ("GET /metrics HTTP/1.1", "200"),
        ("GET http://other.example/metrics HTTP/1.1", "200"),
        ("GET /metrics HTTP/1.1\r\nRange: bytes=0-9", "200"),
        ("GET /metrics HTTP/1.1\r\nExpect: 100-continue", "200"),
        ("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk", "200"),
        ("GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip;q=0", "200"),
        (&many, "200"),
        ("GET //metrics HTTP/1.1", "404"),
        ("GET /metrics/ HTTP/1.1", "404"),
        ("GET /%6detrics HTTP/1.1", "404"),
        ("GET /metrics/../config HTTP/1.1", "404"),
        (&long_query, "400"),
        (&query_of_100_kb, "414"),
        (&long_line, "431"),
        ("POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk", "405"),
        ("DELETE /metrics HTTP/1.1", "405"),
        ("DELETE /nowhere HTTP/1.1", "405"),
        ("OPTIONS * HTTP/1.1", "405"),
        ("TRACE / HTTP/1.1", "405"),
        ("BREW / HTTP/1.1", "405"),
        ("CONNECT other.example:443 HTTP/1.1", "405"),
        ("GET /metrics HTTP/1.1\r\nNa\0me: x", "400"),
        ("GET /metrics HTTP/1.1\r\nName: \0", "400"),
        ("GET /metrics HTTP/1.1\r\nHost: y", "400"),
        ("GET /metrics HTTP/3.7", "400"),
    ];
    for (lines, expected) in cases {
        let (head, rest) = lines.split_once("\r\n").unwrap_or((lines, ""));
        let rest = if rest.is_empty() { String::new() } else { format!("\r\n{rest}") };
        let request = format!("{head}\r\nHost: x\r\nConnection: close{rest}\r\n\r\n");
        let answer = answer(&serving, request.as_bytes());
        let lines: String = lines.chars().take(90).collect();
        // Who is refused while still sending may see a reset instead of the answer.
        if answer.is_empty() && matches!(expected, "414" | "431") {
            continue;
        }
        let said: String = answer.chars().take(300).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{lines:?}: {said:?}");
        assert_eq!(
            expected == "405",
            said.contains("\r\nallow: GET, HEAD\r\n"),
            "{lines:?}: {said}"
        );
        assert!(!said.contains("content-encoding"), "{lines:?}: {said}");
    }
}

#[test]
fn a_request_names_one_host() {
    let serving = Serving::start(&["-r", "/nonexistent"]);
    for (head, expected) in [
        ("GET /metrics HTTP/1.1\r\nConnection: close", "HTTP/1.1 400 "),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\nHost: x\r\nConnection: close", "HTTP/1.1 400 "),
        ("GET /metrics HTTP/1.1\r\nHost: a b\r\nConnection: close", "HTTP/1.1 400 "),
        ("GET /metrics HTTP/1.1\r\nHost:\r\nConnection: close", "HTTP/1.1 200 "),
        ("GET /metrics HTTP/1.1\r\nHost: [::1]:10130\r\nConnection: close", "HTTP/1.1 200 "),
        ("GET /metrics HTTP/1.0", "HTTP/1.0 200 "),
    ] {
        let answer = answer(&serving, format!("{head}\r\n\r\n").as_bytes());
        assert!(answer.starts_with(expected), "{head:?}: {:?}", answer.get(..200));
    }
    // HTTP/0.9 has neither versions nor heads.
    assert!(!answer(&serving, b"GET /metrics\r\n").contains("lock_"));
}
