//! Colours, dashes, markers and hatches that everybody can distinguish, also in greyscale.

/// The colours of Okabe and Ito, which colour-blind people can distinguish.
/// Black replaces their yellow, because a thin yellow line on white is invisible.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00", "#8c8c8c"];
/// Grey of axes and labels; its contrast against white is 7:1.
pub(crate) const GREY: &str = "#545454";
/// Grid lines.
pub(crate) const GRID: &str = "#dddddd";
/// Marks in the background.
pub(crate) const FAINT: &str = "#9a9a9a";

/// Dash patterns of lines, in points; the first line is solid.
pub(crate) const DASHES: [&str; 8] =
    ["", "4 2", "1.2 1.8", "6 2 1.2 2", "8 2.5", "3 1.2", "6 1.5 1.2 1.5 1.2 1.5", "2 3"];

/// Returns colour and opacity of a phase's tint; the legend names the phases.
pub(crate) fn tint(kind: &str, is_odd: bool) -> (&'static str, f64) {
    match kind {
        "eval" => ("#56b4e9", 0.28),
        "inference" => ("#009e73", 0.20),
        "idle" => ("#cc79a7", 0.20),
        _ if is_odd => ("#000000", 0.10),
        _ => ("#000000", 0.045),
    }
}

/// Anchors of the colour map Cividis (Nuñez, Anderton, Renslow 2018), from light to dark.
/// It is perceptually uniform, also with colour-vision deficiency.
const DEPTHS: [(f64, f64, f64); 7] = [
    (253.0, 231.0, 55.0),
    (219.0, 200.0, 83.0),
    (180.0, 169.0, 105.0),
    (142.0, 141.0, 117.0),
    (107.0, 113.0, 117.0),
    (65.0, 84.0, 109.0),
    (0.0, 39.0, 83.0),
];

/// Returns the colour (RGB, 0 to 255) of a depth from 0 to 1.
pub(crate) fn tone(depth: f64) -> (f64, f64, f64) {
    let place = depth.clamp(0.0, 1.0) * 6.0;
    let mut from = 0;
    while from < 5 && f64::from(u8::try_from(from).unwrap_or(0)) + 1.0 <= place {
        from += 1;
    }
    let rest = place - f64::from(u8::try_from(from).unwrap_or(0));
    let (a, b) = (DEPTHS[from], DEPTHS[from + 1]);
    (a.0 + rest * (b.0 - a.0), a.1 + rest * (b.1 - a.1), a.2 + rest * (b.2 - a.2))
}

/// Formats a colour for SVG.
pub(crate) fn blend((red, green, blue): (f64, f64, f64)) -> String {
    format!("rgb({red:.0},{green:.0},{blue:.0})")
}

/// Whether white text is more readable on it than black text.
pub(crate) fn is_dark((red, green, blue): (f64, f64, f64)) -> bool {
    let linear = |part: f64| {
        let part = part / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) < 0.179
}
