//! An external program: its command as written, with placeholders, and as a cell makes it.

use crate::record::{Cell, Table, Value};

/// What of a program enters the identity of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ProgramIdentity {
    /// The files that the manifest and the command name, the local files that the program imports, its interpreter and its packages.
    #[default]
    Closure,
    /// The files that the manifest names, alone.
    Files,
    /// The files that the manifest and the command name, and the commit and the uncommitted patch of the repository.
    Git,
}

impl ProgramIdentity {
    /// Every value by its name.
    pub const NAMES: [&str; 3] = ["closure", "files", "git"];

    /// The name that a manifest has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closure => "closure",
            Self::Files => "files",
            Self::Git => "git",
        }
    }

    /// That of a recorded program part. Records of versions that knew no other have commit and patch.
    pub fn recorded(program: &Table) -> Self {
        let name = program.get(Self::MEMBER).and_then(Value::as_str);
        name.and_then(Self::named).unwrap_or(Self::Git)
    }

    /// The member of a program part that names it; none stands for [`Git`](Self::Git).
    pub const MEMBER: &str = "identity";

    /// The value of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Closure, Self::Files, Self::Git].into_iter().find(|identity| identity.name() == name)
    }
}

/// The program that a manifest brings instead of the built-in trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments as written, placeholders and all.
    pub command: Vec<String>,
    /// Files whose contents enter the identity, as written: relative ones start at the manifest's folder.
    pub files: Vec<String>,
    /// What of it enters the identity.
    pub identity: ProgramIdentity,
    template: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

/// Says where an image lies, whose content is in the identity.
const IMAGE: &str = "container.image";
/// The samples of a step on all GPUs together, which follow from those of each where a cell does not hold them.
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
    /// Reads the placeholders; on a fault gives the number of the item and what is wrong with it.
    pub fn new(command: Vec<String>, files: Vec<String>, identity: ProgramIdentity) -> Result<Self, (usize, String)> {
        let template = command
            .iter()
            .enumerate()
            .map(|(item, text)| pieces(text).map_err(|message| (item, message)))
            .collect::<Result<_, _>>()?;
        Ok(Self { command, files, identity, template })
    }

    /// The command for a cell, every placeholder replaced.
    ///
    /// A name is looked for among `params`, then as a full dotted field; `{seed}` is the seed and `{gpus}` the number of GPUs:
    /// that of `hardware.gpus` where it is given, else 0 on the CPU and 1 elsewhere. `{training.batch_global}` is the product of the batch
    /// of each and their number where the cell has no other.
    ///
    /// # Errors
    /// A placeholder that has no value in the cell; a loaded manifest has none such for its own cells.
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

    /// What the command says of the cell beyond its configuration and seed, by full names: another value makes another command. An
    /// image is not among them, whose digest is a part of its own.
    pub fn settings(&self, cell: &Cell) -> Table {
        let is_hashed = |name: &str| parameter(name, cell).is_some() || cell.config.contains_key(name);
        let names = self.names().map(|(_, name)| name).filter(|name| !is_hashed(name) && *name != IMAGE);
        names.filter_map(|name| Some((name.to_owned(), cell.settings.get(name)?.clone()))).collect()
    }

    /// The placeholders without a value in the cell, each with the number of its item.
    pub(super) fn unresolved(&self, cell: &Cell) -> Vec<(usize, &str)> {
        self.names().filter(|(_, name)| value(name, cell).is_none()).collect()
    }

    /// The names of all placeholders, each with the number of its item.
    fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.template.iter().enumerate().flat_map(|(item, pieces)| {
            pieces.iter().filter_map(move |piece| match piece {
                Piece::Name(name) => Some((item, name.as_str())),
                Piece::Text(_) => None,
            })
        })
    }
}

/// Every name that a placeholder can have in the cell.
pub(super) fn known(cell: &Cell) -> Vec<String> {
    let parameters = cell.config.keys().filter_map(|name| name.strip_prefix("params."));
    let own = ["seed", "gpus"].into_iter().filter(|name| !cell.config.contains_key(&format!("params.{name}")));
    let fields = cell.config.keys().chain(cell.settings.keys()).map(String::as_str);
    let fields = fields.filter(|name| !name.starts_with("params."));
    parameters.chain(own).chain(fields).map(str::to_owned).collect()
}

/// The parameter that a placeholder means, by its short name or its full one.
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
        // A cell of one GPU does not hold it, so that equal work has an equal identity.
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

/// Splits an item into text and placeholders; `{{` and `}}` are braces.
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
    fn a_parameter_comes_before_the_seed() {
        assert_eq!(argv(&["{seed}"]).unwrap(), ["shadow"]);
    }

    #[test]
    fn settings_in_a_command_are_told_from_parameters_and_configuration() {
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
