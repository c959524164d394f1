//! Which text a client of `/metrics` wants, by its `Accept` header.

/// The two texts there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// Prometheus' text format 0.0.4; what is served when nothing else is asked for.
    Text,
    /// OpenMetrics 1.0.0, with the escaping scheme that the client named. All names are plain
    /// letters, so every scheme leaves them as they are.
    OpenMetrics {
        /// One of the known schemes.
        escaping: &'static str,
    },
}

/// Known escaping schemes; an unknown one is never repeated.
const ESCAPINGS: [&str; 4] = ["underscores", "allow-utf-8", "dots", "values"];

impl Format {
    /// The best supported format of an `Accept` header; never a refusal, since a scraper that
    /// gets any text can be told apart from one that gets none.
    pub fn accepted(header: &str) -> Self {
        let mut best: Option<(f32, Self)> = None;
        for range in header.split(',') {
            let Some((weight, format)) = one(range) else { continue };
            // Of equal weights the first named wins.
            if weight > 0.0 && best.is_none_or(|(known, _)| weight > known) {
                best = Some((weight, format));
            }
        }
        best.map_or(Format::Text, |(_, format)| format)
    }

    /// The `Content-Type` of the answer.
    pub fn content_type(self) -> String {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8".into(),
            Format::OpenMetrics { escaping } => format!(
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping={escaping}"
            ),
        }
    }
}

fn one(range: &str) -> Option<(f32, Format)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let (mut weight, mut version, mut escaping) = (1.0, None, ESCAPINGS[0]);
    for part in parts {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => weight = value.parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?,
            "version" => version = Some(value),
            "escaping" => {
                let known = ESCAPINGS.iter().find(|known| **known == value);
                escaping = known.copied().unwrap_or(escaping);
            }
            _ => {}
        }
    }
    let format = match (media.as_str(), version) {
        ("application/openmetrics-text", None | Some("1.0.0")) => Format::OpenMetrics { escaping },
        ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", None) => Format::Text,
        _ => return None,
    };
    Some((weight, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_supported_type_wins_and_nothing_is_refused() {
        let open = Format::OpenMetrics { escaping: "underscores" };
        let utf8 = Format::OpenMetrics { escaping: "allow-utf-8" };
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
            */*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,\
            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
            */*;q=0.2";
        for (header, expected) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            (prometheus_2, open),
            (prometheus_3, utf8),
            ("application/openmetrics-text", open),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;version=0.0.1", Format::Text),
            ("application/openmetrics-text;q=0,text/plain;q=0.1", Format::Text),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.8", Format::Text),
            ("application/openmetrics-text;escaping=<script>", open),
            ("application/vnd.google.protobuf;encoding=delimited", Format::Text),
            ("nonsense;;;=,q=x", Format::Text),
        ] {
            assert_eq!(Format::accepted(header), expected, "{header}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_answered(header in "\\PC*") {
            let _ = Format::accepted(&header).content_type();
        }
    }
}
