//! HTML as it is written: markup comes from this program's own text, everything else is escaped.
//!
//! The type keeps the two apart: [`Html::raw`] takes only what stands in the source.

use jiff::Timestamp;
use jiff::tz::Offset;

use crate::evidence::in_words;
use crate::label::is_invisible;

/// A piece of a page.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Markup of this program's own.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Any text, inside of an element or of a quoted attribute. What one would not see, or what
    /// would turn the direction of the line around it, is shown by its code point.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_invisible(c) => self.0.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
                c => self.0.push(c),
            }
        }
        self
    }

    /// A sentence of ours with names from outside in it: each word in letters that run from right
    /// to left orders only itself, so that what is around it stays in its order.
    pub fn sentence(&mut self, text: &str) -> &mut Self {
        for word in text.split_inclusive(' ') {
            let marks = |c: char| c == ' ' || (c.is_ascii_punctuation() && c != '%');
            let name = word.trim_matches(marks);
            if !name.chars().any(runs_leftwards) {
                self.text(word);
                continue;
            }
            let before = word.len() - word.trim_start_matches(marks).len();
            self.text(&word[..before]).name(name).text(&word[before + name.len()..]);
        }
        self
    }

    /// A name from outside: letters of a script from right to left order only themselves.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.raw("<bdi>").text(name).raw("</bdi>")
    }

    /// A number as people read it: `1,995`.
    pub fn number(&mut self, number: usize) -> &mut Self {
        let text = grouped(number);
        self.0.push_str(&text);
        self
    }

    /// A moment, in UTC and in words as of `now`: `11:13:00 UTC, 47 min ago`.
    pub fn time(&mut self, at: Timestamp, now: Timestamp) -> &mut Self {
        let since = now.duration_since(at);
        let words = match since.is_negative() {
            true => format!("{} ahead", in_words(since)),
            false => format!("{} ago", in_words(since)),
        };
        self.moment(at, now).raw(", ").text(&words)
    }

    /// A moment in UTC, with its day where it is not today's.
    pub fn moment(&mut self, at: Timestamp, now: Timestamp) -> &mut Self {
        let (day, clock) = split(at);
        let machine = format!("{day}T{clock}Z");
        self.raw("<time datetime=\"").text(&machine).raw("\">");
        if split(now).0 != day {
            self.text(&day).raw(" ");
        }
        self.text(&clock).raw(" UTC</time>")
    }

    /// One command in a block of its own. The button shows only where a script can serve it.
    pub fn command(&mut self, line: &str) -> &mut Self {
        self.raw("<div class=\"cmd\"><pre><code>")
            .sentence(line)
            .raw("</code></pre><button type=\"button\" class=\"copy\">Copy</button></div>")
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Whether a character belongs to the blocks that Unicode keeps for scripts from right to left
/// (`DerivedBidiClass.txt`, the default values of R and AL).
fn runs_leftwards(c: char) -> bool {
    matches!(c,
        '\u{0590}'..='\u{08FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFF}'
        | '\u{10800}'..='\u{10FFF}' | '\u{1E800}'..='\u{1EFFF}')
}

/// Date and time of day in UTC.
fn split(at: Timestamp) -> (String, String) {
    let at = Offset::UTC.to_datetime(at);
    let day = format!("{:04}-{:02}-{:02}", at.year(), at.month(), at.day());
    (day, format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second()))
}

/// A number with commas between its thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_from_outside_becomes_markup() {
        let mut html = Html::default();
        html.text("<script>alert('1' & \"2\")</script>\u{0}");
        assert_eq!(
            html.into_text(),
            "&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;⟨U+0000⟩"
        );
    }

    #[test]
    fn a_word_from_right_to_left_orders_only_itself() {
        let mut html = Html::default();
        html.sentence("held by \u{5d0}\u{5d1}@\u{5d2}, (\u{627}-01) & db01 for 5 min");
        assert_eq!(
            html.into_text(),
            "held by <bdi>\u{5d0}\u{5d1}@\u{5d2}</bdi>, (<bdi>\u{627}-01</bdi>) &amp; db01 for 5 \
             min"
        );
        for text in ["", " ", "a  b ", "\u{5d0}", "''\u{5d0}'' \u{5d1} ", "<b>\u{5d0}</b>"] {
            let (mut plain, mut isolated) = (Html::default(), Html::default());
            plain.text(text);
            isolated.sentence(text);
            let isolated = isolated.into_text().replace("<bdi>", "").replace("</bdi>", "");
            assert_eq!(isolated, plain.into_text(), "nothing is lost or added");
        }
    }

    #[test]
    fn what_one_would_not_see_is_shown() {
        let mut html = Html::default();
        html.text("db\u{200b}01\u{202e}10bd\u{feff}\u{e0041}");
        assert_eq!(html.into_text(), "db⟨U+200B⟩01⟨U+202E⟩10bd⟨U+FEFF⟩⟨U+E0041⟩");
    }

    #[test]
    fn times_are_in_utc_with_the_day_where_it_is_another() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-03-01T12:00:00Z");
        let shown = |then: &str| {
            let mut html = Html::default();
            html.time(at(then), now);
            html.into_text()
        };
        assert_eq!(
            shown("2026-03-01T11:13:00.5Z"),
            "<time datetime=\"2026-03-01T11:13:00Z\">11:13:00 UTC</time>, 46 min ago"
        );
        assert_eq!(
            shown("2026-02-28T23:00:00Z"),
            "<time datetime=\"2026-02-28T23:00:00Z\">2026-02-28 23:00:00 UTC</time>, 13 h ago"
        );
        assert!(shown("2026-03-01T12:01:00Z").ends_with(", 1 min ahead"));
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, shown) in [(0, "0"), (999, "999"), (1_995, "1,995"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), shown);
        }
    }
}
