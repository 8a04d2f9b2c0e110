//! Encodes figures in the text format of OpenMetrics, which Prometheus reads.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Figures that can be encoded.
pub trait Figures: fmt::Debug + Send + Sync + 'static {
    /// Writes all figures.
    ///
    /// # Errors
    /// Only errors of the writer.
    fn write(&self, writer: &mut Writer<'_>) -> fmt::Result;
}

/// Encodes figures, after the version of the program.
pub fn text(figures: impl Figures) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(figures)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

#[derive(Debug)]
struct Collected<F>(F);

impl<F: Figures> Collector for Collected<F> {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut writer = Writer(encoder);
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        writer.gauges("mend_build_info", "The version of the program; always 1", [(version, 1.0)])?;
        self.0.write(&mut writer)
    }
}

/// Encodes metrics of one kind one after the other.
pub struct Writer<'e>(DescriptorEncoder<'e>);

const NO_LABELS: &Labels<'static> = &[];

/// The labels of a value.
type Labels<'l> = [(&'l str, String)];

impl Writer<'_> {
    /// Writes a histogram of prometheus-client.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn observed(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        self.family(name, help, MetricType::Histogram, |encoder| {
            histogram.encode(encoder.encode_family(&NO_LABELS)?)
        })
    }

    /// Writes a histogram without labels. `buckets` are upper bounds, each with the number of values up to it and above
    /// the bound before it; the last bound is `f64::INFINITY`.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn histogram(&mut self, name: &str, help: &str, sum: f64, buckets: &[(f64, u64)]) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.family(name, help, MetricType::Histogram, |encoder| {
            encoder.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
        })
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        mut write: impl FnMut(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// Writes a gauge without labels, unless its value is unknown.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.family(name, help, MetricType::Gauge, |encoder| put_gauge(encoder, &[], value))
    }

    /// Writes a gauge with one value for each set of labels.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'l str, String)>, f64)>,
    ) -> fmt::Result {
        let mut values = values.into_iter();
        self.family(name, help, MetricType::Gauge, |encoder| {
            values.by_ref().try_for_each(|(labels, value)| put_gauge(encoder, &labels, value))
        })
    }

    /// Writes a counter. Its name in the text ends in `_total`.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(Vec::new(), value)])
    }

    /// Writes a counter of seconds. Its name in the text ends in `_total`.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn seconds(&mut self, name: &str, help: &str, time: Duration) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |encoder| {
            ConstCounter::new(time.as_secs_f64()).encode(encoder.encode_family(&NO_LABELS)?)
        })
    }

    /// Writes a counter with one value for each set of labels.
    ///
    /// # Errors
    /// Only errors of the writer.
    pub fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'l str, String)>, u64)>,
    ) -> fmt::Result {
        let mut values = values.into_iter();
        self.family(name, help, MetricType::Counter, |encoder| {
            values.by_ref().try_for_each(|(labels, value)| {
                ConstCounter::new(value).encode(encoder.encode_family(&labels)?)
            })
        })
    }
}

fn put_gauge(encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_family(&labels)?)
}
