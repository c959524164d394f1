//! OpenMetrics 1.0 text over the families of the `prometheus` crate, which knows only the older
//! text format. No `_created` lines, no exemplars.

use std::fmt::Write;

use prometheus::proto::{LabelPair, MetricFamily, MetricType};

/// Units that end a name: only then a UNIT line may stand.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// Writes families; the caller ends the whole text with [`END`].
pub fn encode(families: &[MetricFamily], out: &mut String) {
    for family in families {
        let kind = Kind::of(family);
        let name = kind.family_name(family.name());
        let _ = writeln!(out, "# TYPE {name} {}", kind.as_str());
        if let Some(unit) = UNITS.iter().find(|unit| ends_with_unit(name, unit)) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(out, "# HELP {name} {}", escaped(family.help()));
        for metric in family.get_metric() {
            let labels = metric.get_label();
            match kind {
                Kind::Counter => {
                    let value = metric.get_counter().get_value();
                    sample(out, name, "_total", labels, None, value);
                }
                Kind::Info => sample(out, name, "_info", labels, None, 1.0),
                Kind::Gauge => sample(out, name, "", labels, None, metric.get_gauge().get_value()),
                Kind::Histogram => {
                    let histogram = metric.get_histogram();
                    let count = histogram.get_sample_count() as f64;
                    let mut infinite = false;
                    for bucket in histogram.get_bucket() {
                        let bound = bucket.upper_bound();
                        infinite |= bound.is_infinite();
                        let value = bucket.cumulative_count() as f64;
                        sample(out, name, "_bucket", labels, Some(bound), value);
                    }
                    if !infinite {
                        sample(out, name, "_bucket", labels, Some(f64::INFINITY), count);
                    }
                    sample(out, name, "_count", labels, None, count);
                    sample(out, name, "_sum", labels, None, histogram.get_sample_sum());
                }
            }
        }
    }
}

/// The last line of every text.
pub const END: &str = "# EOF\n";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    fn of(family: &MetricFamily) -> Self {
        match family.get_field_type() {
            MetricType::COUNTER => Kind::Counter,
            MetricType::HISTOGRAM => Kind::Histogram,
            MetricType::GAUGE if family.name().ends_with("_info") => Kind::Info,
            MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => Kind::Gauge,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }

    /// The family's name lacks what only samples have.
    fn family_name(self, name: &str) -> &str {
        match self {
            Kind::Counter => name.strip_suffix("_total").unwrap_or(name),
            Kind::Info => name.strip_suffix("_info").unwrap_or(name),
            Kind::Gauge | Kind::Histogram => name,
        }
    }
}

fn ends_with_unit(name: &str, unit: &str) -> bool {
    name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'))
}

fn sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &[LabelPair],
    bound: Option<f64>,
    value: f64,
) {
    let _ = write!(out, "{name}{suffix}");
    let mut open = '{';
    for label in labels {
        let _ = write!(out, "{open}{}=\"{}\"", label.name(), escaped(label.value()));
        open = ',';
    }
    if let Some(bound) = bound {
        let _ = write!(out, "{open}le=\"");
        number(out, bound);
        out.push('"');
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
    out.push(' ');
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let _ = write!(out, "{value}");
    } else {
        number(out, value);
    }
    out.push('\n');
}

/// A bound is always written as a float, and infinity with its sign.
fn number(out: &mut String, value: f64) {
    let _ = if value.is_infinite() {
        write!(out, "{}Inf", if value > 0.0 { '+' } else { '-' })
    } else if value.is_nan() {
        write!(out, "NaN")
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        write!(out, "{value:.1}")
    } else {
        write!(out, "{value}")
    };
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}
