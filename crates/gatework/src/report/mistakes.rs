//! A sheet of the images that a classifier gets wrong, with their class and the predicted one.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::ReportError;
use super::svg::{Svg, shorten};

/// Most images of a sheet.
pub const MAX_MISTAKES: usize = 40;

/// Images of a row.
const COLUMNS: usize = 8;
/// Side of an image in pixels of the sheet.
const SIDE: f64 = 96.0;
/// Distances between the corners of two images.
const STEP: [f64; 2] = [124.0, 152.0];
/// Top of the first row of images.
const TOP: f64 = 80.0;
/// Distance from the left edge.
const LEFT: f64 = 24.0;
/// The longest name of a class that is written in full, in characters.
const MAX_NAME: usize = 10;

/// An image that is predicted wrongly.
#[derive(Clone, Debug)]
pub struct MistakeTile {
    /// Its pixels from 0 to 255, channel by channel.
    pub pixels: Vec<f32>,
    /// Its number in the data.
    pub row: u32,
    /// Its class.
    pub class: String,
    /// The predicted class.
    pub predicted: String,
    /// The scores of the two.
    pub scores: [u32; 2],
}

/// Draws images with their classes and predictions as SVG. `size` has the channels (1 or 3), rows and columns of pixels; the sheet
/// says how many mistakes there are in how many samples.
pub fn mistake_sheet(
    title: &str,
    size: [usize; 3],
    tiles: &[MistakeTile],
    mistakes: usize,
    samples: usize,
) -> Result<String, ReportError> {
    let rows = tiles.len().div_ceil(COLUMNS);
    let width = 2.0 * LEFT + STEP[0] * (COLUMNS - 1) as f64 + SIDE;
    let mut svg = Svg::new(width, TOP + STEP[1] * rows as f64 + 16.0, title);
    let shown =
        if tiles.len() < mistakes { format!("; the {} most confident", tiles.len()) } else { String::new() };
    let line =
        format!("{mistakes} mistakes in {samples} samples{shown}; class -> prediction, with their scores");
    svg.text("muted", LEFT, 56.0, &line);
    let [_, height, columns] = size;
    let scale = SIDE / height.max(columns).max(1) as f64;
    let extent = (columns as f64 * scale, height as f64 * scale);
    for (at, tile) in tiles.iter().enumerate() {
        let (x, y) = (LEFT + STEP[0] * (at % COLUMNS) as f64, TOP + STEP[1] * (at / COLUMNS) as f64);
        let image = BASE64_STANDARD.encode(png(size, &tile.pixels)?);
        svg.picture((x, y), extent, &format!("data:image/png;base64,{image}"));
        let [class, predicted] = [&tile.class, &tile.predicted].map(|name| shorten(name, MAX_NAME));
        svg.text("strong", x, y + SIDE + 16.0, &format!("{class} -> {predicted}"));
        let [right, wrong] = tile.scores;
        svg.text("muted", x, y + SIDE + 32.0, &format!("{right} : {wrong}, row {}", tile.row));
    }
    Ok(svg.finish())
}

/// Encodes an image of one or three channels.
fn png([channels, height, width]: [usize; 3], pixels: &[f32]) -> Result<Vec<u8>, ReportError> {
    let plane = height * width;
    let bytes: Vec<u8> = (0..plane)
        .flat_map(|at| (0..channels).map(move |channel| channel * plane + at))
        .map(|at| pixels.get(at).map_or(0, |value| value.clamp(0.0, 255.0) as u8))
        .collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(if channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&bytes)?;
        writer.finish()
    });
    written.map(|()| file).map_err(|error| ReportError::Png(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    #[test]
    fn every_mistake_has_its_image_and_classes() {
        let tile = |row: u32| MistakeTile {
            pixels: vec![0.0, 255.0, 300.0, -1.0, 7.0, 7.0],
            row,
            class: "a < b".into(),
            predicted: "c".into(),
            scores: [3, 8],
        };
        let tiles: Vec<MistakeTile> = (0..9).map(tile).collect();
        let sheet = mistake_sheet("digits", [1, 2, 3], &tiles, 30, 100).unwrap();
        assert_well_formed(&sheet);
        assert_eq!(sheet.matches("data:image/png;base64,").count(), 9);
        for text in ["30 mistakes in 100 samples; the 9 most confident", "a &lt; b -&gt; c", "3 : 8, row 8"] {
            assert!(sheet.contains(text), "{text} is missing: {sheet}");
        }
    }

    #[test]
    fn pixels_keep_their_places() {
        let pixels: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let file = png([3, 2, 2], &pixels).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut bytes = vec![0; 12];
        reader.next_frame(&mut bytes).unwrap();
        assert_eq!(bytes, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }
}
