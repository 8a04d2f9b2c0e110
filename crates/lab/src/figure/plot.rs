//! Draws lines or bars over named ticks, as SVG. Long tick names are wrapped, and the legend is next to the
//! plot, so that no text overlaps.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::LabError;

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

/// A chart with names instead of numbers on the x axis.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) ticks: Vec<String>,
    /// The series: a name, and points as tick index and value.
    pub(super) series: Vec<(String, Vec<(usize, f64)>)>,
    /// Whether to draw bars instead of lines, because the ticks have no natural order.
    pub(super) bars: bool,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plot<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Chart<'_> {
    /// Draws the chart to a file.
    pub(super) fn draw(&self, path: &Path) -> Result<(), LabError> {
        let failed = |error: String| LabError::Draw { path: path.to_owned(), reason: error };
        let mut text = String::new();
        self.draw_to(&mut text).map_err(|error| failed(error.to_string()))?;
        std::fs::write(path, text).map_err(LabError::file("write", path))
    }

    fn draw_to(&self, text: &mut String) -> Drawn {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (left, right) = area.split_horizontally(SIZE.0 - self.legend_width());
        let values = self.series.iter().flat_map(|(_, points)| points.iter().map(|&(_, value)| value));
        let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-9);
        let last = self.ticks.len().max(1) as f64 - 0.5;
        let mut plot = ChartBuilder::on(&left)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(NAMES_HEIGHT)
            .y_label_area_size(68)
            .build_cartesian_2d(-0.5..last, 0.0..highest * 1.05)?;
        let mut mesh = plot.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).x_desc(self.x).y_desc(self.y);
        mesh.label_style(FONT).axis_desc_style(FONT).draw()?;
        self.draw_names(&area, &plot)?;
        match self.bars {
            true => self.draw_bars(&mut plot)?,
            false => self.draw_lines(&mut plot)?,
        }
        self.draw_legend(&right)?;
        area.present()?;
        Ok(())
    }

    fn legend_width(&self) -> u32 {
        let longest = self.series.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        (longest * LETTER + 44) as u32
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
        for (index, (_, points)) in self.series.iter().enumerate() {
            let colour = colour(index);
            let points: Vec<_> = points.iter().map(|&(at, value)| (at as f64, value)).collect();
            plot.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            plot.draw_series(points.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        }
        Ok(())
    }

    fn draw_bars(&self, plot: &mut Plot<'_, '_>) -> Drawn {
        let width = BARS / self.series.len().max(1) as f64;
        for (index, (_, points)) in self.series.iter().enumerate() {
            let start = index as f64 * width - BARS / 2.0;
            let bar = |&(at, value): &(usize, f64)| {
                let left = at as f64 + start;
                Rectangle::new([(left, 0.0), (left + width * 0.9, value)], colour(index).filled())
            };
            plot.draw_series(points.iter().filter(|(_, value)| value.is_finite()).map(bar))?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let style = FONT.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        for (index, (name, _)) in self.series.iter().enumerate() {
            let y = 56 + index as i32 * (LINE + 5);
            area.draw(&Rectangle::new([(0, y - 4), (18, y + 4)], colour(index).filled()))?;
            area.draw_text(name, &style, (26, y))?;
        }
        Ok(())
    }
}

fn colour(index: usize) -> RGBAColor {
    Palette99::pick(index).to_rgba()
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

    fn chart(bars: bool) -> Chart<'static> {
        Chart {
            title: "Times",
            x: "slice",
            y: "seconds",
            ticks: vec!["4KiB".to_owned(), "32KiB".to_owned(), "1MiB".to_owned()],
            series: vec![("pipelined".to_owned(), vec![(0, 1.0), (1, 0.5), (2, 0.6)])],
            bars,
        }
    }

    #[test]
    fn a_chart_names_its_places_and_series() {
        for bars in [false, true] {
            let mut text = String::new();
            chart(bars).draw_to(&mut text).unwrap();
            for word in ["<svg", "Times", "4KiB", "32KiB", "1MiB", "pipelined", "seconds"] {
                assert!(text.contains(word), "{word} is not in {text}");
            }
        }
    }

    #[test]
    fn long_names_are_broken_where_they_may_be() {
        assert_eq!(broken("hitchhiker-xorplus-14-10", 12), ["hitchhiker-", "xorplus-14-", "10"]);
        assert_eq!(broken("rs-14-10", 12), ["rs-14-10"]);
        assert_eq!(broken("unshaped", 4), ["unshaped"]);
        assert_eq!(broken("", 4), [""]);
    }
}
