//! The landing page: plain HTML, no script, everything from outside escaped.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;

use crate::status::Status;

/// The page at `/` as of `now`.
pub fn landing(status: &Status, _now: Timestamp, _hold: Duration, telemetry_path: &str) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>lock_exporter</title>\
         <h1>lock_exporter</h1><p>{} targets</p><p><a href=\"{}\">metrics</a></p>",
        status.targets.len(),
        escaped(telemetry_path),
    );
    out
}

/// Text as HTML text or attribute value.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
