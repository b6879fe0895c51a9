//! The text format of Prometheus, version 0.0.4.
//!
//! Source: "Exposition formats", Prometheus documentation. All samples of a metric follow its
//! `HELP` and `TYPE`, and no two have the same labels.

use std::fmt::{Display, Formatter, Result, Write};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only increases, except for a restart from 0.
    Counter,
    Gauge,
}

/// Metrics as text.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The names and values of a sample's labels.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    /// Begins a metric. Its samples follow.
    pub(super) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}", Escaped(help, false));
    }

    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", Escaped(value, true));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {}", Value(value));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Escaped text. Quotation marks are escaped only in the value of a label.
struct Escaped<'a>(&'a str, bool);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.1 => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

struct Value(f64);

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => Display::fmt(&value, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_help_type_labels_and_values() {
        let mut text = Text::default();
        text.begin("a_total", Kind::Counter, "What\\it \"is\".\nReally.");
        text.sample("a_total", &[], 3.0);
        text.sample("a_total", &[("x", "1\\2\"3\n4"), ("y", "ö")], 0.25);
        text.begin("b", Kind::Gauge, "Infinite.");
        text.sample("b", &[], f64::INFINITY);
        let expected = concat!(
            "# HELP a_total What\\\\it \"is\".\\nReally.\n# TYPE a_total counter\n",
            "a_total 3\na_total{x=\"1\\\\2\\\"3\\n4\",y=\"ö\"} 0.25\n",
            "# HELP b Infinite.\n# TYPE b gauge\nb +Inf\n",
        );
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn large_counts_are_written_in_full() {
        assert_eq!(Value(1e15).to_string(), "1000000000000000");
        assert_eq!((Value(f64::NAN).to_string(), Value(f64::NEG_INFINITY).to_string()), ("NaN".into(), "-Inf".into()));
    }
}
