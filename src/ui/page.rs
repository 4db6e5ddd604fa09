//! The page's files, which are embedded in the program.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// A file of the page.
pub(super) struct File {
    path: &'static str,
    pub(super) kind: &'static str,
    pub(super) content: &'static str,
}

macro_rules! files {
    ($($name:literal $kind:literal),+ $(,)?) => {
        &[$(File { path: $name, kind: $kind, content: include_str!(concat!("page/", $name)) }),+]
    };
}

const FILES: &[File] = files![
    "index.html" "text/html; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "answers.js" "text/javascript; charset=utf-8",
    "api.js" "text/javascript; charset=utf-8",
    "chart.js" "text/javascript; charset=utf-8",
    "compare.js" "text/javascript; charset=utf-8",
    "complete.js" "text/javascript; charset=utf-8",
    "curves.js" "text/javascript; charset=utf-8",
    "dom.js" "text/javascript; charset=utf-8",
    "live.js" "text/javascript; charset=utf-8",
    "main.js" "text/javascript; charset=utf-8",
    "rows.js" "text/javascript; charset=utf-8",
    "run.js" "text/javascript; charset=utf-8",
    "runs.js" "text/javascript; charset=utf-8",
    "scatter.js" "text/javascript; charset=utf-8",
    "state.js" "text/javascript; charset=utf-8",
    "timeline.js" "text/javascript; charset=utf-8",
];

/// Returns the file at a path; `/` is `index.html`.
pub(super) fn file(path: &str) -> Option<&'static File> {
    let name = path.strip_prefix('/')?;
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.path == name)
}

/// Compresses content with gzip.
pub(super) fn zipped(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector does not fail.
    let _ = encoder.write_all(content);
    encoder.finish().unwrap_or_default()
}
