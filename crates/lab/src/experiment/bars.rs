//! Drawings of cells: a bar for each, its spread, and bounds as lines.

use super::spread::Spread;
use crate::figure::plot::{Drawing, Mark, Named};

/// A bar with its spread.
pub(crate) struct Bar {
    pub(crate) tick: String,
    pub(crate) series: String,
    pub(crate) value: Spread,
}

/// Returns a drawing of bars with their spreads, and of bounds; `None` if there are no bars.
pub(crate) fn drawing(
    name: &'static str,
    title: &str,
    y: &'static str,
    bars: &[Bar],
    bounds: Vec<Named>,
) -> Option<Drawing> {
    let values = bars.iter().map(|bar| (bar.tick.clone(), bar.series.clone(), bar.value.median));
    let mut drawing = Drawing::of(name, title, y, values.chain(bounds).collect())?;
    let mark = |bar: &Bar| {
        let at = drawing.chart.ticks.iter().position(|known| *known == bar.tick)?;
        let Spread { low, high, .. } = bar.value;
        (low < high).then(|| Mark { series: bar.series.clone(), at, low, high })
    };
    drawing.chart.marks.spreads = bars.iter().filter_map(mark).collect();
    drawing.chart.marks.spread = "lowest to highest";
    Some(drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_drawn_at_their_bars() {
        let bar = |tick: &str, series: &str, values: &[f64]| Bar {
            tick: tick.to_owned(),
            series: series.to_owned(),
            value: Spread::of(values.iter().copied()),
        };
        let bars = [bar("a", "HDFS", &[9.0]), bar("b", "HDFS", &[8.0, 6.0, 7.0])];
        let bound = ("b".to_owned(), "bound".to_owned(), 5.0);
        let chart = drawing("x", "X", "seconds", &bars, vec![bound]).unwrap().chart;
        assert_eq!(chart.series[0], ("HDFS".to_owned(), vec![(0, 9.0), (1, 7.0)]));
        assert_eq!(chart.series[1], ("bound".to_owned(), vec![(1, 5.0)]));
        let mark = Mark { series: "HDFS".to_owned(), at: 1, low: 6.0, high: 8.0 };
        assert_eq!(chart.marks.spreads, [mark]);
        assert!(drawing("x", "X", "seconds", &[], Vec::new()).is_none());
    }
}
