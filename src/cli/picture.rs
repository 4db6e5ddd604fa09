//! Output of a plot: a file in the format of its extension, or the terminal.

use super::context::Context;
use super::draft::{Draft, unwritten};
use super::failure::{Failure, exit};
use super::output::print;
use crate::host::{files, terminal};
use crate::record::{Table, Value};
use crate::report::{self, Drawing, Figure, FigureError, Millimetres, bytes, table_of};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The line width in characters if the terminal does not report one.
const COLUMNS: usize = 100;
/// The file name that stands for the terminal.
const TERMINAL: &str = "term";

/// Arguments that say where a picture goes.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// The file, which must not exist yet: `.svg`, `.png` (300 dots per inch) or `.csv` (the data) [default: text
    /// on standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// `term` draws with characters on standard output, which is also the default without -o
    #[arg(long, value_name = "HOW", value_parser = [TERMINAL], conflicts_with = "output")]
    plot: Option<String>,

    /// The width on paper: `column` (85 mm), `page` (174 mm), or millimetres
    #[arg(long, value_name = "WIDTH", default_value = "page", value_parser = width)]
    width: Millimetres,

    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

fn width(text: &str) -> Result<Millimetres, String> {
    let (least, most) = Millimetres::LIMITS;
    match text {
        "column" => Ok(Millimetres::COLUMN),
        "page" => Ok(Millimetres::PAGE),
        other => {
            let number = other.strip_suffix("mm").unwrap_or(other).trim().parse::<f64>().ok();
            let number = number.filter(|number| (least..=most).contains(number));
            number
                .map(Millimetres)
                .ok_or_else(|| format!("it must be `column`, `page`, or {least} to {most} millimetres"))
        }
    }
}

impl Output {
    /// Draws the figure into the chosen output.
    pub(super) fn put(&self, figure: &Figure, context: &Context) -> Result<u8, Failure> {
        match &self.output {
            Some(path) => put(figure, path, self.width, self.force, context, Table::new()),
            None if context.json => {
                context.answer(String::new, || document(figure))?;
                Ok(exit::YES)
            }
            None => {
                print(&drawn(figure))?;
                Ok(exit::YES)
            }
        }
    }
}

/// Draws the figure with characters, as wide as the terminal.
fn drawn(figure: &Figure) -> String {
    report::term(figure, terminal::columns().unwrap_or(COLUMNS))
}

/// Returns the figure's texts and data as a document.
fn document(figure: &Figure) -> Table {
    let row = |row: &Vec<String>| Value::List(row.iter().map(|cell| cell.as_str().into()).collect());
    table_of([
        ("title", figure.title.as_str().into()),
        ("summary", figure.summary.as_str().into()),
        ("notes", figure.below().map(str::to_owned).collect::<Vec<_>>().into()),
        ("columns", figure.sheet.heads.clone().into()),
        ("rows", Value::List(figure.sheet.rows.iter().map(row).collect())),
    ])
}

/// Returns the failure for a figure that cannot be drawn.
pub(super) fn failed(error: FigureError) -> Failure {
    let code = match error {
        FigureError::Empty(_) => exit::NO,
        FigureError::Asked(_) => exit::USAGE,
        FigureError::Drawing(_) => exit::LEDGER,
    };
    Failure::new(code, error)
}

/// Draws a figure into a file, or with characters if the name is `term`, and reports it with these additional members.
pub(super) fn put(
    figure: &Figure,
    path: &Path,
    width: Millimetres,
    force: bool,
    context: &Context,
    more: Table,
) -> Result<u8, Failure> {
    if path.as_os_str() == TERMINAL && context.json {
        let mut members = more;
        members.extend(document(figure));
        context.answer(String::new, || members)?;
        return Ok(exit::YES);
    }
    if path.as_os_str() == TERMINAL {
        print(&drawn(figure))?;
        return Ok(exit::YES);
    }
    let size = save(figure, path, width, force)?;
    context.answer(
        || format!("{} {}\n", path.display(), bytes(size)),
        || {
            let mut members = more;
            members.extend(table_of([("file", path.display().to_string().into()), ("bytes", size.into())]));
            members
        },
    )?;
    Ok(exit::YES)
}

/// Writes a figure in the format of the file's extension. Returns its size in bytes.
pub(super) fn save(figure: &Figure, path: &Path, width: Millimetres, force: bool) -> Result<u64, Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let svg = || Drawing { width, ..Drawing::default() }.svg(figure).map_err(failed);
    let content = match ending.as_str() {
        "png" => report::png(&svg()?).map_err(failed)?,
        "csv" => figure.sheet.csv().into_bytes(),
        "svg" | "" => svg()?.into_bytes(),
        other => {
            let text = format!("`.{other}` is not a plot format (use `.svg`, `.png` or `.csv`)");
            return Err(Failure::new(exit::USAGE, text));
        }
    };
    write(path, &content, force)?;
    Ok(content.len() as u64)
}

fn write(path: &Path, content: &[u8], force: bool) -> Result<(), Failure> {
    let write = || match fs::metadata(path) {
        // The replaced file stays intact until the new one is complete.
        Ok(found) if force && found.is_file() => {
            let draft = Draft::replacing(&fs::canonicalize(path)?)?;
            draft.held().write_all(content)?;
            draft.finish_by(|from, to| fs::rename(from, to))
        }
        // A device is written to directly.
        Ok(_) if force => files::hand_on(path, content),
        _ => {
            let draft = Draft::file(path)?;
            draft.held().write_all(content)?;
            draft.finish()
        }
    };
    write().map_err(|error| unwritten(path, &error, "--force replaces it"))
}
