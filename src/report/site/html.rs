//! The frame of pages, and tables and figures in them.

pub(super) use super::super::figure::escaped;
use super::super::figure::{Drawing, Figure, FigureError, Sheet};
use super::page_of;
use crate::record::{RunId, Value};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// SHA-256 of both for the content security policy, so that nothing in a record can be applied or executed.
const STYLE_HASH: &str = "H+TZlJxXtaSe1166zDa6yypdLE/YBEw580P7ZHRoMvo=";
const SCRIPT_HASH: &str = "rd2gC+hZKvTubGENgIck2oDN8Zr5c1HrQGB3iZfUBDw=";

/// Title, navigation and footer of a page.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// Links: target and text.
    pub(super) links: Vec<(String, String)>,
    /// Text at the bottom.
    pub(super) footer: String,
}

impl Frame<'_> {
    /// Returns the page around `content`, which is HTML.
    pub(super) fn page(&self, content: &str) -> String {
        let title = escaped(self.title);
        let links: String = self
            .links
            .iter()
            .map(|(target, text)| format!("<li><a href=\"{}\">{}</a></li>", escaped(target), escaped(text)))
            .collect();
        let nav = if links.is_empty() {
            String::new()
        } else {
            format!("<nav class=\"on\" aria-label=\"Parts of the report\"><ul>{links}</ul></nav>\n")
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; \
             script-src 'sha256-{SCRIPT_HASH}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#content\">To the content</a>\n\
             <header>\n<h1>{title}</h1>\n</header>\n{nav}<main id=\"content\" tabindex=\"-1\">\n{content}</main>\n\
             <footer><p>{}</p></footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            escaped(&self.footer)
        )
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Field {
    pub(super) text: String,
    /// Sort key; `None` for texts.
    pub(super) value: Option<f64>,
    /// Address of its link.
    pub(super) target: Option<String>,
    /// Further links: target and text.
    pub(super) list: Vec<(String, String)>,
}

impl Field {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(super) fn number(text: impl Into<String>, value: f64) -> Self {
        Self { text: text.into(), value: Some(value), ..Self::default() }
    }

    /// Returns a cell with the value of a field, or a dash.
    pub(super) fn of(value: Option<Value>) -> Self {
        let text = value.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string);
        Self { value: value.and_then(|value| value.as_float()), ..Self::text(text) }
    }

    /// Adds a link to the page of a run.
    pub(super) fn to(self, root: &str, run: &RunId) -> Self {
        Self { target: Some(format!("{root}{}", page_of(run))), ..self }
    }

    fn html(&self, tag: &str) -> String {
        let class = if self.value.is_some() { " class=\"n\"" } else { "" };
        // Numbers are written as the script parses them; NaN is sorted as text.
        let value = self.value.filter(|value| !value.is_nan()).map_or_else(String::new, |value| {
            format!(" data-v=\"{}\"", format!("{value:?}").replace("inf", "Infinity"))
        });
        let text = escaped(&self.text);
        let mut inner = match &self.target {
            Some(target) => format!("<a href=\"{}\">{text}</a>", escaped(target)),
            None => text,
        };
        for (target, text) in &self.list {
            inner.push_str(&format!(" <a href=\"{}\">{}</a>", escaped(target), escaped(text)));
        }
        let scope = if tag == "th" { " scope=\"row\"" } else { "" };
        format!("<{tag}{scope}{class}{value}>{inner}</{tag}>")
    }
}

/// Returns a table. Heads that begin with `>` mark columns of numbers; the first cell of a row is its heading.
pub(super) fn table(id: &str, caption: &str, heads: &[String], rows: &[Vec<Field>], is_sortable: bool) -> String {
    let head = |head: &String| {
        let (text, class) = head.strip_prefix('>').map_or((head.as_str(), ""), |text| (text, " class=\"n\""));
        format!("<th scope=\"col\"{class}>{}</th>", escaped(text))
    };
    let heads: String = heads.iter().map(head).collect();
    let body: String = rows
        .iter()
        .map(|row| {
            let fields: String =
                row.iter().enumerate().map(|(at, field)| field.html(if at == 0 { "th" } else { "td" })).collect();
            format!("<tr>{fields}</tr>\n")
        })
        .collect();
    let sortable = if is_sortable { " data-sortable" } else { "" };
    let (id, caption) = (escaped(id), escaped(caption));
    format!(
        "<div class=\"wide\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table id=\"{id}\"{sortable}><caption>{caption}</caption>\n\
         <thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )
}

/// Returns a table of names and values.
pub(super) fn pairs(id: &str, caption: &str, heads: [&str; 2], rows: &[(String, String)]) -> String {
    let rows: Vec<Vec<Field>> =
        rows.iter().map(|(name, value)| vec![Field::text(name.clone()), Field::text(value.clone())]).collect();
    table(id, caption, &heads.map(str::to_owned), &rows, false)
}

/// Returns a figure with a caption and links to the pages of its runs. `files` are links to its data and its SVG.
pub(super) fn figure(
    id: &str,
    figure: &Figure,
    root: &str,
    pages: &dyn Fn(&RunId) -> bool,
    files: &[(String, &str)],
) -> Result<String, FigureError> {
    let link = |run: &RunId| pages(run).then(|| format!("{root}{}", page_of(run)));
    // The notes are in the caption, where screen readers find them.
    let bare = Figure {
        title: figure.title.clone(),
        summary: figure.summary.clone(),
        notes: Vec::new(),
        key: Vec::new(),
        panels: figure.panels.clone(),
        across: figure.across,
        sheet: Sheet::default(),
    };
    let svg = Drawing { prefix: id, link: Some(&link), ..Drawing::default() }.svg(&bare)?;
    let links: Vec<String> =
        files.iter().map(|(target, text)| format!("<a href=\"{}\">{text}</a>", escaped(target))).collect();
    let notes: Vec<String> = std::iter::once(figure.summary.as_str()).chain(figure.below()).map(escaped).collect();
    let links = if links.is_empty() { String::new() } else { format!("<br>{}", links.join(" · ")) };
    Ok(format!(
        "<figure id=\"{}\">\n{svg}<figcaption>{}{links}</figcaption>\n</figure>\n",
        escaped(id),
        notes.join("<br>")
    ))
}
