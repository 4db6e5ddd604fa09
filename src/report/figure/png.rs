//! A figure as PNG: its SVG, rasterised with a font that is part of the program, so that text is there on machines without fonts.
//!
//! The font is a subset of DejaVu Sans (`font/LICENSE`): Latin, Greek, Cyrillic and mathematical signs. Other characters are drawn as boxes.

use super::FigureError;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

const FONT: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");
/// The licence of the font that is part of the program.
pub const FONT_LICENSE: &str = include_str!("font/LICENSE");
/// Dots for each inch, as papers want them.
const DPI: f64 = 300.0;
/// Larger pictures would fill the memory.
const MOST: f64 = 20_000.0;

/// An SVG of ours as PNG, at 300 dots per inch of its stated size.
///
/// # Errors
/// If the text is no SVG, or the picture is too large.
pub fn png(svg: &str) -> Result<Vec<u8>, FigureError> {
    let wrong = |error: &dyn std::fmt::Display| FigureError::Drawing(error.to_string());
    let mut options = Options { font_family: "DejaVu Sans".to_owned(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options).map_err(|error| wrong(&error))?;
    let size = tree.size();
    // The size of the tree is in CSS pixels, 96 for each inch.
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
