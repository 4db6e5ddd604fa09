//! Renders a figure's SVG as PNG. The font is part of the program, so machines without fonts draw text too.
//!
//! The font is a subset of DejaVu Sans (`font/LICENSE`): Latin, Greek, Cyrillic and mathematical signs.
//! Other characters are drawn as boxes.

use super::FigureError;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

const FONT: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");
/// Licence of the embedded font.
pub const FONT_LICENSE: &str = include_str!("font/LICENSE");
/// Dots per inch, as journals require.
const DPI: f64 = 300.0;
/// Most pixels per side, to limit memory.
const MOST: f64 = 20_000.0;

/// Renders an SVG of this program as PNG, at 300 dots per inch of its stated size.
///
/// # Errors
/// If the text is not an SVG, or the image is too large.
pub fn png(svg: &str) -> Result<Vec<u8>, FigureError> {
    let wrong = |error: &dyn std::fmt::Display| FigureError::Drawing(error.to_string());
    let mut options = Options { font_family: "DejaVu Sans".to_owned(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options).map_err(|error| wrong(&error))?;
    let size = tree.size();
    // The size of the tree is in CSS pixels, 96 per inch.
    let scale = DPI / 96.0;
    let pixels = |length: f32| {
        let pixels = (f64::from(length) * scale).ceil();
        if pixels <= MOST {
            Ok(u32::try_from(super::scale::whole(pixels)).unwrap_or(1))
        } else {
            Err(wrong(&"it is too large"))
        }
    };
    let (wide, high) = (pixels(size.width())?, pixels(size.height())?);
    let mut pixmap = Pixmap::new(wide, high).ok_or_else(|| wrong(&"it has no size"))?;
    #[expect(clippy::cast_possible_truncation, reason = "a scale of 3.125 is exact")]
    let factor = scale as f32;
    resvg::render(&tree, Transform::from_scale(factor, factor), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| wrong(&error))
}
