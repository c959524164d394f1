//! The pages that people read: server-rendered HTML that needs no script, the worst first.
//!
//! Everything from outside is escaped by the type that writes it (`html::Html`). Links are
//! relative, so that the pages work below any path. Only a bounded part of the targets is
//! rendered; the rest is a page further.

use std::time::Duration;

use jiff::Timestamp;

use super::overview::{Filter, Overview, PAGE};
use crate::status::{Status, TargetStatus};
use crate::target::TargetName;

mod html;
mod link;
mod list;
mod one;
mod parts;

pub use link::{href, root};

use html::Html;

/// The stylesheet of every page.
pub const STYLE: &str = include_str!("page.css");
/// The script of every page. Without it one reloads by hand and copies by selecting.
pub const SCRIPT: &str = include_str!("page.js");
/// The icon of every page.
pub const ICON: &str = include_str!("icon.svg");
/// What a browser may do with a page: use the three files above, and ask for the page again.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                          connect-src 'self'; form-action 'self'; base-uri 'none'; \
                          frame-ancestors 'none'";
/// Without a script, a reader may ask to be served anew this often.
const REFRESH: &str = "60";
/// Highest number of a page.
const PAGES_MAX: usize = 100_000;

/// What every page needs to know beside the targets.
pub struct Frame<'a> {
    /// As of when.
    pub now: Timestamp,
    /// How long values stay shown without a successful scan.
    pub hold: Duration,
    /// The way from this page to `/`: `./`, `../`, …
    pub root: &'a str,
    /// Where metrics are.
    pub telemetry_path: &'a str,
    /// When and why the last configuration was refused.
    pub refused: Option<(Timestamp, &'a str)>,
}

/// What the reader of the list asks for in its query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ask {
    /// Which targets.
    pub filter: Filter,
    /// Which part of them, from 0.
    pub page: usize,
    /// Exactly this target instead: for names that no path can hold.
    pub name: Option<String>,
    /// Served anew from time to time, for browsers without scripts.
    pub refresh: bool,
}

impl Ask {
    /// Reads a query.
    ///
    /// # Errors
    /// In words, when something in it cannot be asked for.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut ask = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "q" => ask.filter.search(&value)?,
                "state" => ask.filter.ask(&value)?,
                "page" => {
                    let number = value.parse().ok().filter(|page| (1..=PAGES_MAX).contains(page));
                    ask.page = number.ok_or("page is a number from 1 on")? - 1;
                }
                "name" => ask.name = Some(value.into_owned()),
                "refresh" if value == REFRESH => ask.refresh = true,
                "refresh" => return Err(format!("refresh can only be {REFRESH}")),
                _ => return Err("only q, state, page, name and refresh can be asked for".into()),
            }
        }
        Ok(ask)
    }
}

/// The list of targets: `/` and `/targets`.
pub fn list(frame: &Frame<'_>, status: &Status, overview: &Overview, ask: &Ask) -> String {
    let selection = overview.select(status, &ask.filter, ask.page * PAGE, PAGE);
    let mut html = Html::default();
    frame.open(&mut html, "lock_exporter", ask.refresh.then_some(REFRESH));
    list::body(&mut html, frame, status, &selection, ask);
    frame.close(&mut html);
    html.into_text()
}

/// One target: `/targets/NAME`.
pub fn target(
    frame: &Frame<'_>,
    overview: &Overview,
    status: &Status,
    target: &TargetStatus,
) -> String {
    let mut html = Html::default();
    let name = target.spec.name.as_str();
    frame.open(&mut html, &format!("{name} · lock_exporter"), None);
    let standing = overview.standing(&target.spec.name);
    one::body(&mut html, frame, target, standing, &overview.counts(status));
    frame.close(&mut html);
    html.into_text()
}

/// The target that a page is asked for, if there is one of this name.
pub fn named<'a>(status: &'a Status, name: &str) -> Option<&'a TargetStatus> {
    let name = TargetName::new(name).ok()?;
    status.targets.get(&name).map(|target| &**target)
}

impl Frame<'_> {
    fn open(&self, html: &mut Html, title: &str, refresh: Option<&str>) {
        html.raw(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
             name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
             name=\"color-scheme\" content=\"light dark\">\n<title>",
        )
        .text(title)
        .raw("</title>\n<link rel=\"stylesheet\" href=\"")
        .text(self.root)
        .raw("-/page.css\">\n<link rel=\"icon\" type=\"image/svg+xml\" href=\"")
        .text(self.root)
        .raw("-/icon.svg\">\n<script src=\"")
        .text(self.root)
        .raw("-/page.js\" defer></script>\n");
        if let Some(seconds) = refresh {
            html.raw("<noscript><meta http-equiv=\"refresh\" content=\"")
                .text(seconds)
                .raw("\"></noscript>\n");
        }
        html.raw(
            "</head>\n<body>\n<a class=\"skip\" href=\"#live\">To the targets</a>\n<header>\n<p \
             class=\"home\"><a href=\"",
        )
        .text(self.root)
        .raw("\">lock_exporter</a></p>\n<p id=\"asof\" class=\"asof\">as of ")
        .moment(self.now, self.now)
        .raw("</p>\n<p id=\"trouble\" role=\"status\"></p>\n</header>\n<main id=\"live\">\n");
        if let Some((at, error)) = self.refused {
            html.raw(
                "<div class=\"banner\"><p><strong>The configuration was not reloaded</strong> (",
            )
            .time(at, self.now)
            .raw("): the old one stays in use.</p>\n<pre><code>")
            .text(error)
            .raw("</code></pre></div>\n");
        }
    }

    fn close(&self, html: &mut Html) {
        html.raw("</main>\n<footer>\n<nav aria-label=\"Everything else\"><ul>");
        let links = [
            ("targets", "Targets"),
            (self.telemetry_path.trim_start_matches('/'), "Metrics"),
            ("config", "Configuration"),
            ("api/v1/targets", "JSON: targets"),
            ("api/v1/locks", "locks"),
            ("api/v1/events", "events"),
            ("-/healthy", "Healthy"),
            ("-/ready", "Ready"),
        ];
        for (path, word) in links {
            html.raw("<li><a href=\"")
                .text(self.root)
                .text(path)
                .raw("\">")
                .text(word)
                .raw("</a></li>");
        }
        html.raw("</ul></nav>\n<p>Who holds which lock, since when, alive or dead, and what it \
             blocks. Version ")
            .text(env!("CARGO_PKG_VERSION"))
            .raw(". It only reads: nothing here locks, unlocks or signals.</p>\n</footer>\n</body>\n</html>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_cannot_be_answered_is_refused_in_words() {
        let ask = Ask::parse("q=db01+web&state=stuck&page=3").unwrap();
        assert_eq!((ask.filter.text.as_str(), ask.page), ("db01 web", 2));
        assert_eq!(Ask::parse("q=&state="), Ok(Ask::default()));
        for (query, word) in [
            ("page=0", "page"),
            ("page=x", "page"),
            ("page=99999999999999999999", "page"),
            ("state=no", "stuck"),
            ("refresh=1", "refresh"),
            ("sort=name", "only"),
        ] {
            assert!(Ask::parse(query).unwrap_err().contains(word), "{query}");
        }
    }
}
