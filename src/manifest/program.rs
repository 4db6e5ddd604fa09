//! An external program: its command with placeholders, and the command for a cell.

use crate::record::{Cell, Table, Value};

/// The files that are part of the identity of a program's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ProgramIdentity {
    /// Files that the manifest and the command name, imported local files, the interpreter and its packages.
    #[default]
    Closure,
    /// Only the files that the manifest names.
    Files,
    /// Files that the manifest and the command name, and the repository's commit and uncommitted patch.
    Git,
}

impl ProgramIdentity {
    /// All names.
    pub const NAMES: [&str; 3] = ["closure", "files", "git"];

    /// Returns the name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closure => "closure",
            Self::Files => "files",
            Self::Git => "git",
        }
    }

    /// Returns the identity of a recorded program part. Early versions recorded none and used commit and patch.
    pub fn recorded(program: &Table) -> Self {
        let name = program.get(Self::MEMBER).and_then(Value::as_str);
        name.and_then(Self::named).unwrap_or(Self::Git)
    }

    /// The member of a program part with this value; if absent, it is [`Git`](Self::Git).
    pub const MEMBER: &str = "identity";

    /// Parses a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Closure, Self::Files, Self::Git].into_iter().find(|identity| identity.name() == name)
    }
}

/// The program that a manifest uses instead of the built-in trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments as written, with placeholders.
    pub command: Vec<String>,
    /// Files whose contents are part of the identity, as written; relative paths start at the manifest's folder.
    pub files: Vec<String>,
    /// The files that are part of the identity.
    pub identity: ProgramIdentity,
    template: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

/// The path of an image, whose content is part of the identity already.
const IMAGE: &str = "container.image";
/// The global batch size; computed from the batch size per GPU if a cell does not have it.
const BATCH_OF_ALL: &str = "training.batch_global";

/// A placeholder has no value in a cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{{{name}}}` in the command has no value in this cell (there are: {known})")]
pub struct ArgvError {
    /// The placeholder's name.
    pub name: String,
    /// The names that have values.
    pub known: String,
}

impl Program {
    /// Parses the placeholders. An error has the index of the item and what is wrong with it.
    pub fn new(command: Vec<String>, files: Vec<String>, identity: ProgramIdentity) -> Result<Self, (usize, String)> {
        let template = command
            .iter()
            .enumerate()
            .map(|(item, text)| pieces(text).map_err(|message| (item, message)))
            .collect::<Result<_, _>>()?;
        Ok(Self { command, files, identity, template })
    }

    /// Returns the command for a cell, with every placeholder replaced.
    ///
    /// A name is looked up in `params`, then as a full dotted field; `{seed}` is the seed.
    /// `{gpus}` is the number of GPUs: `hardware.gpus` if given, otherwise 0 on the CPU and 1 elsewhere.
    /// Without a value of its own, `{training.batch_global}` is the batch size per GPU times the number of GPUs.
    ///
    /// # Errors
    /// If a placeholder has no value in the cell. This cannot happen for cells of a loaded manifest.
    pub fn argv(&self, cell: &Cell) -> Result<Vec<String>, ArgvError> {
        self.template
            .iter()
            .map(|pieces| {
                let mut argument = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => argument.push_str(text),
                        Piece::Name(name) => match value(name, cell) {
                            Some(value) => argument.push_str(&value),
                            None => return Err(ArgvError { name: name.clone(), known: known(cell).join(", ") }),
                        },
                    }
                }
                Ok(argument)
            })
            .collect()
    }

    /// Returns the settings that the command uses, by full name, because another value makes another command.
    /// Configuration, parameters and seed are hashed already, and so is the content of an image.
    pub fn settings(&self, cell: &Cell) -> Table {
        let is_hashed = |name: &str| parameter(name, cell).is_some() || cell.config.contains_key(name);
        let names = self.names().map(|(_, name)| name).filter(|name| !is_hashed(name) && *name != IMAGE);
        names.filter_map(|name| Some((name.to_owned(), cell.settings.get(name)?.clone()))).collect()
    }

    /// Returns the placeholders without a value in the cell, each with the index of its item.
    pub(super) fn unresolved(&self, cell: &Cell) -> Vec<(usize, &str)> {
        self.names().filter(|(_, name)| value(name, cell).is_none()).collect()
    }

    /// Returns the names of all placeholders, each with the index of its item.
    fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.template.iter().enumerate().flat_map(|(item, pieces)| {
            pieces.iter().filter_map(move |piece| match piece {
                Piece::Name(name) => Some((item, name.as_str())),
                Piece::Text(_) => None,
            })
        })
    }
}

/// Returns every name that a placeholder can have in the cell.
pub(super) fn known(cell: &Cell) -> Vec<String> {
    let parameters = cell.config.keys().filter_map(|name| name.strip_prefix("params."));
    let own = ["seed", "gpus"].into_iter().filter(|name| !cell.config.contains_key(&format!("params.{name}")));
    let fields = cell.config.keys().chain(cell.settings.keys()).map(String::as_str);
    let fields = fields.filter(|name| !name.starts_with("params."));
    parameters.chain(own).chain(fields).map(str::to_owned).collect()
}

/// Returns the parameter that a placeholder names, by its short or full name.
fn parameter<'a>(name: &str, cell: &'a Cell) -> Option<&'a Value> {
    let full = || cell.config.get(name).filter(|_| name.starts_with("params."));
    cell.config.get(&format!("params.{name}")).or_else(full)
}

fn value(name: &str, cell: &Cell) -> Option<String> {
    if let Some(value) = parameter(name, cell).or_else(|| cell.get(name)) {
        return Some(value.to_string());
    }
    match name {
        "seed" => Some(cell.seed.to_string()),
        "gpus" => Some(match cell.get("hardware.gpus") {
            Some(gpus) => gpus.to_string(),
            None if cell.text("hardware.device") == Some("cpu") => "0".to_owned(),
            None => "1".to_owned(),
        }),
        // A cell of one GPU does not have it, so that equal work has an equal identity.
        BATCH_OF_ALL => {
            let sharers = match cell.text("hardware.device") {
                Some("cpu") => cell.int("hardware.cpu_ranks"),
                _ => cell.int("hardware.gpus"),
            };
            let all = cell.int("training.batch_size")?.checked_mul(sharers.unwrap_or(1).max(1))?;
            Some(all.to_string())
        }
        _ => None,
    }
}

/// Splits an item into text and placeholders; `{{` and `}}` are literal braces.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    const REMEDY: &str = "(write {{ and }} for braces)";
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' if chars.next_if_eq(&'{').is_some() => plain.push('{'),
            '}' if chars.next_if_eq(&'}').is_some() => plain.push('}'),
            '}' => return Err(format!("a `}}` in the command has no `{{` before it {REMEDY}")),
            '{' => {
                let mut name = String::new();
                loop {
                    match chars.next() {
                        Some('}') => break,
                        Some(c) if c.is_ascii_alphanumeric() || "_.-".contains(c) => name.push(c),
                        Some(_) => return Err(format!("a `{{` in the command does not begin a placeholder {REMEDY}")),
                        None => return Err(format!("a `{{` in the command has no `}}` after it {REMEDY}")),
                    }
                }
                if name.is_empty() {
                    return Err(format!("the command has an empty placeholder {REMEDY}"));
                }
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Name(name));
            }
            c => plain.push(c),
        }
    }
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        let config = [("params.lr", 0.1.into()), ("params.seed", "shadow".into()), ("model.name", "bert".into())];
        Cell { config: config.map(|(key, value)| (key.to_owned(), value)).into(), seed: u64::MAX, ..Cell::default() }
    }

    fn argv(command: &[&str]) -> Result<Vec<String>, String> {
        let command = command.iter().map(|text| (*text).to_owned()).collect();
        let program = Program::new(command, Vec::new(), ProgramIdentity::default())
            .map_err(|(item, message)| format!("{item}: {message}"))?;
        program.argv(&cell()).map_err(|error| error.to_string())
    }

    #[test]
    fn placeholders_take_values_and_doubled_braces_stay() {
        let made = argv(&["python3", "--lr={lr}", "{model.name}-{gpus}", "{params.lr}", "{{\"a\": {lr}}}", ""]);
        assert_eq!(made.unwrap(), ["python3", "--lr=0.1", "bert-1", "0.1", "{\"a\": 0.1}", ""]);
    }

    #[test]
    fn a_parameter_takes_precedence_over_the_seed() {
        assert_eq!(argv(&["{seed}"]).unwrap(), ["shadow"]);
    }

    #[test]
    fn settings_of_a_command_exclude_parameters_and_configuration() {
        let mut cell = cell();
        let settings = [("experiment.name", "one"), ("data.path", "/d"), ("container.image", "/i"), ("limits.x", "2")];
        cell.settings = settings.map(|(name, value)| (name.to_owned(), value.into())).into();
        let command = [
            "{lr}",
            "{params.lr}",
            "x{lr}",
            "{{lr}}",
            "{seed}",
            "{gpus}",
            "{model.name}",
            "{data.path}/{container.image}",
            "log-{experiment.name}",
        ];
        let program = Program::new(command.map(str::to_owned).to_vec(), Vec::new(), ProgramIdentity::default());
        let program = program.unwrap();
        let expected = [("experiment.name", "one"), ("data.path", "/d")];
        assert_eq!(program.settings(&cell), expected.map(|(name, value)| (name.to_owned(), value.into())).into());
    }

    #[test]
    fn faults_name_the_item() {
        assert!(argv(&["a", "{b"]).unwrap_err().starts_with("1: a `{`"));
        assert!(argv(&["}"]).unwrap_err().starts_with("0: a `}`"));
        assert!(argv(&["{}"]).unwrap_err().contains("empty placeholder"));
        assert!(argv(&["{a b}"]).unwrap_err().contains("does not begin"));
        assert_eq!(
            argv(&["{bach}"]).unwrap_err(),
            "`{bach}` in the command has no value in this cell (there are: lr, seed, gpus, model.name)"
        );
    }
}
