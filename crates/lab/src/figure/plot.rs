//! Drawing: lines over named places, as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::error::LabError;

const SIZE: (u32, u32) = (860, 520);

/// A chart whose x axis has names and not numbers.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) ticks: Vec<String>,
    /// Names, and points as place and value.
    pub(super) series: Vec<(String, Vec<(usize, f64)>)>,
}

impl Chart<'_> {
    /// Draws it to a file.
    pub(super) fn draw(&self, path: &Path) -> Result<(), LabError> {
        let failed = |error: String| LabError::Draw { path: path.to_owned(), reason: error };
        let mut text = String::new();
        self.draw_to(&mut text).map_err(|error| failed(error.to_string()))?;
        std::fs::write(path, text).map_err(LabError::file("write", path))
    }

    fn draw_to(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let values = self.series.iter().flat_map(|(_, points)| points.iter().map(|&(_, value)| value));
        let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-9);
        let right = (self.ticks.len().max(2) - 1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(-0.2..right + 0.2, 0.0..highest * 1.08)?;
        let name = |x: &f64| {
            let place = x.round();
            let is_place = (x - place).abs() < 1e-6 && place >= 0.0;
            is_place.then(|| self.ticks.get(place as usize).cloned()).flatten().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.ticks.len() * 2 + 1)
            .x_label_formatter(&name)
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        for (index, (name, points)) in self.series.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let points: Vec<_> = points.iter().map(|&(at, value)| (at as f64, value)).collect();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            chart.draw_series(points.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_places_and_series() {
        let chart = Chart {
            title: "Times",
            x: "slice",
            y: "seconds",
            ticks: vec!["4KiB".to_owned(), "32KiB".to_owned(), "1MiB".to_owned()],
            series: vec![("pipelined".to_owned(), vec![(0, 1.0), (1, 0.5), (2, 0.6)])],
        };
        let mut text = String::new();
        chart.draw_to(&mut text).unwrap();
        for word in ["<svg", "Times", "4KiB", "32KiB", "1MiB", "pipelined", "seconds"] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
    }
}
