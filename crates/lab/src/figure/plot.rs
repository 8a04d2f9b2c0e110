//! Draws lines or bars over named ticks, as SVG. Long tick names are wrapped, and the legend is next to the
//! plot, so that no text overlaps.
//!
//! A scheme has the same colour in every drawing; its variants in a drawing are paler. Bounds are black lines.
//! Thin lines are the spread of a value, and circles are the paper's numbers.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::LabError;
use crate::report::median;

const SIZE: (u32, u32) = (980, 540);
/// The font with its size. The next two constants are the maximum width of a letter and the height of a line
/// of text. All sizes are in pixels.
const FONT: (&str, u32) = ("sans-serif", 15);
const LETTER: usize = 7;
const LINE: i32 = 15;
/// The height in pixels below the x axis: three lines of tick names and the axis title.
const NAMES_HEIGHT: u32 = 76;
/// The fraction of the distance between two ticks that the bars of a tick fill.
const BARS: f64 = 0.8;
/// The fraction of its place that a bar fills.
const BAR: f64 = 0.9;
/// The name of the circles in a legend.
const PAPER: &str = "the paper";

/// The families of schemes and systems, by words that their names contain in lower case. Every family has a
/// colour. The first family with a word in the name counts.
const FAMILIES: [&[&str]; 18] = [
    &["bare chain"],
    &["conventional", "srr", "stars"],
    &["rack-aware"],
    &["weighted"],
    &["cyclic"],
    &["crr-s"],
    &["crr-r"],
    &["pipe-b", "push"],
    &["pipe-s"],
    &["fastpr"],
    &["ppr"],
    &["migration", "copies"],
    &["reconstruction", "rebuilds"],
    &["hdfs", "ec.rebuild"],
    &["pipelin", "chain", "slices"],
    &["lowest-index"],
    &["least-recently-used"],
    &["auto", "dealt", "even", "mend", "both ways"],
];
/// The opacity of the first, second, … variant of a scheme in a drawing.
const OPACITY: [f64; 5] = [1.0, 0.65, 0.45, 0.3, 0.2];

/// The points of a series: the index of a tick, and a value.
pub(crate) type Points = Vec<(usize, f64)>;
/// Names with their points.
pub(crate) type Series = Vec<(String, Points)>;

/// A value with the names of its tick and its series.
pub(crate) type Named = (String, String, f64);

/// A drawing of a page.
pub(crate) struct Drawing {
    /// The name of the file, without extension.
    pub(crate) name: &'static str,
    pub(crate) chart: Chart,
}

/// A chart with names instead of numbers on the x axis.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) ticks: Vec<String>,
    /// The values. A series whose name begins with `bound`, and the series `optimum`, are drawn as bounds.
    pub(crate) series: Series,
    pub(crate) marks: Marks,
    /// Whether to draw bars instead of lines, because the ticks have no natural order.
    pub(crate) bars: bool,
}

/// Marks at the values of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    /// The meaning of `spreads`, for the legend.
    pub(crate) spread: &'static str,
    /// The spreads of values.
    pub(crate) spreads: Vec<Mark>,
    /// The paper's numbers.
    pub(crate) paper: Vec<Mark>,
}

/// A range at the value of a series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// The name of the series.
    pub(crate) series: String,
    /// The index of the tick.
    pub(crate) at: usize,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Mark {
    /// Returns the range of several values; `None` if there are fewer than two.
    pub(crate) fn range(series: &str, at: usize, values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (values.len() > 1).then(|| Self { series: series.to_owned(), at, low, high })
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plot<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Chart {
    /// Draws the chart to a file.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), LabError> {
        let failed = |error: String| LabError::Draw { path: path.to_owned(), reason: error };
        let mut text = String::new();
        self.draw_to(&mut text).map_err(|error| failed(error.to_string()))?;
        std::fs::write(path, text).map_err(LabError::file("write", path))
    }

    fn draw_to(&self, text: &mut String) -> Drawn {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (left, right) = area.split_horizontally(SIZE.0 - self.legend_width());
        let last = self.ticks.len().max(1) as f64 - 0.5;
        let mut plot = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(NAMES_HEIGHT)
            .y_label_area_size(68)
            .build_cartesian_2d(-0.5..last, 0.0..self.highest() * 1.05)?;
        let mut mesh = plot.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).x_desc(self.x).y_desc(self.y);
        mesh.label_style(FONT).axis_desc_style(FONT).draw()?;
        self.draw_names(&area, &plot)?;
        match self.bars {
            true => self.draw_bars(&mut plot)?,
            false => self.draw_lines(&mut plot)?,
        }
        self.draw_bounds(&mut plot)?;
        self.draw_marks(&mut plot)?;
        self.draw_legend(&right)?;
        area.present()?;
        Ok(())
    }

    /// Returns the highest value.
    fn highest(&self) -> f64 {
        let values = self.series.iter().flat_map(|(_, points)| points.iter().map(|&(_, value)| value));
        let marks = self.marks.spreads.iter().chain(&self.marks.paper).map(|mark| mark.high);
        values.chain(marks).filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-9)
    }

    /// Returns the series that are no bounds, with their colours.
    fn coloured(&self) -> Vec<(&str, &Points, RGBAColor)> {
        let series: Vec<_> = self.series.iter().filter(|(name, _)| !is_bound(name)).collect();
        let colours = colours(series.iter().map(|(name, _)| name.as_str()));
        series
            .into_iter()
            .zip(colours)
            .map(|((name, points), colour)| (name.as_str(), points, colour))
            .collect()
    }

    fn bounds(&self) -> impl Iterator<Item = &(String, Points)> {
        self.series.iter().filter(|(name, _)| is_bound(name))
    }

    fn legend_width(&self) -> u32 {
        let names = self.series.iter().map(|(name, _)| name.as_str());
        let longest = names.chain([self.marks.spread, PAPER]).map(|name| name.chars().count()).max();
        (longest.unwrap_or_default() * LETTER + 44) as u32
    }

    fn draw_names(&self, area: &Area<'_>, plot: &Plot<'_, '_>) -> Drawn {
        let style = FONT.into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        let at = |place: usize| plot.backend_coord(&(place as f64, 0.0));
        let room = (at(1).0 - at(0).0) as usize / LETTER;
        for (place, name) in self.ticks.iter().enumerate() {
            let (x, y) = at(place);
            for (line, text) in (0..).zip(broken(name, room)) {
                area.draw_text(&text, &style, (x, y + 6 + line * LINE))?;
            }
        }
        Ok(())
    }

    fn draw_lines(&self, plot: &mut Plot<'_, '_>) -> Drawn {
        for (_, points, colour) in self.coloured() {
            let points: Vec<_> = points.iter().map(|&(at, value)| (at as f64, value)).collect();
            plot.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            plot.draw_series(points.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        }
        Ok(())
    }

    fn draw_bars(&self, plot: &mut Plot<'_, '_>) -> Drawn {
        let half = self.bar_width() * BAR / 2.0;
        for (name, points, colour) in self.coloured() {
            let bar = |&(at, value): &(usize, f64)| {
                let middle = self.middle(name, at);
                Rectangle::new([(middle - half, 0.0), (middle + half, value)], colour.filled())
            };
            plot.draw_series(points.iter().filter(|(_, value)| value.is_finite()).map(bar))?;
        }
        Ok(())
    }

    /// Draws a line over the width of the tick for each value of a bound.
    fn draw_bounds(&self, plot: &mut Plot<'_, '_>) -> Drawn {
        for (_, points) in self.bounds() {
            let line = |&(at, value): &(usize, f64)| {
                let ends = vec![(at as f64 - 0.45, value), (at as f64 + 0.45, value)];
                PathElement::new(ends, BLACK.stroke_width(2))
            };
            plot.draw_series(points.iter().filter(|(_, value)| value.is_finite()).map(line))?;
        }
        Ok(())
    }

    fn draw_marks(&self, plot: &mut Plot<'_, '_>) -> Drawn {
        let ends = |mark: &Mark| {
            let x = self.middle(&mark.series, mark.at);
            [(x, mark.low), (x, mark.high)]
        };
        let line = |mark: &Mark| PathElement::new(ends(mark).to_vec(), BLACK.stroke_width(1));
        plot.draw_series(self.marks.spreads.iter().chain(&self.marks.paper).map(line))?;
        let circles = self.marks.paper.iter().flat_map(ends);
        plot.draw_series(circles.map(|at| Circle::new(at, 4, BLACK.stroke_width(1))))?;
        Ok(())
    }

    fn bar_width(&self) -> f64 {
        let bars = self.series.iter().filter(|(name, _)| !is_bound(name)).count();
        BARS / bars.max(1) as f64
    }

    /// Returns the x coordinate of a series at a tick.
    fn middle(&self, series: &str, at: usize) -> f64 {
        if !self.bars {
            return at as f64;
        }
        let mut bars = self.series.iter().filter(|(name, _)| !is_bound(name));
        let index = bars.position(|(name, _)| name == series).unwrap_or_default();
        at as f64 - BARS / 2.0 + (index as f64 + BAR / 2.0) * self.bar_width()
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let style = FONT.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        let mut place = 56;
        for (name, _, colour) in self.coloured() {
            area.draw(&Rectangle::new([(0, place - 4), (18, place + 4)], colour.filled()))?;
            area.draw_text(name, &style, (26, place))?;
            place += LINE + 5;
        }
        for (name, _) in self.bounds() {
            area.draw(&PathElement::new(vec![(0, place), (18, place)], BLACK.stroke_width(2)))?;
            area.draw_text(name, &style, (26, place))?;
            place += LINE + 5;
        }
        if !self.marks.spreads.is_empty() {
            area.draw(&PathElement::new(vec![(9, place - 6), (9, place + 6)], BLACK.stroke_width(1)))?;
            area.draw_text(self.marks.spread, &style, (26, place))?;
            place += LINE + 5;
        }
        if !self.marks.paper.is_empty() {
            area.draw(&Circle::new((9, place), 4, BLACK.stroke_width(1)))?;
            area.draw_text(PAPER, &style, (26, place))?;
        }
        Ok(())
    }
}

impl Drawing {
    /// Returns a drawing of bars; `None` if there are no values. If a place has several values, its bar is their
    /// median, and a line shows their range.
    pub(crate) fn of(name: &'static str, title: &str, y: &'static str, values: Vec<Named>) -> Option<Self> {
        let (ticks, mut series) = gather(values.iter().cloned());
        let mut spreads = Vec::new();
        for (series, points) in &mut series {
            for (at, value) in points {
                let all = at_place(&values, &ticks[*at], series);
                *value = median(&all);
                spreads.extend(Mark::range(series, *at, &all).filter(|_| !is_bound(series)));
            }
        }
        let marks = Marks { spread: "least to most", spreads, ..Marks::default() };
        let chart = Chart { title: title.to_owned(), x: "", y, ticks, series, marks, bars: true };
        (!chart.ticks.is_empty()).then_some(Self { name, chart })
    }

    /// Returns the link to the drawing of this name, as a paragraph of a page; empty if there is none.
    pub(crate) fn link(drawings: &[Self], name: &str) -> String {
        let found = drawings.iter().find(|drawing| drawing.name == name);
        found.map_or(String::new(), |drawing| format!("![{}]({name}.svg)\n\n", drawing.chart.title))
    }
}

/// Returns the ticks and the series of values, in the order in which they appear. If a place has several values,
/// the first one counts.
pub(crate) fn gather(values: impl IntoIterator<Item = Named>) -> (Vec<String>, Series) {
    let mut ticks: Vec<String> = Vec::new();
    let mut series = Series::new();
    for (tick, name, value) in values {
        let at = ticks.iter().position(|known| *known == tick).unwrap_or_else(|| {
            ticks.push(tick);
            ticks.len() - 1
        });
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) if points.iter().any(|&(other, _)| other == at) => {}
            Some((_, points)) => points.push((at, value)),
            None => series.push((name, vec![(at, value)])),
        }
    }
    (ticks, series)
}

/// Returns all values of a series at a tick.
fn at_place(values: &[Named], tick: &str, series: &str) -> Vec<f64> {
    let is_there = |(at, name, _): &&Named| at == tick && name == series;
    values.iter().filter(is_there).map(|&(.., value)| value).collect()
}

fn is_bound(name: &str) -> bool {
    name == "optimum" || name.starts_with("bound")
}

/// Returns the index of the family to which a name belongs.
fn family(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    FAMILIES.iter().position(|words| words.iter().any(|word| name.contains(word)))
}

/// Returns the colours of the series of a drawing: the colour of the family, or one that no family has.
fn colours<'a>(names: impl Iterator<Item = &'a str>) -> Vec<RGBAColor> {
    let mut known: Vec<usize> = Vec::new();
    let mut others = FAMILIES.len()..;
    let mut colour = |name: &str| {
        let found = family(name).or_else(|| others.next()).unwrap_or_default();
        let variant = known.iter().filter(|&&other| other == found).count();
        known.push(found);
        Palette99::pick(found).mix(OPACITY[variant.min(OPACITY.len() - 1)])
    };
    names.map(&mut colour).collect()
}

/// Wraps a name at dashes or spaces into lines of at most `room` letters, where possible.
fn broken(name: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive(['-', ' ']) {
        let line = lines.last_mut().expect("there is one from the start");
        match line.is_empty() || line.chars().count() + part.trim_end().chars().count() <= room {
            true => line.push_str(part),
            false => lines.push(part.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(bars: bool) -> Chart {
        let mark = |low, high| Mark { series: "pipelined".to_owned(), at: 1, low, high };
        Chart {
            title: "Times".to_owned(),
            x: "slice",
            y: "seconds",
            ticks: vec!["4KiB".to_owned(), "32KiB".to_owned(), "1MiB".to_owned()],
            series: vec![
                ("pipelined".to_owned(), vec![(0, 1.0), (1, 0.5), (2, 0.6)]),
                ("bound of the links".to_owned(), vec![(0, 0.4)]),
            ],
            marks: Marks {
                spread: "shortest to longest",
                spreads: vec![mark(0.4, 0.7)],
                paper: vec![mark(0.8, 2.0)],
            },
            bars,
        }
    }

    #[test]
    fn a_chart_names_its_places_and_series() {
        for bars in [false, true] {
            let mut text = String::new();
            chart(bars).draw_to(&mut text).unwrap();
            for word in [
                "<svg",
                "Times",
                "4KiB",
                "32KiB",
                "1MiB",
                "pipelined",
                "seconds",
                "bound of the links",
                "shortest to longest",
                "the paper",
            ] {
                assert!(text.contains(word), "{word} is not in {text}");
            }
        }
    }

    #[test]
    fn a_scheme_has_one_colour_in_every_drawing() {
        let first = colours(["conventional", "ppr", "pipelined"].into_iter());
        let second = colours(["Repair pipelining", "a stranger", "ppr in rounds"].into_iter());
        assert_eq!(first[2], second[0]);
        assert_eq!(first[1], second[2]);
        assert!(!first.contains(&second[1]));
        let variants = colours(["ppr", "ppr in rounds"].into_iter());
        assert_ne!(variants[0], variants[1]);
        assert_eq!(variants[0].rgb(), variants[1].rgb());
        assert_eq!(family("migration only"), family("copies only"));
        assert_ne!(family("FastPR"), family("ppr"));
        assert_eq!(family("chains, lowest node"), family("pipelined"));
        assert_eq!(family("chains, LRU"), family("chains"));
        assert_ne!(family("lowest-index"), family("pipelined"));
    }

    #[test]
    fn bounds_have_no_bar_and_marks_are_at_the_bars_of_their_series() {
        let mut chart = chart(true);
        assert_eq!(chart.coloured().len(), 1);
        assert!(is_bound("optimum") && !is_bound("rebound"));
        assert_eq!(chart.highest(), 2.0);
        let alone = chart.middle("pipelined", 1);
        assert!((alone - 0.96).abs() < 1e-9, "{alone}");
        chart.series.insert(0, ("conventional".to_owned(), Vec::new()));
        assert!(chart.middle("pipelined", 1) > chart.middle("conventional", 1));
        chart.bars = false;
        assert_eq!(chart.middle("pipelined", 1), 1.0);
    }

    #[test]
    fn values_are_gathered_by_tick_and_series() {
        let value = |tick: &str, name: &str, value| (tick.to_owned(), name.to_owned(), value);
        let values =
            vec![value("a", "x", 1.0), value("b", "x", 2.0), value("a", "y", 3.0), value("a", "x", 4.0)];
        let drawing = Drawing::of("d", "Title", "s", values).unwrap();
        assert_eq!(drawing.chart.ticks, ["a", "b"]);
        let series = [("x".to_owned(), vec![(0, 2.5), (1, 2.0)]), ("y".to_owned(), vec![(0, 3.0)])];
        assert_eq!(drawing.chart.series, series);
        let spread = Mark { series: "x".to_owned(), at: 0, low: 1.0, high: 4.0 };
        assert_eq!(drawing.chart.marks.spreads, [spread]);
        let drawings = [drawing];
        assert_eq!(Drawing::link(&drawings, "d"), "![Title](d.svg)\n\n");
        assert_eq!(Drawing::link(&drawings, "e"), "");
        assert!(Drawing::of("d", "Title", "s", Vec::new()).is_none());
    }

    #[test]
    fn long_names_are_broken_where_they_may_be() {
        assert_eq!(broken("hitchhiker-xorplus-14-10", 12), ["hitchhiker-", "xorplus-14-", "10"]);
        assert_eq!(broken("rs-14-10", 12), ["rs-14-10"]);
        assert_eq!(broken("unshaped", 4), ["unshaped"]);
        assert_eq!(broken("", 4), [""]);
    }
}
