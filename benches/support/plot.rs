//! A plot with two logarithmic axes, as an SVG.

use std::path::Path;

use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 480);
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(192, 57, 43), RGBColor(39, 174, 96), RGBColor(230, 126, 34)];

pub struct Plot<'a> {
    pub title: &'a str,
    pub across: Axis<'a>,
    pub up: Axis<'a>,
    pub lines: &'a [Line],
}

pub struct Axis<'a> {
    pub name: &'a str,
    /// How a mark on it reads.
    pub text: fn(f64) -> String,
}

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Plot<'_> {
    /// Writes it to `benches/plots`.
    pub fn write(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/plots");
        std::fs::create_dir_all(&folder).unwrap();
        self.draw(&folder.join(name)).unwrap();
        println!("wrote benches/plots/{name}");
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = self.extent(|point| point.0);
        let (low, high) = self.extent(|point| point.1);
        let up = 10_f64.powf(low.log10().floor())..10_f64.powf(high.log10().ceil());
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 20))
            .margin(14)
            .margin_right(30)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d((left..right).log_scale(), up.log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.across.name)
            .y_desc(self.up.name)
            .x_label_formatter(&|value| (self.across.text)(*value))
            .y_label_formatter(&|value| (self.up.text)(*value))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.into_iter().cycle()) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), style))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        root.present()?;
        Ok(())
    }

    fn extent(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = || self.lines.iter().flat_map(|line| line.points.iter().map(&of));
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    }
}
