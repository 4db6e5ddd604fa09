//! Finds the program that starts containers: Apptainer or Singularity.

use super::ContainerError;
use crate::host::{command, environment};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Container programs, the preferred one first, and the prefixes of variables that each passes into the container.
const TOOLS: [(&str, &str); 2] = [("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")];
/// The variable that names another program.
const COMMAND: &str = "LEDGER_CONTAINER_COMMAND";
const PATIENCE: Duration = Duration::from_secs(20);

/// A container program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Tool {
    pub(super) path: PathBuf,
    pub(super) version: String,
    /// The prefix of variables that it passes into the container.
    pub(super) prefix: &'static str,
}

/// Finds the container program of this machine.
pub(in crate::engine) fn tool() -> Result<Tool, ContainerError> {
    if let Some(named) = environment::text_var(COMMAND).filter(|named| !named.is_empty()) {
        let why = |why| ContainerError::NoTool(format!("{COMMAND} is `{named}`, and {why}"));
        let path = environment::which(&named).ok_or_else(|| why("that is not a program here".to_owned()))?;
        return tool_at(path, &named).map_err(why);
    }
    let mut why = "there is no `apptainer` and no `singularity` on PATH".to_owned();
    for (name, _) in TOOLS {
        let Some(path) = environment::which(name) else { continue };
        match tool_at(path, name) {
            Ok(tool) => return Ok(tool),
            Err(reason) => why = reason,
        }
    }
    Err(ContainerError::NoTool(why))
}

/// The program at this path, if it can start a container. `name` is the name it was found by.
fn tool_at(path: PathBuf, name: &str) -> Result<Tool, String> {
    let said = command::ask(name, &["--version"], Path::new("/"), &[], PATIENCE).map_err(|error| error.to_string())?;
    if !said.is_success() {
        return Err(format!("`{name}` does not work: {}", said.complaint()));
    }
    let version: String = said.out.trim().chars().take(200).collect();
    if let Some(least) = too_old(&version) {
        return Err(format!("`{name}` is {version}, but it must be at least {least}"));
    }
    // If both names are installed, one may be a link to the other program.
    let prefix = TOOLS.iter().find(|(tool, _)| version.contains(tool)).unwrap_or(&TOOLS[1]).1;
    Ok(Tool { path, version, prefix })
}

/// The oldest supported version, if this one is older.
pub(super) fn too_old(said: &str) -> Option<&'static str> {
    let is_apptainer = said.contains("apptainer");
    let (least, name) = if is_apptainer { ((1, 1), "Apptainer 1.1") } else { ((3, 10), "SingularityCE 3.10") };
    let numbers = said.split_ascii_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut numbers = numbers.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (version < least).then_some(name)
}
